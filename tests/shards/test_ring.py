"""Lent memory comes back when nothing refers to it, and not before."""

import logging
import os

import numpy as np
import pytest
import torch

from shards.ring import Ring


def ring_of(slots: int, nbytes: int = 4096) -> Ring:
    return Ring(slots, nbytes)


def test_slots_begin_on_a_page() -> None:
    """O_DIRECT and page-locking need it."""
    lent = ring_of(1, 5000).lend()

    assert lent is not None
    assert lent.ctypes.data % 4096 == 0
    assert lent.nbytes == 5000


def test_any_view_keeps_the_slot() -> None:
    """A numpy view of a view, a tensor over it, or a slice of the tensor: each alone keeps the memory."""
    ring = ring_of(1)
    for keep in (
        lambda lent: lent[8:].view(np.float32)[3:],
        torch.from_numpy,
        lambda lent: torch.from_numpy(lent.view(np.float32).reshape(2, -1))[1, 5:6].view(1, 1),
        lambda lent: torch.from_numpy(lent).numpy()[1:],
        memoryview,
    ):
        kept = keep(ring.lend())
        assert ring.lend() is None
        del kept
        assert ring.lend() is not None, "free again"


def test_autograd_keeps_the_slot() -> None:
    """A tensor saved for backward is a reference like any other."""
    ring = ring_of(1)
    lent = ring.lend()
    assert lent is not None
    weight = torch.ones(1024, requires_grad=True)
    loss = (torch.from_numpy(lent.view(np.float32)) * weight).sum()
    del lent

    assert ring.lend() is None
    loss.backward()
    del loss
    assert ring.lend() is not None


def test_a_forked_child_writes_into_memory_of_its_own() -> None:
    """A loader used in a forked process does not read into the batches of its parent."""
    ring = ring_of(1)
    lent = ring.lend()
    assert lent is not None
    lent[:] = 1

    child = os.fork()
    if child == 0:
        lent[:] = 2
        os._exit(0)
    os.waitpid(child, 0)

    assert lent.max() == 1


def test_keeping_all_slots_allocates_another_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing kept is overwritten; the warning has the count and what to do."""
    ring = ring_of(2)
    with caplog.at_level(logging.WARNING):
        kept = [ring.lend_another() for _ in range(4)]

    for number, lent in enumerate(kept):
        lent[:] = number
    assert [int(lent[0]) for lent in kept] == [0, 1, 2, 3]
    assert ring.slots == 4
    assert len(caplog.records) == 1
    assert "all 2 batch buffers are kept by the caller" in caplog.text


def test_every_slot_is_prepared_and_forgotten() -> None:
    """On CUDA that is page-locking; a slot added later is not left out, and none outlives its last view."""
    prepared: list[int] = []
    forgotten: list[int] = []
    ring = Ring(1, 4096, lambda address, _nbytes: prepared.append(address), forgotten.append)

    kept = [ring.lend_another(), ring.lend_another()]
    assert len(prepared) == 2
    del ring
    assert forgotten == []
    del kept
    assert sorted(forgotten) == sorted(prepared)
