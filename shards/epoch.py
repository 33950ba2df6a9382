"""Who takes which group of an epoch, and when; also of an epoch that other worlds have begun.

Groups are numbered class by class. Only numbers are dealt here: what a group holds, nobody needs to know.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from shards.alike import near_in_length, sorted_by_length
from shards.deal import Ints, deal, deal_weights, keyed, mix, permutation, shuffled
from shards.window import deal_in_windows
from shards.world import World

Mode = Literal["class", "sample"]

_ALIKE: Final = (
    2  # times as many classes are in play as a batch has, when they are visited by length: 4 pad a tenth more
)


@final
@dataclass(frozen=True, kw_only=True)
class Segment:
    """`steps` steps of an epoch, done by `ranks` ranks with P = `classes` groups in each one's batch."""

    ranks: int
    classes: int
    steps: int


@final
@dataclass(frozen=True, kw_only=True)
class Hand:
    """One rank's steps: `groups` (steps, P) int64; `again` (steps, P) marks those that fill a place once more."""

    groups: Ints
    again: NDArray[np.bool_]


@final
@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Frames of a class's samples on average, (C,), and of the longest sample of given groups of the epoch."""

    of_classes: NDArray[np.float64]
    of_groups: Callable[[Ints], Ints]


@final
class Epoch:
    """The groups of one epoch: `counts` (C,) of each class, each at least 1.

    homes      (C,) where each class lies, from 0 on; with `window`, ranks are dealt these rather than classes
    window     homes that a rank has in play; None: all
    lengths    of what is grouped; None: length does not matter
    """

    def __init__(
        self,
        counts: Ints,
        *,
        seed: int,
        epoch: int,
        homes: Ints | None = None,
        window: int | None = None,
        lengths: Lengths | None = None,
    ) -> None:
        self._homes = np.arange(len(counts)) if homes is None or window is None else homes
        self._window = window
        self._lengths = lengths
        self._code = np.repeat(np.arange(len(counts)), counts)
        self._classes = len(counts)
        self._left = np.ones(len(self._code), np.bool_)
        self._words = seed, epoch
        self._past: tuple[int, ...] = ()

    def advance(self, segment: Segment, mode: Mode) -> None:
        """Take away what all ranks of `segment` have used."""
        done = slice(segment.steps)
        hands = [self.hand(World(rank, segment.ranks), segment.classes, mode) for rank in range(segment.ranks)]
        for hand in hands:
            self._left[hand.groups[done][~hand.again[done]]] = False
        self._past += segment.ranks, segment.classes, segment.steps

    def hand(self, world: World, classes: int, mode: Mode) -> Hand:
        """One rank's part of the groups that are left, in steps of `classes` distinct ones.

        Every rank gets as many steps as the fullest one needs, so every group is taken; a place that
        would be empty is filled by a group of the rank's own classes, once more. Where other worlds
        have begun the epoch and ranks share their classes, that may be another rank's group.
        """
        seed, epoch = self._words
        key = keyed(seed, 2, epoch, *self._past)
        left = np.flatnonzero(self._left)
        count = np.bincount(self._code[left], minlength=self._classes)
        if mode == "class":
            owner = deal_weights(np.bincount(self._homes, count).astype(np.int64), world.size, key=key)[self._homes]
            loads = np.bincount(owner, count, minlength=world.size).astype(np.int64)
            pool = np.flatnonzero(owner[self._code] == world.rank)
            own, most = np.flatnonzero(self._left[pool]), int(count.max())
        else:
            owner = deal(self._code[left], world.size, key=key)
            loads = np.bincount(owner, minlength=world.size)
            mine = left[owner == world.rank]
            pool, own = (np.arange(len(self._code)), mine) if self._past else (mine, np.arange(len(mine)))
            most = -(-int(count.max()) // world.size)
        steps = max(-(-int(loads.max()) // classes), most)
        key = keyed(seed, 3, epoch, world.rank, *self._past)
        seats, again = _seats(self._code[pool], own, (steps, classes), key, self._visits(classes))
        return self._alike(Hand(groups=pool[seats], again=again))

    def _visits(self, classes: int) -> "_Visits | None":
        """In what order all ranks go through the classes, if in any."""
        seed, epoch = self._words
        key = keyed(seed, 11, epoch, *self._past)
        if self._window is not None:
            order = permutation(int(self._homes.max()) + 1, key)
            return _Visits(unit=order[self._homes], units=self._window)
        if self._lengths is not None:
            return _Visits(unit=near_in_length(self._lengths.of_classes, key), units=_ALIKE * classes)
        return None

    def _alike(self, hand: Hand) -> Hand:
        """Groups of like length in each step, and steps of like length at the same time on all ranks."""
        if self._lengths is None or not hand.groups.size:
            return hand
        seed, epoch = self._words
        groups, again = hand.groups.reshape(-1), hand.again.reshape(-1)
        length = self._lengths.of_groups(groups)
        seat = sorted_by_length(self._code[groups], length, hand.groups.shape)
        if self._window is None:
            by_length = np.argsort(length[seat].max(axis=1), kind="stable")
            seat = seat[by_length][permutation(len(seat), keyed(seed, 12, epoch, *self._past))]
        return Hand(groups=groups[seat], again=again[seat])


@final
@dataclass(frozen=True, kw_only=True)
class _Visits:
    """Classes are visited by ascending `unit` (C,), at least `units` of them at a time."""

    unit: Ints
    units: int


def _seats(
    code: Ints, own: Ints, shape: tuple[int, int], key: int, visits: _Visits | None
) -> tuple[Ints, NDArray[np.bool_]]:
    """Deal the groups `own` to `shape` = (steps, P) places, distinct classes in each step; fill the rest.

    code    (n,) ascending, the class of each group that may fill a place
    """
    steps, _ = shape
    if not steps:
        return np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    chosen = np.concatenate([own, _top_up(code, own, shape, keyed(key, 0))])
    if visits is None:
        # Classes are laid out in a random order, or the same ones would never meet in a step.
        suit = permutation(int(code.max()) + 1, keyed(key, 1))[code[chosen]]
        order = shuffled(suit, mix(keyed(key, 2), chosen))
        step = deal(np.sort(suit), steps, key=keyed(key, 3))
    else:
        order = shuffled(code[chosen], mix(keyed(key, 2), chosen))
        step = deal_in_windows(code[chosen][order], visits.unit, shape, units=visits.units, key=keyed(key, 3))
    seated = order[shuffled(step, mix(keyed(key, 4), np.arange(len(step))))]
    return chosen[seated].reshape(shape), (seated >= len(own)).reshape(shape)


def _top_up(code: Ints, own: Ints, shape: tuple[int, int], key: int) -> Ints:
    """Choose groups for the places that `own` leaves, spread over the classes, none with more than one a step."""
    steps, classes = shape
    short = steps * classes - len(own)
    chosen: list[Ints] = []
    have = np.bincount(code)
    seated = np.bincount(code[own], minlength=len(have))
    again = np.zeros_like(have)
    by_class = shuffled(code, mix(key, np.arange(len(code))))
    first = np.cumsum(have) - have
    turn = 0
    while short > 0:
        room = np.flatnonzero((have > 0) & (seated + again < steps))
        lucky = room[permutation(len(room), keyed(key, turn))][:short]
        chosen.append(by_class[first[lucky] + again[lucky] % have[lucky]])
        again[lucky] += 1
        short -= len(lucky)
        turn += 1
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
