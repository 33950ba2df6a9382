"""A batch on its way into memory, and the threads that read it there."""

import queue
import threading
from types import TracebackType
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from shards.deal import Ints
from shards.reader import Reader
from shards.transfer import Sent, Transfer, as_tensor


@final
class Work:
    """One batch on its way: each thread reads one crop at a time; the one that reads the last sends it."""

    def __init__(self, *, rows: Ints, first: Ints, counts: Ints, labels: Ints, features: NDArray[Any]) -> None:
        self.rows = rows
        self._labels = labels
        self._features = features
        self._counts = counts
        self._parts = list(zip(rows.tolist(), first.tolist(), counts.tolist(), strict=True))
        self._left = len(rows)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._error: Exception | None = None
        self._sent = Sent(tensors=[])

    def __len__(self) -> int:
        return len(self._parts)

    def read(self, part: int, reader: Reader, transfer: Transfer) -> None:
        """Read one crop into its place; an error waits for the training thread."""
        row, start, count = self._parts[part]
        try:
            target = self._features[part]
            reader.read_into(row, start, count, target[:count].reshape(-1).view(np.uint8).data)
            target[count:] = 0
        except Exception as error:  # noqa: BLE001 - whatever it is, `wait` raises it where it is seen
            self._error = error
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._send(transfer)

    def wait(self) -> Sent:
        """Features, lengths and labels once they are sent, or the error that reading them met."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._sent

    def _send(self, transfer: Transfer) -> None:
        try:
            if self._error is None:
                arrays = self._features, self._counts, self._labels
                self._sent = transfer.send([as_tensor(array) for array in arrays])
        except Exception as error:  # noqa: BLE001 - as above
            self._error = error
        self._done.set()


@final
class ReaderThreads:
    """Reading threads for the length of a `with` block; what is not begun by its end never is."""

    def __init__(self, count: int, reader: Reader, transfer: Transfer) -> None:
        self._reader = reader
        self._transfer = transfer
        self._tasks: queue.SimpleQueue[tuple[Work, int] | None] = queue.SimpleQueue()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"headrace-reader-{n}", daemon=True) for n in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def submit(self, work: Work) -> None:
        """Queue every part of a batch, behind those queued before."""
        for part in range(len(work)):
            self._tasks.put((work, part))

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            work, part = task
            if not self._stopping:
                work.read(part, self._reader, self._transfer)
            del task, work  # an idle thread must not keep a slot from its ring
