"""The same crops through this loader, bare preadv, and other loaders in their own formats, in one run.

    python benchmarks/loaders.py --features features --out /data/bench [--peers-python peers/bin/python]
        [--samples 256] [--frames 10000] [--batch 32] [--threads 4] [--rounds 3] [--json FILE]

Takes `--samples` of the `.npy` files in `--features` (random numbers if there is no such folder), writes them once in
every format below `--out` (kept, so that a second run need not), and delivers all of them as batches of random crops in
random order, page cache warm. Each side is a process of its own, stopped with its workers while others take their turn;
a ratio is the median over rounds.
`--peers-python` is an interpreter with the other libraries (which pin other versions of shared packages); without it
there are those of torch.
"""

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peers import PEERS, Task

OURS = "headrace"
BARE = "bare preadv"


def random_samples(options: argparse.Namespace) -> None:
    """Files of random numbers where there are none: `--samples` of `--frames` frames."""
    options.features.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(options.samples):
        np.save(options.features / f"{number:07d}.npy", rng.standard_normal((options.frames, 128), np.float32))


def shards_of(options: argparse.Namespace, files: list[Path]) -> Path:
    """Our shards of these files, built once: sixteen classes, as the order does not matter here."""
    folder = options.out / OURS
    if (folder / "shards" / "dataset.json").exists():
        return folder / "shards"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "index.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["a_cls", "a_item", "a_id", "split"])
        rows.writerows([[f"class {n % 16}", path.stem, path.stem, "train"] for n, path in enumerate(files)])
    command = [sys.executable, "-m", "pipeline", "build", "--index", folder / "index.csv"]
    command += ["--features", options.features, "--shards", folder / "shards", "--shard-mb", "256"]
    subprocess.run([*map(str, command)], check=True, stdout=subprocess.DEVNULL)
    return folder / "shards"


def our_turns(options: argparse.Namespace, folder: Path) -> dict[str, Callable[[], int]]:
    """One turn of this loader, and of bare reads of the same ranges."""
    from shards import BalancedSampler, Crop, Manifest  # noqa: PLC0415
    from shards.ceiling import Ceiling  # noqa: PLC0415
    from shards.loader import Loader  # noqa: PLC0415
    from shards.measure import FirstSteps  # noqa: PLC0415

    data = Manifest.open(folder)
    sampler = BalancedSampler(data.split("train"), batch_size=options.batch, samples_per_class=4, class_weighting=1.0)
    steps = FirstSteps(sampler, options.samples // options.batch)
    loader = Loader(data, steps, crop=Crop(frames=options.frames), threads=options.threads, io="buffered")
    reads = [read for step in range(len(steps)) for read in loader.byte_ranges(step)]
    bare = Ceiling(reads, threads=options.threads, places=loader.slots * options.batch)

    def drain() -> int:
        count = 0
        for batch in loader:
            batch.features[0, 0].sum()
            count += len(batch.labels)
            del batch  # as docs/PERFORMANCE.md says
        return count

    return {OURS: drain, BARE: lambda: bare.run().samples}


def serve(turn: Callable[[], int], passes: int) -> None:
    """Take a turn for every line of input; say seconds and samples."""
    print("ready", flush=True)
    for _ in sys.stdin:
        turn()  # warms the page cache, from which others may have pushed this side's files, and the workers
        began = time.perf_counter()
        samples = sum(turn() for _ in range(passes))
        print(time.perf_counter() - began, samples, flush=True)


class Side:
    """A process that takes turns."""

    def __init__(self, python: str, name: str, arguments: list[str]) -> None:
        command = [python, __file__, "--side", name, *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.rates: list[float] = []
        while (line := self._line()) != "ready":
            print(line, file=sys.stderr)
        self._signal(signal.SIGSTOP)

    def turn(self) -> None:
        """Samples a second of one turn more."""
        if self.process.stdin is None:
            raise RuntimeError("no pipe")
        self._signal(signal.SIGCONT)
        time.sleep(0.5)
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        seconds, samples = self._line().split()
        self._signal(signal.SIGSTOP)
        self.rates.append(int(samples) / float(seconds))

    def end(self) -> None:
        """It has no more turns."""
        self._signal(signal.SIGCONT)
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(60)

    def _signal(self, number: int) -> None:
        """Stop, or let go on, this side with all its workers: some are never idle."""
        os.killpg(self.process.pid, number)

    def _line(self) -> str:
        line = self.process.stdout.readline() if self.process.stdout is not None else ""
        if not line:
            raise RuntimeError(f"a side ended early, with status {self.process.wait()}")
        return line.strip()


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--peers-python")
    parser.add_argument("--only", nargs="*", help="names of some of the sides")
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--passes", type=int, default=3, help="over all samples, in one turn")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    return parser.parse_args()


def take_part(options: argparse.Namespace, files: list[Path]) -> None:
    """Be one side, in its own process."""
    if options.side in (OURS, BARE):
        serve(our_turns(options, options.out / OURS / "shards")[options.side], options.passes)
        return
    write, read = PEERS[options.side]
    folder = options.out / write.__name__.removesuffix("_write")
    task = Task(files=files, frames=options.frames, batch=options.batch, threads=options.threads, folder=folder)
    if not (folder / "whole").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write(task)
        (folder / "whole").touch()
    serve(read(task), options.passes)


def chosen(options: argparse.Namespace) -> list[str]:
    """Names of the sides that can take part."""
    peers = [name for name in PEERS if options.peers_python or name.startswith("DataLoader")]
    return [name for name in (OURS, BARE, *peers) if not options.only or name in options.only]


def report(options: argparse.Namespace, rates: dict[str, list[float]], crop_bytes: int) -> None:
    """Print one row a side."""
    from rich.console import Console  # noqa: PLC0415 - the others' environment may not have it
    from rich.table import Table  # noqa: PLC0415

    ours = np.array(rates[OURS])
    title = f"batches of {options.batch} x {options.frames:,} frames, {crop_bytes / 1e6:.2f} MB each, page cache warm"
    table = Table(title=title)
    for heading in ("loader", "samples/s", "GB/s", "headrace is"):
        table.add_column(heading, justify="left" if heading == "loader" else "right")
    figures = {}
    for name, own in rates.items():
        rate, ratio = float(np.median(own)), float(np.median(ours / np.array(own)))
        figures[name] = {"samples_per_second": own, "headrace_is": ratio}
        table.add_row(name, f"{rate:,.0f}", f"{rate * crop_bytes / 1e9:.2f}", f"{ratio:.2f} x")
    Console(width=100).print(table)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


def main() -> None:
    """Let the sides take turns."""
    options = arguments()
    if not options.features.exists():
        random_samples(options)
    files = sorted(options.features.rglob("*.npy"))[: options.samples]
    if options.side is not None:
        take_part(options, files)
        return
    shards_of(options, files)
    sides = {}
    for name in chosen(options):
        python = sys.executable if name in (OURS, BARE) or not options.peers_python else options.peers_python
        print(f"starting {name}", file=sys.stderr)
        try:
            sides[name] = Side(python, name, sys.argv[1:])
        except RuntimeError as error:
            print(f"{name}: {error}", file=sys.stderr)
    for _ in range(options.rounds):
        for side in sides.values():
            side.turn()
    for side in sides.values():
        side.end()
    first = np.load(files[0], mmap_mode="r")
    report(options, {name: side.rates for name, side in sides.items()}, options.frames * first[0].nbytes)


if __name__ == "__main__":
    main()
