"""How many reading threads: as many as help, found on the first batches."""

import time
from typing import Final, final

_FIRST: Final = 2
_MOST: Final = 32  # reads in flight that storage of any kind still gains from
_BATCHES: Final = 8  # of one measurement
_ENOUGH: Final = 0.02  # share of time that training may wait for data
_GAIN: Final = 1.1  # of throughput, for twice the threads


@final
class ThreadTuner:
    """Doubles the threads while training waits for data and twice as many read faster by a tenth."""

    def __init__(self) -> None:
        self.threads = _FIRST
        self.settled = False
        self._rate = 0.0
        self._begin(0.0, 0)

    def after_batch(self, waited: float, nbytes: int) -> int:
        """The number of threads from now on; told seconds waited and bytes read since the start."""
        self._batches += 1
        if self.settled or self._batches < _BATCHES:
            return self.threads
        seconds = time.perf_counter() - self._began
        rate = (nbytes - self._bytes) / seconds
        if (waited - self._waited) / seconds <= _ENOUGH:
            self.settled = True
        elif rate < self._rate * _GAIN:
            self.threads //= 2
            self.settled = True
        elif self.threads < _MOST:
            self.threads *= 2
        else:
            self.settled = True
        self._rate = rate
        self._begin(waited, nbytes)
        return self.threads

    def _begin(self, waited: float, nbytes: int) -> None:
        self._batches, self._began, self._waited, self._bytes = 0, time.perf_counter(), waited, nbytes
