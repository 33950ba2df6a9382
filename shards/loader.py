"""Threads read each batch of a sampler into a ring of slots, a few batches ahead of the training."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from shards.crop import Crop
from shards.deal import Ints, keyed
from shards.errors import ConfigError
from shards.manifest import Manifest
from shards.readahead import ReaderThreads, Work
from shards.reader import Reader
from shards.ring import Ring
from shards.schema import storage_dtype
from shards.transfer import transfer_to
from shards.world import World


class Sampler(Protocol):
    """What the loader asks of a sampler; `step` is where the next epoch begins after a resume."""

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
@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch on the device; B is samples times crops of each.

    features    (B, T, *frame_shape) in the storage dtype, zeros beyond each length
    lengths     (B,) int64 frames that are data
    labels      (B,) int64
    rows        (B,) int64 on the CPU: positions in the manifest
    """

    features: Tensor
    lengths: Tensor
    labels: Tensor
    rows: Tensor


@final
class Loader:
    """Iterate over one epoch of a sampler; `len` is exact, and the order is the sampler's.

    device      where batches arrive; on CUDA through pinned slots and a side stream
    threads     readers, which is also the number of reads in flight
    prefetch    batches read ahead
    A batch that someone keeps is never overwritten: its slot comes back when nothing refers to it.
    Threads live while an iteration does, and end with it: at its end, on `break`, or on an error.
    """

    def __init__(
        self,
        data: Manifest,
        sampler: Sampler,
        *,
        crop: Crop,
        device: str | torch.device = "cpu",
        threads: int = 4,
        prefetch: int = 4,
    ) -> None:
        if threads < 1 or prefetch < 1:
            raise ConfigError(f"threads {threads}, prefetch {prefetch}: both must be at least 1")
        self.data = data
        self.sampler = sampler
        self.crop = crop
        self.wait_seconds = 0.0  # time the training thread waited for data, over all epochs
        self.bytes_read = 0  # bytes asked of the kernel, over all epochs
        self._threads = threads
        self._prefetch = prefetch
        self._reader = Reader(data)
        self._transfer = transfer_to(torch.device(device))
        self._frame_bytes = data.info.frame_bytes
        self._dtype = storage_dtype(data.info.dtype)
        nbytes = sampler.batch_size * crop.count * crop.longest(data.frames) * self._frame_bytes
        # One slot more than is read ahead: the batch in the caller's hands.
        self._ring = Ring(prefetch + 1, max(1, nbytes), self._transfer.prepare, self._transfer.forget)
        self._handed_out = 0

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        first, self.sampler.step = self.sampler.step, 0
        self._handed_out = first
        epoch, steps = self.sampler.epoch, len(self.sampler)
        ahead: deque[Work] = deque()
        with ReaderThreads(self._threads, self._reader, self._transfer) as threads:
            for step in range(first, steps):
                for following in range(step + len(ahead), min(step + self._prefetch, steps)):
                    memory = self._memory(wait=not ahead)
                    if memory is None:
                        break
                    ahead.append(self._work(following, memory))
                    threads.submit(ahead[-1])
                    del memory  # the generator must not keep a slot from its ring
                self._handed_out = step + 1
                yield self._batch(ahead.popleft())
        self.sampler.set_epoch(epoch + 1)
        self._handed_out = 0

    def state_dict(self) -> dict[str, Any]:
        """The sampler's state after the batches handed out so far."""
        return self.sampler.state_dict(self._handed_out)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next iteration after the batches that `state` counts."""
        self.sampler.load_state_dict(state)
        self._handed_out = self.sampler.step

    def _memory(self, *, wait: bool) -> NDArray[Any] | None:
        """A free slot. Without `wait` it may be None: a later call will have one."""
        self._transfer.reclaim(wait=False)
        memory = self._ring.lend()
        if memory is None and wait:
            self._transfer.reclaim(wait=True)
            memory = self._ring.lend_another()
        return memory

    def byte_ranges(self, step: int) -> list[tuple[Path, int, int]]:
        """What one batch of this epoch reads: (file, offset, bytes) of each crop."""
        rows, first, counts = self._crops(step)
        offsets = self.data.offsets[rows] + first * self._frame_bytes
        nbytes = counts * self._frame_bytes
        paths = [self.data.shard_path(row) for row in rows.tolist()]
        return list(zip(paths, offsets.tolist(), nbytes.tolist(), strict=True))

    def _crops(self, step: int) -> tuple[Ints, Ints, Ints]:
        """Row, first frame and number of frames of each crop of a batch, (B,) each."""
        sampler = self.sampler
        rows = sampler.batch(step)
        key = keyed(sampler.seed, 4, sampler.epoch, step)
        slot = sampler.world.rank * sampler.batch_size
        first, counts = self.crop.spans(self.data.frames[rows], key=key, slot=slot)
        return np.repeat(rows, self.crop.count), first, counts

    def _work(self, step: int, memory: NDArray[Any]) -> Work:
        info = self.data.info
        rows, first, counts = self._crops(step)
        shape = (len(rows), self.crop.longest(counts), *info.frame_shape)
        nbytes = shape[0] * shape[1] * self._frame_bytes
        self.bytes_read += int(counts.sum()) * self._frame_bytes
        return Work(
            rows=rows,
            first=first,
            counts=counts,
            labels=self.data.labels[rows].astype(np.int64),
            features=memory[:nbytes].view(self._dtype).reshape(shape),
        )

    def _batch(self, work: Work) -> Batch:
        began = time.perf_counter()
        sent = work.wait()
        self.wait_seconds += time.perf_counter() - began
        features, lengths, labels = self._transfer.receive(sent)
        return Batch(features=features, lengths=lengths, labels=labels, rows=torch.from_numpy(work.rows))
