"""What takes the place of a sample that cannot be read: another of its class, the same one on every run."""

import logging
import threading
from collections.abc import Iterator
from typing import Final, final

from shards.deal import Ints, mix
from shards.errors import DataError
from shards.manifest import Selection

_LOG: Final = logging.getLogger(__name__)
_KEY: Final = 6


@final
class Substitutes:
    """Other samples of the class for those that are damaged; names each damaged one, once. Safe to share by threads."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self.chosen: dict[int, int] = {}  # damaged row -> the row that took its place last
        self.count = 0  # places filled so
        self._lock = threading.Lock()

    def instead_of(self, row: int, batch: Ints) -> Iterator[int]:
        """Other rows of the class, in an order that depends on `row` alone, those not in `batch` first."""
        same = self._selection.rows[self._selection.labels == self._selection.data.labels[row]]
        others = same[same != row]
        if not len(others):
            return
        begin = int(mix(_KEY, row)[0] % len(others))
        order = [*others[begin:].tolist(), *others[:begin].tolist()]
        taken = set(batch.tolist())
        yield from (other for other in order if other not in taken)
        yield from (other for other in order if other in taken)

    def note(self, row: int, instead: int, error: DataError) -> None:
        """Count a place that was filled, and say so when its sample is met for the first time."""
        with self._lock:
            self.count += 1
            first = row not in self.chosen
            self.chosen[row] = instead
        if first:
            data = self._selection.data
            _LOG.warning("%s; row %d (id %r) of its class takes its place", error, instead, data.id(instead))
