"""A picture of throughput by threads and by ranks."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from shards.atomic import atomic_file
from shards.bench import run_bench
from shards.measure import BenchConfig

_THREADS: Final = (1, 2, 4, 8, 16)


def draw_curves(config: BenchConfig, path: Path) -> None:
    """Measure each number of threads with one rank and with all of them, and write a PNG to `path`."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - half a second, for those who want a picture

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for ranks in sorted({1, config.ranks}):
        every = [run_bench(replace(config, ranks=ranks, threads=threads)) for threads in _THREADS]
        loader = [sum(r.gb_per_second for r in results) for results in every]
        bare = [sum(r.ceiling_gb_per_second for r in results) for results in every]
        [line] = axes.plot(_THREADS, loader, marker="o", label=f"loader, {ranks} rank(s)")
        axes.plot(_THREADS, bare, linestyle="--", color=line.get_color(), label=f"bare reads, {ranks} rank(s)")
    axes.set_xscale("log", base=2)
    axes.set_xticks(_THREADS, labels=[str(threads) for threads in _THREADS])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("reading threads of each rank")
    axes.set_ylabel("GB/s, all ranks together")
    axes.set_title(f"{config.shards}: {config.frames:,} frames, {'cold' if config.cold else 'warm'} page cache")
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic_file(path) as file:
        figure.savefig(file, format="png", dpi=150)
