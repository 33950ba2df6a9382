"""Time to read a large Excel index: `pipeline.read_index` beside `pandas.read_excel`, in one run.

    python benchmarks/index.py --rows 400000 --out /tmp/index-bench

Makes a workbook of `--rows` rows and as many empty feature files (once; left in --out). Ours reads the
labels, checks every one and finds every file in one listing; pandas only reads the cells. Every
measurement is a process of its own, so that peak memory is its own too; imports are not measured. Prints JSON.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
from openpyxl import Workbook

from pipeline.index import read_index
from pipeline.label import read_labels
from pipeline.workbook import open_workbook


def make(folder: Path, rows: int) -> None:
    """Write OUT/index.xlsx (400 classes, text ids with zeros in front) and OUT/features/*.npy, empty."""
    features = folder / "features"
    features.mkdir(parents=True, exist_ok=True)
    book = Workbook(write_only=True)
    sheet = book.create_sheet("index")
    sheet.append(["a_cls", "a_item", "a_id"])
    for row in range(rows):
        sheet.append([f"class {row % 400:04d}", f"item {row % 40_000:06d}", f"{row:08d}"])
        (features / f"{row:08d}.npy").touch()
    book.save(folder / "index.xlsx")


def measure(reader: str, folder: Path) -> dict[str, float | int]:
    """Seconds, CPU-seconds and peak memory of one reader, imports included in none."""
    if reader == "headrace":
        before, began, cpu = _peak_mib(), time.perf_counter(), time.process_time()
        rows = len(read_index(folder / "index.xlsx", folder / "features").rows)
    elif reader == "headrace, labels alone":
        before, began, cpu = _peak_mib(), time.perf_counter(), time.process_time()
        tables, _ = open_workbook(folder / "index.xlsx", ["a_cls", "a_item", "a_id"], None)
        rows = len(read_labels(tables[0], [0, 1, 2]).good)
    else:
        before, began, cpu = _peak_mib(), time.perf_counter(), time.process_time()
        rows = len(pd.read_excel(folder / "index.xlsx", engine="openpyxl"))
    seconds = time.perf_counter() - began
    cpu = time.process_time() - cpu
    return {"rows": rows, "seconds": round(seconds, 2), "CPU-s": round(cpu, 2), "MiB": round(_peak_mib() - before)}


def _peak_mib() -> float:
    # Not getrusage: its peak is inherited from the process that started this one.
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def main() -> None:
    """Run the three readers one after another and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--out", type=Path, required=True, help="folder for the workbook and the files")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options.out)))
        return
    if not (options.out / "index.xlsx").exists():
        make(options.out, options.rows)
    results = {}
    for reader in ("headrace", "headrace, labels alone", "pandas, openpyxl"):
        command = [sys.executable, __file__, "--out", str(options.out), "--measure", reader]
        results[reader] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    ours = results["headrace"]
    results["held"] = {"seconds under 15": ours["seconds"] < 15, "MiB under 1024": ours["MiB"] < 1024}
    slow = results["pandas, openpyxl"]
    for reader in ("headrace", "headrace, labels alone"):
        faster = {unit: round(slow[unit] / results[reader][unit], 1) for unit in ("seconds", "CPU-s")}
        results[f"{reader}: times faster"] = faster
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
