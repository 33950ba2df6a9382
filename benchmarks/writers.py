"""Time to turn the same feature files into shards: `python -m pipeline build` beside three other writers.

    python benchmarks/writers.py --index music/index.xlsx --features music/features --out /data/bench \
        --peers-python peers/bin/python

`--peers-python` is an interpreter with webdataset, mosaicml-streaming and litdata (they pin other versions of shared
packages, so they have an environment of their own). Each writer runs on `--jobs` processes, makes shards of 1 GiB, and
is used as documented: webdataset's `ShardWriter` and `MDSWriter` in a loop on each process over its part of the files,
and `litdata.optimize`. For the others the time of imports is not counted, and they end with shards in the page cache;
their time until all is on the disk is given too. Ours is the whole command, reads the index, checks and checksums every
file, and waits until each shard is durable. Rounds alternate, and all files are in the page cache before each run.
Prints JSON; removes what it wrote.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PEERS = ("webdataset", "streaming", "litdata")
SHARD = 1 << 30


def ours(options: argparse.Namespace) -> float:
    """Seconds of our whole command, interpreter start and all."""
    command = [sys.executable, "-m", "pipeline", "build", "--index", options.index, "--features", options.features]
    command += ["--shards", options.out / "shards", "--jobs", options.jobs]
    began = time.perf_counter()
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def theirs(options: argparse.Namespace, writer: str) -> tuple[float, float]:
    """Seconds that one of the others says it took: until it ended, and until all was on the disk."""
    command = [options.peers_python, __file__, "--writer", writer, "--features", options.features]
    command += ["--out", options.out / "shards", "--jobs", options.jobs]
    run = subprocess.run([*map(str, command)], check=True, capture_output=True, text=True)
    written, durable = run.stdout.splitlines()[-1].split()
    return float(written), float(durable)


def prepare(features: Path) -> None:
    """Nothing waits to be written, and every file is in the page cache."""
    os.sync()
    for path in features.iterdir():
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def write(writer: str, features: Path, out: Path, jobs: int) -> None:
    """Run one of the others and print its seconds; called in the peers' environment."""
    files = sorted(map(str, features.iterdir()))
    if writer == "litdata":
        import litdata  # noqa: PLC0415

        began = time.perf_counter()
        litdata.optimize(sample, files, output_dir=str(out), num_workers=jobs, chunk_bytes=SHARD, verbose=False)
    else:
        from multiprocessing import get_context  # noqa: PLC0415

        loop = {"webdataset": tar_loop, "streaming": mds_loop}[writer]
        loop()  # a pool would start processes for ever that cannot import
        with get_context("spawn").Pool(jobs, initializer=loop) as pool:
            pool.starmap(loop, [([], out)] * jobs)  # every process is there, its imports done
            began = time.perf_counter()
            pool.starmap(loop, [(files[part::jobs], out / f"{part}") for part in range(jobs)], chunksize=1)
    written = time.perf_counter() - began
    os.sync()
    print(written, time.perf_counter() - began)


def sample(path: str) -> dict[str, Any]:
    """What every writer is given of a file."""
    import numpy as np  # noqa: PLC0415

    return {"features": np.load(path), "label": 1, "id": Path(path).stem}


def tar_loop(files: tuple[str, ...] = (), out: Path = Path()) -> None:
    """The loop of webdataset's documentation."""
    from webdataset import ShardWriter  # noqa: PLC0415

    if not files:
        return
    out.mkdir(parents=True)
    with ShardWriter(f"{out}/%05d.tar", maxsize=SHARD, maxcount=1 << 30, verbose=0) as writer:
        for number, path in enumerate(files):
            found = sample(path)
            writer.write({"__key__": f"{number:06d}", "npy": found["features"], "cls": 1, "json": {"id": found["id"]}})


def mds_loop(files: tuple[str, ...] = (), out: Path = Path()) -> None:
    """The loop of MosaicML streaming's documentation."""
    from streaming import MDSWriter  # noqa: PLC0415

    if not files:
        return
    columns = {"features": "ndarray", "label": "int", "id": "str"}
    with MDSWriter(out=str(out), columns=columns, size_limit=SHARD) as writer:
        for path in files:
            writer.write(sample(path))


def main() -> None:
    """Alternate the writers, print every time, the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=Path)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder on the disk to write to")
    parser.add_argument("--peers-python", type=Path)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--writer", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.writer:
        write(options.writer, options.features, options.out, options.jobs)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    runs: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for writer in ("headrace", *PEERS):
            prepare(options.features)
            if writer == "headrace":
                times = {"headrace": ours(options)}
            else:
                times = dict(zip((writer, f"{writer}, durable"), theirs(options, writer), strict=True))
            for name, seconds in times.items():
                runs.setdefault(name, []).append(round(seconds, 2))
            shutil.rmtree(options.out / "shards")
    medians = {name: statistics.median(times) for name, times in runs.items()}
    gigabytes = sum(path.stat().st_size for path in options.features.iterdir()) / 1e9
    report = {
        "GB": round(gigabytes, 2),
        "processes": options.jobs,
        "seconds": runs,
        "GB/s": {name: round(gigabytes / seconds, 2) for name, seconds in medians.items()},
        "times as fast as": {name: round(medians[name] / medians["headrace"], 1) for name in medians},
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
