"""A batch on its way into memory, and the threads that read it there."""

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, final

import numpy as np
import xxhash
from numpy.typing import NDArray

from shards.crop import Transform, transform_frames
from shards.deal import Ints, keyed
from shards.errors import DataError
from shards.manifest import Manifest
from shards.reader import Reader
from shards.substitute import Substitutes
from shards.transfer import Sent, Transfer, as_tensor

_TASK_BYTES: Final = 1 << 20  # what a thread takes at a time: one large crop, or many small ones


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    """How crops are read, the same for all batches of an iteration.

    transform      changes the frames of a sample, in the reading thread; gives back as many, of the same type
    substitutes    what takes the place of damaged samples; None: they are errors
    verify         check the checksum of every sample that is read whole
    """

    data: Manifest
    reader: Reader
    transfer: Transfer
    transform: Transform | None = None
    substitutes: Substitutes | None = None
    verify: bool = False


@final
@dataclass(kw_only=True)
class Crops:
    """The crops of one batch: (B,) each but `memory`. Where a damaged sample is replaced, its entries change.

    features    (B, T, *frame_shape) over `memory`
    key, slot   a transform's random bits are a function of `key` and its crop's slot, counted from `slot`
    spans       row, place -> first frame and count of the crop that another row would give there
    """

    rows: Ints
    first: Ints
    counts: Ints
    labels: Ints
    features: NDArray[Any]
    key: int
    slot: int
    spans: Callable[[int, int], tuple[int, int]]


@final
@dataclass(kw_only=True)
class Work:
    """One batch on its way: each thread reads some crops at a time; the one that reads the last sends it."""

    crops: Crops
    bytes_read: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _done: threading.Event = field(default_factory=threading.Event)
    _error: Exception | None = None
    _sent: Sent | None = None

    def __post_init__(self) -> None:
        crops = self.crops
        self._planned = crops.rows.copy()
        self._left = len(crops.rows)
        self._memory = crops.features.reshape(-1).view(np.uint8).data
        self._row_bytes = len(self._memory) // max(1, self._left)

    def tasks(self, threads: int) -> list[range]:
        """Places of the batch, cut for at least so many threads."""
        count = len(self.crops.rows)
        size = max(1, min(-(-count // threads), _TASK_BYTES // max(1, self._row_bytes)))
        return [range(begin, min(begin + size, count)) for begin in range(0, count, size)]

    def read(self, places: range, reading: Reading) -> None:
        """Read some crops into their places; an error waits for the training thread."""
        asked = 0
        try:
            asked = self._read(places, reading)
        except Exception as error:  # noqa: BLE001 - whatever it is, `wait` raises it where it is seen
            self._error = error
        with self._lock:
            self.bytes_read += asked
            self._left -= len(places)
            last = self._left == 0
        if last:
            self._send(reading.transfer)

    def wait(self, seconds: float) -> Sent | None:
        """The batch once it is sent, or the error that reading it met; None after `seconds`."""
        if not self._done.wait(seconds):
            return None
        if self._error is not None:
            raise self._error
        return self._sent

    def _read(self, places: range, reading: Reading) -> int:
        crops, data, own = self.crops, reading.data, slice(places.start, places.stop)
        rows = crops.rows[own]
        frame_bytes = data.info.frame_bytes
        shards = data.shards[rows].tolist()
        offsets = (data.offsets[rows] + crops.first[own] * frame_bytes).tolist()
        sizes = (crops.counts[own] * frame_bytes).tolist()
        asked, plain = 0, reading.transform is None and not reading.verify
        for place, row, shard, offset, size in zip(places, rows.tolist(), shards, offsets, sizes, strict=True):
            at = place * self._row_bytes
            try:
                asked += reading.reader.fill(shard, offset, self._memory[at : at + size], row)
                if not plain:
                    self._finish(place, row, reading)
            except DataError as error:
                if reading.substitutes is None:
                    raise
                asked += self._substitute(place, row, error, reading, reading.substitutes)
            if size != self._row_bytes:
                crops.features[place, crops.counts[place] :] = 0
        return asked

    def _finish(self, place: int, row: int, reading: Reading) -> None:
        """Check and change what has been read, as `reading` wants it."""
        crops, count = self.crops, int(self.crops.counts[place])
        frames = crops.features[place, :count]
        if reading.verify and count == reading.data.frames[row]:
            at = place * self._row_bytes
            found = xxhash.xxh3_64_intdigest(self._memory[at : at + frames.nbytes])
            expected = int(reading.data.checksums[row])
            if found != expected:
                raise DataError(
                    f"{reading.data.describe(row)}: checksum {found:016x}, the manifest says {expected:016x}: damaged; "
                    "`make verify` lists what is, `make repair` writes it again"
                )
        if reading.transform is not None:
            transform_frames(reading.transform, frames, key=keyed(crops.key, crops.slot + place))

    def _substitute(self, place: int, row: int, error: DataError, reading: Reading, substitutes: Substitutes) -> int:
        """Read another sample of the class into the place of a damaged one; returns the bytes asked for."""
        crops = self.crops
        longest = crops.features.shape[1]
        for other in substitutes.instead_of(row, self._planned):
            first, count = crops.spans(other, place)
            if count > longest:  # a whole sample, which must not be cut
                continue
            out = crops.features[place, :count].reshape(-1).view(np.uint8).data
            try:
                asked = reading.reader.read_into(other, first, count, out)
                crops.counts[place] = count
                self._finish(place, other, reading)
            except DataError:
                continue
            crops.rows[place], crops.first[place] = other, first
            crops.features[place, count:] = 0
            substitutes.note(row, other, error)
            return asked
        raise DataError(f"{error}; and no other sample of its class can take its place") from error

    def _send(self, transfer: Transfer) -> None:
        try:
            if self._error is None:
                arrays = self.crops.features, self.crops.counts, self.crops.labels
                self._sent = transfer.send([as_tensor(array) for array in arrays])
        except Exception as error:  # noqa: BLE001 - as above
            self._error = error
        self._done.set()


@final
class ReaderThreads:
    """Reading threads for the length of a `with` block; what is not begun by its end never is.

    A thread that hangs in a read when the block ends is given `patience` seconds, and then left behind.
    """

    def __init__(self, count: int, reading: Reading, *, batches: int, patience: float) -> None:
        self._reading = reading
        self._batches = batches  # that are read at a time, and so need not all be cut for all threads
        self.patience = patience
        self._tasks: queue.SimpleQueue[tuple[Work, range] | Callable[[], None] | None] = queue.SimpleQueue()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._busy: dict[str, tuple[Work, range]] = {}
        self.count = count

    def __enter__(self) -> Self:
        self.resize(self.count)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(self.patience)

    @property
    def hanging(self) -> bool:
        """Whether a thread is still there after the block."""
        return any(thread.is_alive() for thread in self._threads)

    def resize(self, count: int) -> None:
        """Have `count` threads from now on; those too many end after what is queued."""
        for _ in range(self.count - count if self._threads else 0):
            self._tasks.put(None)
        for _ in range(count - (self.count if self._threads else 0)):
            name = f"headrace-reader-{len(self._threads)}"
            self._threads.append(threading.Thread(target=self._run, name=name, daemon=True))
            self._threads[-1].start()
        self.count = count

    def submit(self, work: Work) -> None:
        """Queue every part of a batch, behind those queued before."""
        for places in work.tasks(-(-self.count // self._batches)):
            self._tasks.put((work, places))

    def call(self, function: Callable[[], None]) -> None:
        """Have a thread call `function`, behind what is queued; may be used by the garbage collector."""
        self._tasks.put(function)

    def reading_of(self, work: Work) -> list[int]:
        """Rows of a batch that threads are reading at this moment, or are about to."""
        busy = [task for task in list(self._busy.values()) if task[0] is work]
        return [row for _, places in busy for row in work.crops.rows[places.start : places.stop].tolist()]

    def _run(self) -> None:
        name = threading.current_thread().name
        while (task := self._tasks.get()) is not None:
            if callable(task):
                if not self._stopping:
                    task()
                continue
            work, places = self._busy[name] = task
            if not self._stopping:
                work.read(places, self._reading)
            del self._busy[name], task, work  # an idle thread must not keep a slot from its ring
