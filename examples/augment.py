"""A transform in the reading threads: SpecAugment's masks, drawn anew for every crop, the same on every run.

    python examples/augment.py data/demo/shards

numpy lets other threads run while it works on large arrays, so a few operations a crop cost the training nothing.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shards import BalancedSampler, Crop, Manifest
from shards.loader import Loader


def masked(frames: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Up to a tenth of the frames and an eighth of the bins set to the mean (Park et al. 2019)."""
    mean = frames.mean(dtype=np.float32)
    for axis, most in ((0, len(frames) // 10), (1, frames.shape[1] // 8)):
        width = int(rng.integers(0, most + 1))
        begin = int(rng.integers(0, frames.shape[axis] - width + 1))
        np.moveaxis(frames, axis, 0)[begin : begin + width] = mean
    return frames


def main(folder: str) -> int:
    """Read one epoch of masked crops; returns the number of batches."""
    data = Manifest.open(folder)
    sampler = BalancedSampler(data.split("train"), batch_size=8, samples_per_class=2, seed=1)
    loader = Loader(data, sampler, crop=Crop(frames=100), transform=masked)
    count = sum(1 for _ in loader)
    print(f"{count} batches")
    return count


if __name__ == "__main__":
    main(sys.argv[1])
