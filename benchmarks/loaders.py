"""The same crops through this loader, bare preadv, and DataLoader with np.load on the .npy files, in one run.

    python benchmarks/loaders.py --shards data/shards --features features [--rounds 5] [--json FILE]

Every side delivers the same batches: 32 crops of 10,000 frames of the same samples (the plan of the
first epoch), page cache warm. Sides take turns within a round; a ratio is the median over rounds.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader, Dataset

from shards import BalancedSampler, Crop, Manifest
from shards.ceiling import Ceiling
from shards.loader import Loader
from shards.measure import FirstSteps


class NpyFiles(Dataset[torch.Tensor]):
    """One np.load a sample and a slice: what scripts do today. `mmap` reads the crop alone."""

    def __init__(self, crops: list[tuple[Path, int, int]], mode: str | None) -> None:
        self.crops = crops
        self.frames = max(count for _, _, count in crops)
        self.mode = mode

    def __len__(self) -> int:
        return len(self.crops)

    def __getitem__(self, position: int) -> torch.Tensor:
        path, first, count = self.crops[position]
        crop = np.load(path, mmap_mode=self.mode)[first : first + count]
        if count == self.frames:
            return torch.from_numpy(np.array(crop))
        padded = np.zeros((self.frames, *crop.shape[1:]), crop.dtype)
        padded[:count] = crop
        return torch.from_numpy(padded)


def drain(batches: Loader | DataLoader[torch.Tensor]) -> None:
    """Take every batch and touch it once."""
    for batch in batches:
        features = batch if isinstance(batch, torch.Tensor) else batch.features
        features[:, 0].sum()


def sides(options: argparse.Namespace) -> tuple[dict[str, Callable[[], None]], int]:
    """Name -> one turn; and the bytes of a turn."""
    data = Manifest.open(options.shards)
    sampler = BalancedSampler(data.split("train"), batch_size=32, samples_per_class=4)
    steps = FirstSteps(sampler, options.steps)
    loader = Loader(data, steps, crop=Crop(frames=options.frames), threads=options.threads)
    reads = [read for step in range(len(steps)) for read in loader.byte_ranges(step)]
    ceiling = Ceiling(reads, threads=options.threads, places=5 * 32)
    rows = np.concatenate([steps.batch(step) for step in range(len(steps))])
    frame = data.info.frame_bytes
    crops = [
        (options.features / f"{data.id(row)}.npy", int((offset - data.offsets[row]) // frame), nbytes // frame)
        for row, (_, offset, nbytes) in zip(rows.tolist(), reads, strict=True)
    ]

    def torch_loader(mode: str | None) -> Callable[[], None]:
        loader = DataLoader(
            NpyFiles(crops, mode), batch_size=32, num_workers=2, persistent_workers=True, prefetch_factor=4
        )
        return lambda: drain(loader)

    return {
        "headrace": lambda: drain(loader),
        "bare preadv": lambda: ceiling.run() and None,
        "DataLoader + np.load": torch_loader(None),
        "DataLoader + np.load(mmap_mode='r')": torch_loader("r"),
    }, sum(nbytes for _, _, nbytes in reads)


def main() -> None:
    """Print one row a side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    turns, nbytes = sides(options)
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(options.rounds + 1):
        for name, turn in turns.items():
            began = time.perf_counter()
            turn()
            if number:  # the first round warms the page cache, threads and workers
                rates[name].append(nbytes / (time.perf_counter() - began) / 1e9)
    table = Table(title=f"batches of 32 x {options.frames:,} frames, {nbytes / 1e9:.1f} GB a turn, page cache warm")
    for heading in ("loader", "GB/s", "headrace is"):
        table.add_column(heading, justify="left" if heading == "loader" else "right")
    ours = np.array(rates["headrace"])
    ratios = {name: float(np.median(ours / np.array(rate))) for name, rate in rates.items()}
    for name, rate in rates.items():
        table.add_row(name, f"{np.median(rate):.2f}", f"{ratios[name]:.2f} x")
    Console(width=100).print(table)
    if options.json:
        options.json.write_text(json.dumps({"rates_gb_per_second": rates, "headrace_over": ratios}, indent=1))


if __name__ == "__main__":
    main()
