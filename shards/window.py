"""Classes in turns: an epoch that visits its classes a few units at a time, with distinct classes in every step.

A unit is what is visited together: the classes of a shard, or classes of like length.
"""

import numpy as np

from shards.deal import Ints, deal, keyed, mix, permutation, shuffled


def deal_in_windows(code: Ints, visit: Ints, shape: tuple[int, int], *, units: int, key: int) -> Ints:
    """Step of each card, as `deal` gives it, but each class's cards within the steps of one window.

    code     (n,) class of each card; n = steps * P, and no class has more cards than there are steps
    visit    (C,) unit of each class; units are visited in ascending order
    units    that a window has at least

    A window's steps are full of its cards, but for fewer than P that wait for the next: one each of those classes
    that have most. Every window has as many steps as its largest class has cards, or it takes in more units.
    """
    _, places = shape
    window = _windows(np.bincount(code, minlength=len(visit)), visit, units, places)[code]
    by_window = shuffled(window, mix(keyed(key, 0), np.arange(len(code))))
    ends = np.cumsum(np.bincount(window))
    step, begin, waiting = np.empty(len(code), np.int64), 0, np.zeros(0, np.int64)
    for number, own in enumerate(np.split(by_window, ends[:-1])):
        cards = np.concatenate([waiting, own])
        waits = _one_of_each(code[cards], len(cards) % places)
        waiting, cards = cards[waits], np.delete(cards, waits)
        steps = len(cards) // places
        # Classes in a random order, or the same ones would never meet in a step.
        suit = permutation(len(visit), keyed(key, 1, number))[code[cards]]
        order = np.argsort(suit, kind="stable")
        step[cards[order]] = begin + deal(suit[order], steps, key=keyed(key, 2, number))
        begin += steps
    return step


def _windows(count: Ints, visit: Ints, units: int, places: int) -> Ints:
    """Window of each class: enough units for `units`, and for as many full steps as the largest class has cards."""
    kinds, unit = np.unique(visit, return_inverse=True)
    cards = np.bincount(unit, count, minlength=len(kinds)).astype(np.int64)
    most = np.zeros(len(kinds), np.int64)
    np.maximum.at(most, unit, count)
    bounds, begin = [0], 0
    for end in range(1, len(kinds) + 1):
        if end - begin >= units and cards[begin:end].sum() // places >= max(1, most[begin:end].max()):
            bounds.append(end)
            begin = end
    if bounds[-1] < len(kinds):  # what is left is no window of its own
        bounds = [*bounds[:-1], len(kinds)] if len(bounds) > 1 else [0, len(kinds)]
    while len(bounds) > 2 and cards[bounds[-2] :].sum() // places < most[bounds[-2] :].max():
        del bounds[-2]
    return (np.searchsorted(bounds, np.arange(len(kinds)), side="right") - 1)[unit]


def _one_of_each(code: Ints, wanted: int) -> Ints:
    """Positions of `wanted` cards, each of another class: of those that have most cards."""
    kinds, first, count = np.unique(code, return_index=True, return_counts=True)
    return first[np.lexsort((kinds, -count))[:wanted]]
