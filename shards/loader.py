"""Threads read each batch of a sampler into a ring of slots, a few batches ahead of the training."""

import logging
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray

from shards.crop import Crop, Transform
from shards.deal import Ints, keyed
from shards.errors import ConfigError, DataError
from shards.manifest import Manifest, Selection
from shards.memory import available_bytes, memory_left
from shards.readahead import Crops, ReaderThreads, Reading, Work
from shards.reader import IO, Reader
from shards.ring import Ring
from shards.schedule import Schedule
from shards.schema import storage_dtype
from shards.substitute import Substitutes
from shards.transfer import Batch, Sent, transfer_to
from shards.tuning import ThreadTuner
from shards.world import World

_LOG: Final = logging.getLogger(__name__)
_AHEAD_BYTES: Final = 256 << 20  # of batches: enough for any step to find one ready; more are memory that waits


class Sampler(Protocol):
    """What the loader asks of a sampler; `step` is where the next epoch begins after a resume."""

    selection: Selection
    seed: int
    epoch: int
    step: int
    world: World
    batch_size: int

    def __len__(self) -> int: ...

    def batch(self, step: int) -> Ints:
        """Rows of one batch of the current epoch."""
        ...

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of `epoch`."""
        ...

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """State after `step` batches of the current epoch."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position."""
        ...


@final
class Loader:
    """Iterate over one epoch of a sampler; `len` is exact, and the order is the sampler's.

    device          where batches arrive; on CUDA through pinned slots and a side stream
    threads         readers, which is also the number of reads in flight. "auto": as many as help, found on
                    the first batches
    prefetch        batches read ahead. "auto": as many as 256 MB hold, from 1 to 16
    io              "buffered": through the page cache. "direct": past it (O_DIRECT), for data beyond memory.
                    "auto": buffered while an epoch of all ranks fits in free memory
    transform       called in the reading threads with the frames of a crop, (frames, *frame_shape), and a
                    generator seeded by (seed, epoch, step, slot); gives back as many frames of the same type
    on_corrupt      "raise", or "substitute": another sample of the class takes the place of one that cannot be
                    read, the same one on every run. `substitutes` counts and names them
    verify_reads    check the checksum of every sample that is read whole
    timeout         seconds that a batch may take before its read counts as hanging
    A batch that someone keeps is never overwritten: its slot comes back when nothing refers to it.
    Threads and open files live while an iteration does, and end with it: at its end, on `break`, or on an error.
    """

    def __init__(
        self,
        data: Manifest,
        sampler: Sampler,
        *,
        crop: Crop,
        device: str | torch.device = "cpu",
        threads: int | Literal["auto"] = 4,
        prefetch: int | Literal["auto"] = "auto",
        io: IO | Literal["auto"] = "auto",
        transform: Transform | None = None,
        on_corrupt: Literal["raise", "substitute"] = "raise",
        verify_reads: bool = False,
        timeout: float = 600.0,
    ) -> None:
        self._rebuild = partial(
            Loader, data, sampler, crop=crop, device=device, threads=threads, prefetch=prefetch, io=io,
            transform=transform, on_corrupt=on_corrupt, verify_reads=verify_reads, timeout=timeout,
        )  # fmt: skip
        if (threads != "auto" and threads < 1) or (prefetch != "auto" and prefetch < 1) or timeout <= 0:
            raise ConfigError(f"threads {threads}, prefetch {prefetch}: must be at least 1; timeout {timeout}: above 0")
        if on_corrupt == "substitute" and crop.count > 1:
            raise ConfigError("several crops of a sample are an evaluation, where another must not take its place")
        self.data = data
        self.sampler = sampler
        self.crop = crop
        self.wait_seconds = 0.0  # time the training thread waited for data, over all epochs
        self.bytes_read = 0  # bytes asked of the kernel, over all epochs
        self.substitutes = Substitutes(sampler.selection) if on_corrupt == "substitute" else None
        self._tuner = ThreadTuner() if threads == "auto" else None
        self._threads = self._tuner.threads if threads == "auto" and self._tuner else int(threads)
        self._transform = transform
        self._verify = verify_reads
        self._timeout = timeout
        self._transfer = transfer_to(torch.device(device))
        self._frame_bytes = data.info.frame_bytes
        self._dtype = storage_dtype(data.info.dtype)
        self._handed_out = 0
        longest = crop.longest(data.frames[sampler.selection.rows])
        self._slot_bytes = max(1, sampler.batch_size * crop.count * longest * self._frame_bytes)
        self._prefetch = min(max(_AHEAD_BYTES // self._slot_bytes, 1), 16) if prefetch == "auto" else prefetch
        self.slots = self._prefetch + 1  # and the batch in the caller's hands
        free = memory_left(slots=self.slots, slot_bytes=self._slot_bytes, ranks=sampler.world.size)
        self.io: IO = ("direct" if self._epoch_bytes() > free else "buffered") if io == "auto" else io
        self._ring = Ring(self.slots, self._slot_bytes, self._transfer.prepare, self._transfer.forget)

    def __len__(self) -> int:
        return len(self.sampler)

    def __reduce__(self) -> tuple[Any, ...]:
        """A loader sent to another process (spawn) is made anew there, at the place of its sampler."""
        return (self._rebuild, ())

    def __iter__(self) -> Iterator[Batch]:
        first, self.sampler.step = self.sampler.step, 0
        self._handed_out = first
        epoch, steps, process = self.sampler.epoch, len(self.sampler), os.getpid()
        reader = Reader(self.data, io=self.io)
        reading = Reading(
            data=self.data,
            reader=reader,
            transfer=self._transfer,
            transform=self._transform,
            substitutes=self.substitutes,
            verify=self._verify,
        )
        threads = ReaderThreads(self._threads, reading, batches=self._prefetch, patience=self._timeout)

        def begin(step: int, *, wait: bool) -> Work | None:
            memory = self._memory(wait=wait)
            if memory is None:
                return None
            work = self._work(step, memory)
            threads.submit(work)
            return work

        schedule = Schedule(range(first, steps), ahead=self.slots, begin=begin)
        self._ring.freed = lambda: threads.call(schedule.fill)
        try:
            with threads:
                for step in range(first, steps):
                    self._handed_out = step + 1
                    yield self._batch(schedule.take(), threads)  # by no name: that would keep its slot from the ring
                    if os.getpid() != process:
                        raise RuntimeError("forked in mid-epoch: a child has no reading threads; iterate there anew")
                    self._tune(threads)
        finally:
            self._ring.freed = None
            self.io = reader.io
            if not threads.hanging:  # a read that hangs must not find another file under its number
                reader.close()
        self.sampler.set_epoch(epoch + 1)
        self._handed_out = 0

    def describe(self) -> list[str]:
        """What a person should know of this loader, in sentences with numbers."""
        slot, total = self._slot_bytes / 1e6, self.slots * self._slot_bytes / 1e6
        threads = f"{self._threads} reading threads{' to begin with' if self._tuner else ''}"
        epoch, free = self._epoch_bytes() / 1e9, available_bytes() / 1e9
        return [
            f"{self.slots} batch buffers of {slot:,.1f} MB, {total:,.1f} MB a rank; {threads}",
            f"{self.io} reads: {epoch:,.1f} GB an epoch, {free:,.1f} GB of memory free",
        ]

    def state_dict(self) -> dict[str, Any]:
        """The sampler's state after the batches handed out so far."""
        return self.sampler.state_dict(self._handed_out)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next iteration after the batches that `state` counts."""
        self.sampler.load_state_dict(state)
        self._handed_out = self.sampler.step

    def byte_ranges(self, step: int) -> list[tuple[Path, int, int]]:
        """What one batch of this epoch reads: (file, offset, bytes) of each crop."""
        rows, first, counts = self._crops(step)
        offsets = self.data.offsets[rows] + first * self._frame_bytes
        nbytes = counts * self._frame_bytes
        paths = [self.data.shard_path(row) for row in rows.tolist()]
        return list(zip(paths, offsets.tolist(), nbytes.tolist(), strict=True))

    def _epoch_bytes(self) -> int:
        """What all ranks read in an epoch, each byte counted once if samples are all that is read."""
        world, whole = self.sampler.world.size, int(self.data.nbytes[self.sampler.selection.rows].sum())
        return min(whole, len(self.sampler) * self._slot_bytes * world)

    def _memory(self, *, wait: bool) -> NDArray[Any] | None:
        """A free slot. Without `wait` it may be None: a later call will have one."""
        self._transfer.reclaim(wait=False)
        memory = self._ring.lend()
        if memory is None and wait:
            self._transfer.reclaim(wait=True)
            memory = self._ring.lend_another()
        return memory

    def _crops(self, step: int) -> tuple[Ints, Ints, Ints]:
        """Row, first frame and number of frames of each crop of a batch, (B,) each."""
        rows = self.sampler.batch(step)
        key, slot = self._random(step)
        first, counts = self.crop.spans(self.data.frames[rows], key=key, slot=slot)
        return np.repeat(rows, self.crop.count), first, counts

    def _random(self, step: int) -> tuple[int, int]:
        """Key of a step's random crops, and the slot of this rank's first sample."""
        sampler = self.sampler
        return keyed(sampler.seed, 4, sampler.epoch, step), sampler.world.rank * sampler.batch_size

    def _work(self, step: int, memory: NDArray[Any]) -> Work:
        rows, first, counts = self._crops(step)
        shape = (len(rows), self.crop.longest(counts), *self.data.info.frame_shape)
        nbytes = shape[0] * shape[1] * self._frame_bytes
        key, slot = self._random(step)

        def spans(row: int, place: int) -> tuple[int, int]:
            starts, taken = self.crop.spans(self.data.frames[[row]], key=key, slot=slot + place)
            return int(starts[0]), int(taken[0])

        crops = Crops(
            rows=rows,
            first=first,
            counts=counts,
            labels=self.data.labels[rows].astype(np.int64),
            features=memory[:nbytes].view(self._dtype).reshape(shape),
            key=keyed(key, 5),
            slot=slot * self.crop.count,
            spans=spans,
        )
        return Work(crops=crops)

    def _batch(self, work: Work, threads: ReaderThreads) -> Batch:
        began = time.perf_counter()
        try:
            sent = work.wait(self._timeout)
            if sent is None:
                sent = self._hung(work, threads)
        except DataError as error:
            world = self.sampler.world
            raise DataError(f"rank {world.rank} of {world.size}: {error}") from error
        self.wait_seconds += time.perf_counter() - began
        self.bytes_read += work.bytes_read
        features, lengths, labels = self._transfer.receive(sent)
        return Batch(features=features, lengths=lengths, labels=labels, rows=torch.from_numpy(work.crops.rows))

    def _hung(self, work: Work, threads: ReaderThreads) -> Sent:
        """Raise for a read that does not come back."""
        threads.patience = 0.1
        rows = threads.reading_of(work) or work.crops.rows[:1].tolist()
        more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
        raise DataError(
            f"{self.data.describe(rows[0])}{more}: a read has not come back after {self._timeout:g} s: the storage "
            "hangs, or is slower than `timeout` allows"
        )

    def _tune(self, threads: ReaderThreads) -> None:
        if self._tuner is None or self._tuner.settled:
            return
        self._threads = self._tuner.after_batch(self.wait_seconds, self.bytes_read)
        if self._threads != threads.count:
            threads.resize(self._threads)
        if self._tuner.settled:
            _LOG.info("reading with %d threads", self._threads)
