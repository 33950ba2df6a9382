"""Groups of like length in a step: less padding."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shards.deal import Ints, mix

_SWEEPS: Final = 4  # more change nothing that can be measured


def sorted_by_length(code: Ints, length: Ints, shape: tuple[int, int]) -> Ints:
    """(steps, P) positions of the groups, exchanged within each class so that the groups of a step are alike.

    code, length    (steps * P,) class and length of each group, step by step

    A class keeps its places, so distinct classes stay distinct. Sweep after sweep, each class puts its shorter
    groups where steps are shorter.
    """
    steps, _ = shape
    step = np.repeat(np.arange(steps), shape[1])
    by_length = np.lexsort((length, code))
    size = step.astype(np.float64)
    seat = np.arange(len(code))
    for _ in range(_SWEEPS):
        seat[np.lexsort((size[step], code))] = by_length
        size = length[seat].reshape(shape).mean(axis=1)
    return seat.reshape(shape)


def near_in_length(length: NDArray[np.float64], key: int) -> Ints:
    """Rank of each class by its length, which counts a tenth more or less each time, so that neighbours change."""
    unit = (mix(key, np.arange(len(length))) >> np.uint64(11)) * 2.0**-53
    rank = np.empty(len(length), np.int64)
    rank[np.argsort(length * (0.9 + 0.2 * unit), kind="stable")] = np.arange(len(length))
    return rank
