"""Restore at every state: what must hold of an epoch that worlds of any sizes take in turns."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shards import BalancedSampler, World

MakeSampler = Callable[[World, int], BalancedSampler]  # of a rank, with P classes in its batch


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A world that takes `steps` steps of an epoch (None: to its end) before another goes on."""

    ranks: int
    classes: int
    steps: int | None


def groups_of(plans: Sequence[np.ndarray], k: int) -> Counter[tuple[int, ...]]:
    """How often each group of K rows stands in these ranks' steps."""
    return Counter(tuple(group) for plan in plans for group in plan.reshape(-1, k).tolist())


def assert_restores(make: MakeSampler, legs: Sequence[Leg], *, labels: np.ndarray, k: int, epoch: int = 0) -> None:
    """An epoch in turns: equal steps and distinct classes on all ranks, each group of the epoch once, repeats counted.

    make      a new sampler of one rank, as a restarted process makes it
    legs      the first that takes a step begins the epoch and so chooses its groups; the last must end it
    """
    first = next(leg for leg in legs if leg.steps != 0)
    unbroken = [_begun(make, World(r, first.ranks), first.classes, None, epoch) for r in range(first.ranks)]
    whole = groups_of([sampler.plan(epoch) for sampler in unbroken], k)
    planned = whole.total() - sum(sampler.repeats for sampler in unbroken)
    used: Counter[tuple[int, ...]] = Counter()
    state, repeats = None, 0
    for leg in legs:
        samplers = [_begun(make, World(r, leg.ranks), leg.classes, state, epoch) for r in range(leg.ranks)]
        begin = samplers[0].step
        plans = [_left(sampler) for sampler in samplers]
        assert len({plan.shape for plan in plans}) == 1, "equal steps on every rank"
        done = len(plans[0]) if leg.steps is None else min(leg.steps, len(plans[0]))
        for plan in plans:
            drawn = labels[plan[:, ::k]]
            assert all(len(set(step)) == leg.classes for step in drawn.tolist()), "classes of a step are distinct"
        used += groups_of([plan[:done] for plan in plans], k)
        repeats += sum(sampler.repeats for sampler in samplers)
        states = [sampler.state_dict(begin + done) for sampler in samplers]
        assert all(other == states[0] for other in states), "one state, whichever rank saves it"
        state = states[0]
    assert set(used) == set(whole), "every group of the unbroken epoch, and no other"
    assert planned <= used.total() <= planned + repeats, "what is used twice is counted"


def _left(sampler: BalancedSampler) -> np.ndarray:
    """Every batch that the sampler has left in its epoch, (steps, B)."""
    rows = [sampler.batch(step) for step in range(sampler.step, len(sampler))]
    return np.array(rows, np.int64).reshape(-1, sampler.batch_size)


def _begun(
    make: MakeSampler, world: World, classes: int, state: dict[str, object] | None, epoch: int
) -> BalancedSampler:
    sampler = make(world, classes)
    sampler.set_epoch(epoch)
    if state is not None:
        sampler.load_state_dict(state)
        sampler.set_epoch(epoch)
    return sampler
