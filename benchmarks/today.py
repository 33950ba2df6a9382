"""The script that people have today, for `epoch.py`: one `.npy` a sample, DataLoader workers, classes from pandas, DDP.

    torchrun --nproc-per-node 2 benchmarks/today.py --index index.xlsx --features features --epochs 4

Kept as such scripts are, with the two things that make them faster and that many leave out: workers that persist,
and only the crop read from a mapped file (`--mmap`).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from tiny import Tiny
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler


class Samples(Dataset[tuple[torch.Tensor, int]]):
    """np.load, a random crop, padding."""

    def __init__(self, table: pd.DataFrame, features: Path, frames: int, mode: str | None) -> None:
        self.paths = [features / f"{name}.npy" for name in table["a_id"]]
        self.labels = table["a_cls"].astype("category").cat.codes.tolist()
        self.frames, self.mode = frames, mode

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        array = np.load(self.paths[row], mmap_mode=self.mode)
        first = np.random.randint(max(1, len(array) - self.frames + 1))  # noqa: NPY002 - as such scripts do
        crop = np.array(array[first : first + self.frames])
        if len(crop) < self.frames:
            crop = np.pad(crop, ((0, self.frames - len(crop)), (0, 0)))
        return torch.from_numpy(crop), self.labels[row]


class PerClass(Sampler[list[int]]):
    """Batches of `batch / samples` classes, `samples` rows of each, drawn by pandas."""

    def __init__(self, table: pd.DataFrame, *, batch: int, samples: int, steps: int, rank: int, ranks: int) -> None:
        self.table, self.samples, self.steps = table, samples, steps
        self.classes, self.rank, self.ranks = batch // samples, rank, ranks
        self.epoch = 0

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        groups = self.table.groupby("a_cls")
        rng = np.random.default_rng(self.epoch)
        for step in range(self.steps):
            names = rng.choice(list(groups.groups), self.classes * self.ranks, replace=False)
            own = names[self.rank :: self.ranks]
            yield [
                row
                for name in own
                for row in groups.get_group(name).sample(self.samples, random_state=self.epoch * 1000 + step).index
            ]


def main() -> None:
    """Train for some epochs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mmap", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    table = pd.read_excel(options.index, dtype=str)
    samples = Samples(table, options.features, options.frames, "r" if options.mmap else None)
    sampler = PerClass(table, batch=32, samples=4, steps=options.steps, rank=rank, ranks=ranks)
    loader = DataLoader(samples, batch_sampler=sampler, num_workers=options.workers, persistent_workers=True)
    width = np.load(samples.paths[0], mmap_mode="r").shape[1]
    model = DistributedDataParallel(Tiny((width,), table["a_cls"].nunique()))
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(options.epochs):
        sampler.epoch = epoch
        for features, labels in loader:
            loss = nn.functional.cross_entropy(model(features), labels.long())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.save(model.module.state_dict(), "/dev/null")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
