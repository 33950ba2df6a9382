"""Wall time of `python -m pipeline build` beside `tar cf` of the same files to the same disk.

    python benchmarks/convert.py --index music/index.xlsx --features music/features --out /data/bench

Rounds alternate, ours and tar, and every run finds the page cache in the same state: all source files in it
(`--cache warm`) or none (`--cache cold`), nothing waiting to be written. Ours reads the index, checks every
file, computes checksums and waits until each shard is durable; tar does none of that and leaves its bytes in
the page cache, so the time with `sync` after it is given too. The peak memory of a worker (VmHWM: all of the process,
interpreter and libraries too) is to be under two samples + 100 MB. Prints JSON; removes what it wrote.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def prepare(features: Path, cache: str) -> None:
    """Write everything out, then bring all source files into the page cache, or none."""
    os.sync()
    for path in features.iterdir():
        with path.open("rb", buffering=0) as file:
            if cache == "cold":
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while file.read(1 << 24):
                    pass


def build(options: argparse.Namespace) -> dict[str, float]:
    """Seconds of our whole command, interpreter start and all."""
    shards = options.out / "shards"
    command = [sys.executable, "-m", "pipeline", "build", "--index", options.index, "--features", options.features]
    began = time.perf_counter()
    peak = 0.0
    with subprocess.Popen([*map(str, command), "--shards", str(shards)], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, worker_peak(process.pid))
            time.sleep(0.05)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"the build failed: status {process.returncode}")
    shutil.rmtree(shards)
    return {"headrace": seconds, "worker MB": peak}


def worker_peak(parent: int) -> float:
    """Megabytes of memory that the largest worker has had at once."""
    peak = 0
    for children in Path(f"/proc/{parent}/task").glob("*/children"):
        with suppress(OSError):  # threads and processes end while they are looked at
            for child in children.read_text().split():
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    status = Path(f"/proc/{child}/status").read_text()
                    peak = max(peak, *map(int, re.findall(r"VmHWM:\s+(\d+) kB", status)), 0)
    return peak * 1024 / 1e6


def tar(options: argparse.Namespace) -> dict[str, float]:
    """Seconds of `tar cf`, and until its bytes are on the disk."""
    archive = options.out / "files.tar"
    began = time.perf_counter()
    subprocess.run(["tar", "cf", str(archive), "-C", str(options.features), "."], check=True)
    seconds = time.perf_counter() - began
    subprocess.run(["sync", str(archive)], check=True)
    durable = time.perf_counter() - began
    archive.unlink()
    return {"tar": seconds, "tar and sync": durable}


def main() -> None:
    """Alternate the two, print every time, the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder on the disk to write to")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", choices=("warm", "cold"), default="warm")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[float]] = {}
    contestants: tuple[Callable[[argparse.Namespace], dict[str, float]], ...] = (build, tar)
    for number in range(options.rounds):
        for contestant in contestants if number % 2 == 0 else reversed(contestants):
            prepare(options.features, options.cache)
            for name, seconds in contestant(options).items():
                runs.setdefault(name, []).append(round(seconds, 2))
    peaks = runs.pop("worker MB")
    medians = {name: statistics.median(times) for name, times in runs.items()}
    sizes = [path.stat().st_size for path in options.features.iterdir()]
    gigabytes = sum(sizes) / 1e9
    report = {
        "cache": options.cache,
        "GB": round(gigabytes, 2),
        "seconds": runs,
        "GB/s": {name: round(gigabytes / seconds, 2) for name, seconds in medians.items()},
        "headrace / tar": round(medians["headrace"] / medians["tar"], 2),
        "headrace / tar and sync": round(medians["headrace"] / medians["tar and sync"], 2),
        "worker MB": max(peaks),
        "worker MB allowed": round(2 * max(sizes) / 1e6 + 100, 2),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
