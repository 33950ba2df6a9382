"""The global generators a model may draw from (torch, numpy, random), per rank: seeded, saved and restored."""

import random
from typing import Any

import numpy as np
import torch

from shards import World


def seed_rank(seed: int, world: World) -> None:
    """Seed this rank for dropout and augmentation: ranks must differ here, or they augment alike."""
    own = seed * 1_000_003 + world.rank
    torch.manual_seed(own)
    random.seed(own)
    np.random.seed(own % 2**32)  # noqa: NPY002 - the global generator is what a user's model may draw from


def random_state(device: torch.device) -> dict[str, Any]:
    """State of this rank's generators, in tensors and plain values."""
    version, words, gauss = random.getstate()
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - as above
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "random": [version, list(words), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), *rest],
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Go on from what `random_state` gave on this rank."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
    version, words, gauss = state["random"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), *rest))  # noqa: NPY002 - as above
