"""Time and memory to open a manifest of a million rows, beside what pandas takes to read the same table.

    python benchmarks/manifest.py --rows 1000000 --out /tmp/manifest-bench

Writes one manifest (10,000 classes; once, left in --out), and opens it in processes of their own: "open" as the
trainer does at its start, "columns" with labels, offsets and frames looked at once, as a sampler does. MiB are what
peak memory grows by, the pages of the mapped file that were touched included. Prints JSON.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from shards.manifest import Manifest, write_manifest
from shards.schema import DatasetInfo

CLASSES = 10_000


def make(folder: Path, rows: int) -> None:
    """A manifest as a build of so many samples of 6 MB writes it; without shards."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.sort(np.random.default_rng(0).integers(0, CLASSES, rows))
    frames = np.random.default_rng(1).integers(10_000, 14_000, rows)
    classes = tuple(f"class {label:05d}" for label in range(CLASSES))
    columns = {
        "split": np.where(np.arange(rows) % 10 > 0, "train", "val").astype(object),
        "shard": [f"train-{row // 170:05d}.tar" for row in range(rows)],
        "offset": np.arange(rows) % 170 * 6_150_000 // 4096 * 4096,
        "nbytes": frames * 512,
        "frames": frames,
        "label": labels,
        "class": [classes[label] for label in labels],
        "item": [f"item {row // 10:07d}" for row in range(rows)],
        "id": [f"{row:016d}" for row in range(rows)],
        "source": [f"{row:016d}.npy" for row in range(rows)],
        "checksum": np.random.default_rng(2).integers(0, 1 << 63, rows).astype(np.uint64),
        "around": np.random.default_rng(3).integers(0, 1 << 63, rows).astype(np.uint64),
    }
    info = DatasetInfo(dtype="float32", frame_shape=(128,), classes=classes, options={})
    write_manifest(folder, info, columns)


def measure(what: str, folder: Path) -> dict[str, float]:
    """Seconds and MiB of one way to open it; imports are not measured."""
    before, began = _peak_mib(), time.perf_counter()
    if what == "pandas":
        with pa.memory_map(str(folder / "manifest.arrow")) as source:
            rows = len(pd.DataFrame(pa.ipc.open_file(source).read_pandas()))
    else:
        data = Manifest.open(folder)
        rows = len(data)
        if what == "columns":
            sum(int(column.sum()) for column in (data.labels, data.offsets, data.frames))
    return {"rows": rows, "seconds": round(time.perf_counter() - began, 4), "MiB": round(_peak_mib() - before, 1)}


def _peak_mib() -> float:
    # Not getrusage: its peak is inherited from the process that started this one.
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def main() -> None:
    """Open it in each way, best of three processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.out)))
        return
    if not (options.out / "dataset.json").exists():
        make(options.out, options.rows)
    results = {}
    for what in ("open", "columns", "pandas"):
        command = [sys.executable, __file__, "--out", str(options.out), "--measure", what]
        runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(3)]
        results[what] = min(runs, key=lambda run: run["seconds"])
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
