"""Memory for batches: allocated once, lent out, and back when nothing refers to it any more."""

import logging
import mmap
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

_LOG: Final = logging.getLogger(__name__)


@final
class _Slot:
    """Page-aligned anonymous memory of exactly `nbytes`."""

    def __init__(self, nbytes: int) -> None:
        # Private: a forked child must not read into the batches of its parent.
        self.memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = np.frombuffer(self.memory, np.uint8).ctypes.data
        self.nbytes = nbytes


@final
class _Loan:
    """The owner that numpy and torch keep alive for every view of a lent slot.

    Views of views all have this object as their base, so its end is the end of the last of them.
    """

    def __init__(self, slot: _Slot, ring: "Ring") -> None:
        self._slot = slot
        self._ring = ring
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (slot.nbytes,),
            "data": (slot.address, False),
        }

    def __del__(self) -> None:
        self._ring.take_back(self._slot)


@final
class Ring:
    """`slots` pieces of memory of `nbytes` bytes each.

    prepare    called with (address, nbytes) of each new one
    forget     called with the address before one is given back to the system
    """

    def __init__(
        self,
        slots: int,
        nbytes: int,
        prepare: Callable[[int, int], None] = lambda _address, _nbytes: None,
        forget: Callable[[int], None] = lambda _address: None,
    ) -> None:
        self.nbytes = nbytes
        self.slots = 0
        self._prepare = prepare
        self._forget = forget
        # Called when a slot is free again, in any thread, also by the garbage collector: it may only queue something.
        self.freed: Callable[[], None] | None = None
        self._free: deque[_Slot] = deque()
        self._warned = False
        for _ in range(slots):
            self._allocate()

    def lend(self) -> NDArray[Any] | None:
        """A free slot as a (nbytes,) uint8 array, or None; it is free again when no view of it is left."""
        try:
            return np.asarray(_Loan(self._free.popleft(), self))
        except IndexError:
            return None

    def lend_another(self) -> NDArray[Any]:
        """Like `lend`, but allocate one slot more if all are kept by someone; says so, once."""
        if not self._free:
            if not self._warned:
                self._warned = True
                _LOG.warning(
                    "all %d batch buffers are kept by the caller; allocating one more of %.1f MB. Copy what "
                    "must be kept (batch.features.clone()), or memory grows with it",
                    self.slots,
                    self.nbytes / 1e6,
                )
            self._allocate()
        lent = self.lend()
        return self.lend_another() if lent is None else lent

    def take_back(self, slot: _Slot) -> None:
        """Nothing refers to a lent slot any more."""
        self._free.append(slot)
        if self.freed is not None:
            self.freed()

    def _allocate(self) -> None:
        slot = _Slot(self.nbytes)
        self._prepare(slot.address, slot.nbytes)
        # Runs while the slot's memory is still mapped; at the end of the process the system does it.
        weakref.finalize(slot, self._forget, slot.address).atexit = False
        self.slots += 1
        self._free.append(slot)
