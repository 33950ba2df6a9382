"""An epoch of the script that people have today, and of `python -m train`: seconds, first batch, memory.

    python benchmarks/epoch.py --index music/index.xlsx --features music/features --shards data/music/shards
        --out /data/bench [--ranks 2] [--epochs 5] [--rounds 3] [--json FILE]

Both sides train the same model that costs next to nothing (`tiny.py`) with DDP on batches of 32 crops of 10,000 frames,
8 classes of 4, as many steps an epoch; `today.py` is the script, with np.load and with mapped files. Times are those of
rank 0's forward passes: an epoch is from its first to the first of the next, checkpoint and all; the first
batch is from the start of torchrun. Memory is the largest sum of all processes' proportional set sizes and of shared
memory, looked at five times a second: what two processes share counts once. Sides take turns; page cache warm.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from shards import BalancedSampler, Manifest, World


def family(root: int) -> list[int]:
    """A process and all that descend from it."""
    found = [root]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                found += [int(child) for child in task.read_text().split()]
            except OSError:
                continue
    return found


def shared_mb() -> float:
    """Shared memory of the whole machine: a batch that waits between two processes is mapped by neither."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Shmem:")) / 1e3


def memory_mb(root: int) -> float:
    """Proportional set size, but for shared memory, of a process and all that descend from it."""
    total = 0
    for pid in family(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_File:")))
    return total / 1e3


def measured(command: list[str], times: Path, steps: int) -> dict[str, float]:
    """Run one side to its end."""
    times.unlink(missing_ok=True)
    environment = os.environ | {"TINY_TIMES": str(times), "OMP_NUM_THREADS": "1", "PYTHONPATH": "."}
    began, peak, shared = time.time(), 0.0, shared_mb()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None:
        peak = max(peak, memory_mb(process.pid) + shared_mb() - shared)
        time.sleep(0.2)
    if process.returncode:
        raise RuntimeError(process.stderr.read() if process.stderr is not None else "")
    starts = np.array([float(line) for line in times.read_text().split()])[::steps]
    epochs = np.diff(starts)
    return {"first batch, s": starts[0] - began, "epoch, s": float(np.median(epochs)), "memory, MB": peak}


def sides(options: argparse.Namespace, steps: int) -> dict[str, list[str]]:
    """The commands."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(options.ranks)]
    today = [*torchrun, "benchmarks/today.py", "--index", options.index, "--features", options.features]
    today += ["--steps", steps, "--epochs", options.epochs]
    ours = [*torchrun, "-m", "train", "--device", "cpu", "--cpu-threads", 1, "--model", "benchmarks.tiny.Tiny"]
    ours += ["--shards", options.shards, "--run-folder", options.out / "run", "--epochs", options.epochs]
    ours += ["--frames", 10_000, "--batch-size", 32, "--samples-per-class", 4, "--eval-split", "none"]
    commands = {"headrace": ours, "today's script": today, "today's script, mmap": [*today, "--mmap"]}
    return {name: [*map(str, command)] for name, command in commands.items()}


def main() -> None:
    """Take turns, print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("index", "features", "shards", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    data = Manifest.open(options.shards)
    world = World(0, options.ranks)
    steps = len(BalancedSampler(data.split("train"), batch_size=32, samples_per_class=4, world=world))
    runs: dict[str, list[dict[str, float]]] = {}
    for number in range(options.rounds + 1):
        for name, command in sides(options, steps).items():
            shutil.rmtree(options.out / "run", ignore_errors=True)
            figures = measured(command, options.out / "times", steps)
            if number:  # the first round warms the page cache
                runs.setdefault(name, []).append(figures)
    for name, own in runs.items():
        for figure in own[0]:
            values = np.array([run[figure] for run in own])
            ours = np.array([run[figure] for run in runs["headrace"]])
            print(f"{name:<22} {figure:<16} {np.median(values):10.2f}   {np.median(values / ours):6.2f} x headrace's")
    if options.json:
        options.json.write_text(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
