"""Training steps a second with the loader, beside the same training on one batch that is there already.

    python benchmarks/training.py --shards data/music/shards [--models cnn conformer] [--frames 1000] [--rounds 3]

One process, CPU, one torch thread a core; forward, backward and AdamW of `--steps` steps a turn. Sides take turns; the
ratio is the median over rounds, and the share of time that a step waited for data is the loader's own count.
"""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from shards import BalancedSampler, Crop, Manifest
from shards.loader import Loader
from shards.measure import FirstSteps
from shards.transfer import Batch
from train.models import CNN, Conformer
from train.objective import Objective

MODELS = {"cnn": CNN, "conformer": Conformer}


def seconds_of(objective: Objective, optimizer: torch.optim.Optimizer, batches: Iterable[Batch]) -> float:
    """Time to train on all of them."""
    began = time.perf_counter()
    for batch in batches:
        objective(batch.features, batch.lengths, batch.labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return time.perf_counter() - began


def main() -> None:
    """Print one line a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--frames", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    data = Manifest.open(options.shards)
    for name in options.models:
        sampler = BalancedSampler(data.split("train"), batch_size=32, samples_per_class=4)
        loader = Loader(data, FirstSteps(sampler, options.steps), crop=Crop(frames=options.frames))
        model = MODELS[name](frame_shape=data.info.frame_shape, classes=len(data.classes))
        objective = Objective(model)
        optimizer = torch.optim.AdamW(objective.parameters())
        cached = [next(iter(loader))] * options.steps
        seconds_of(objective, optimizer, cached)
        ratios, waits = [], []
        for _ in range(options.rounds):
            alone = seconds_of(objective, optimizer, cached)
            before = loader.wait_seconds
            loaded = seconds_of(objective, optimizer, loader)
            ratios.append(alone / loaded)
            waits.append((loader.wait_seconds - before) / loaded)
        print(
            f"{name}: {np.median(ratios):.3f} of the steps/s on a cached batch ({options.steps / alone:.2f}/s); "
            f"{np.median(waits):.2%} of the time waiting for data"
        )


if __name__ == "__main__":
    main()
