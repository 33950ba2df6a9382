"""Which batches are being read: as many as there is memory for, begun by whoever gives memory back."""

import threading
from collections import deque
from typing import Protocol, final

from shards.readahead import Work


class Begin(Protocol):
    """Begins to read the batch of a step. Without `wait` it gives None where no memory is free."""

    def __call__(self, step: int, *, wait: bool) -> Work | None:
        """The batch of `step`, being read."""
        ...


@final
class Schedule:
    """The batches of `steps`, in order, at most `ahead` of them begun and not taken. Safe to share by threads.

    The training thread takes batches; reading threads begin more of them when the training lets go of one, so that no
    memory lies idle while a step is computed.
    """

    def __init__(self, steps: range, *, ahead: int, begin: Begin) -> None:
        self._coming = deque(steps)
        self._ahead: deque[Work] = deque()
        self._most = ahead
        self._begin = begin
        self._lock = threading.Lock()
        self._error: Exception | None = None

    def fill(self) -> None:
        """Begin what there is memory for; an error waits for the training thread."""
        with self._lock:
            try:
                while self._coming and len(self._ahead) < self._most and self._begin_next(wait=False):
                    pass
            except Exception as error:  # noqa: BLE001 - whatever it is, `take` raises it where it is seen
                self._error = error

    def take(self) -> Work:
        """The next batch, read or being read."""
        with self._lock:
            if self._error is not None:
                raise self._error
            if not self._ahead:
                self._begin_next(wait=True)
            work = self._ahead.popleft()
        self.fill()
        return work

    def _begin_next(self, *, wait: bool) -> bool:
        work = self._begin(self._coming[0], wait=wait)
        if work is None:
            return False
        self._coming.popleft()
        self._ahead.append(work)
        return True
