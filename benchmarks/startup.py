"""A manifest of 400,000 rows: seconds to the first batch, and anonymous memory over epochs.

    python benchmarks/startup.py --shards data/music/shards --out /data/bench [--rows 400000]

The rows are those of a real dataset over and over, in 10,000 classes, so that what is read is real. A fresh process
opens the manifest, makes sampler and loader, and takes the first batch; then `--epochs` epochs are begun and read for
20 batches each, and the memory of the process is looked at after each of them. Page cache warm.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from shards import BalancedSampler, Crop, Manifest
from shards.loader import Loader
from shards.manifest import write_manifest


def repeated(source: Manifest, folder: Path, rows: int, classes: int) -> None:
    """A manifest of `rows` rows over the same files."""
    kept = np.resize(source.split("train").rows, rows)
    label = np.sort(np.arange(rows) % classes)
    table = source.table.take(kept)
    columns = {name: table.column(name).to_pylist() for name in table.schema.names}
    columns |= {
        "label": label,
        "class": [f"class {number:05d}" for number in label.tolist()],
        "item": [f"item {number // 2}" for number in range(rows)],
        "id": [f"sample {number}" for number in range(rows)],
    }
    names = tuple(f"class {number:05d}" for number in range(classes))
    info = replace(source.info, classes=names, container="raw", root=str(source.root.resolve()))
    write_manifest(folder, info, columns)


def anonymous_mb() -> float:
    """Anonymous memory of this process that is resident."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) / 1e3


def measure(folder: Path, epochs: int) -> None:
    """Print the figures of this process."""
    began = time.perf_counter()
    data = Manifest.open(folder)
    sampler = BalancedSampler(data.split("train"), batch_size=32, samples_per_class=4)
    loader = Loader(data, sampler, crop=Crop(frames=10_000))
    made = time.perf_counter()
    next(iter(loader))
    first = time.perf_counter()
    memory = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for step, _ in enumerate(loader):
            if step == 20:
                break
        memory.append(anonymous_mb())
    print(json.dumps({"made, s": made - began, "first batch, s": first - made, "anonymous MB": memory}))


def main() -> None:
    """Build the manifest once, then measure a few fresh processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.out, options.epochs)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    repeated(Manifest.open(options.shards), options.out, options.rows, 10_000)
    for _ in range(options.rounds):
        command = [sys.executable, __file__, "--measure", "--out", str(options.out), "--epochs", str(options.epochs)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
