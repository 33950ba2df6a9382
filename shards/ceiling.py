"""What reading costs when nothing else is done: bare preadv by threads, and the bytes it reads."""

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from shards.errors import DataError
from shards.ring import Ring
from shards.sample import PAGE

ByteRange = tuple[Path, int, int]  # file, offset, bytes


@final
@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of a benchmark: wall and CPU seconds of the process, and what was done in them."""

    seconds: float
    cpu_seconds: float
    nbytes: int
    samples: int
    latencies: list[float]
    waited: float = 0.0

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.nbytes / self.seconds


@final
class Ceiling:
    """The reads of the loader's batches and nothing else: no order, no batch, no consumer.

    direct    with O_DIRECT, each read from the page where its range begins to that where it ends
    """

    def __init__(self, ranges: list[ByteRange], *, threads: int, places: int, direct: bool = False) -> None:
        self._threads = threads
        self._wanted = sum(nbytes for _, _, nbytes in ranges)
        self._reads = [_in_pages(read) for read in ranges] if direct else ranges
        flags = os.O_RDONLY | (os.O_DIRECT if direct else 0)
        self._files = {path: os.open(path, flags) for path in {path for path, _, _ in self._reads}}
        longest = max(nbytes for _, _, nbytes in self._reads)
        self._ring = Ring(places, longest)
        self._places = [self._ring.lend_another().data for _ in range(places)]
        self._may_be_short = direct  # the last page of a file

    def run(self) -> Turn:
        """Read everything once, every thread taking the next read as soon as it is free."""
        following = iter(enumerate(self._reads))
        began, cpu = time.perf_counter(), time.process_time()
        threads = [threading.Thread(target=self._read, args=(following,)) for _ in range(self._threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        return Turn(seconds=seconds, cpu_seconds=cpu, nbytes=self._wanted, samples=len(self._reads), latencies=[])

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)

    def _read(self, following: Iterator[tuple[int, tuple[Path, int, int]]]) -> None:
        for position, (path, offset, nbytes) in following:
            got = os.preadv(self._files[path], [self._places[position % len(self._places)][:nbytes]], offset)
            if got != nbytes and not self._may_be_short:
                raise DataError(f"{path}: {got} of {nbytes} bytes at {offset}: the shard is cut short")


def _in_pages(read: ByteRange) -> ByteRange:
    path, offset, nbytes = read
    begin = offset // PAGE * PAGE
    return path, begin, -(-(offset + nbytes - begin) // PAGE) * PAGE
