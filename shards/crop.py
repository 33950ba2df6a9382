"""Which frames of each sample a batch takes, and what changes them on their way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from shards.deal import Ints, mix
from shards.errors import ConfigError

Where = Literal["random", "centre", "even", "whole"]

# Is given frames and random bits of its own, gives back as many frames of the same type.
Transform = Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]


@final
@dataclass(frozen=True, kw_only=True)
class Crop:
    """Take `frames` frames of a sample; a shorter one is taken whole and padded with zeros.

    where    "random": anywhere, anew each epoch. "centre": the middle. "even": `count` crops of each
             sample, evenly spaced from its first frame to its last. "whole": all frames, padded to
             the longest of the batch; `frames` must be None
    count    crops of each sample, side by side in the batch; more than 1 only with "even"
    """

    frames: int | None
    where: Where = "random"
    count: int = 1

    def __post_init__(self) -> None:
        if (self.frames is None) != (self.where == "whole"):
            raise ConfigError(
                f'crop of {self.frames} frames, where="{self.where}": "whole" takes None, the rest a number'
            )
        if self.frames is not None and self.frames < 1:
            raise ConfigError(f"crop of {self.frames} frames: at least 1 is needed")
        if self.count < 1 or (self.count > 1 and self.where != "even"):
            raise ConfigError(f'{self.count} crops of a sample, where="{self.where}": only "even" takes several')

    def spans(self, lengths: Ints, *, key: int, slot: int = 0) -> tuple[Ints, Ints]:
        """First frame and number of frames of each crop, each (n * count,) int64.

        lengths    (n,) frames of the samples
        key, slot  a random crop is a function of `key` and its sample's slot, counted from `slot`
        """
        if self.frames is None:
            return np.zeros_like(lengths), lengths
        taken = np.minimum(lengths, self.frames)
        room = lengths - taken  # starts go from 0 to `room`, both included
        if self.where == "random":
            unit = (mix(key, slot + np.arange(len(lengths))) >> np.uint64(11)) * 2.0**-53
            return np.floor(unit * (room + 1)).astype(np.int64), taken
        if self.count == 1:
            return room // 2, taken
        even = room[:, None] * np.arange(self.count) // (self.count - 1)
        return even.reshape(-1), np.repeat(taken, self.count)

    def longest(self, lengths: Ints) -> int:
        """Frames of the longest crop that samples of these lengths can give."""
        return int(lengths.max()) if self.frames is None else self.frames


def transform_frames(transform: Transform, frames: NDArray[Any], *, key: int) -> None:
    """Change `frames` in place, with random bits that are a function of `key`."""
    changed = transform(frames, np.random.default_rng(key))
    if changed.shape != frames.shape or changed.dtype != frames.dtype:
        raise TypeError(
            f"transform: made {changed.dtype}{list(changed.shape)} out of {frames.dtype}{list(frames.shape)}; it must "
            "keep type and shape (a change of length is a matter of Crop)"
        )
    frames[...] = changed
