"""`python -m shards ls | show | bench`: what a dataset holds, and how fast each rank's loader delivers it."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from jsonargparse import ArgumentParser, set_parsing_settings
from rich.console import Console
from rich.table import Table

from shards.bench import run_bench
from shards.commandline import exit_status, spelled
from shards.curves import draw_curves
from shards.diagnosis import diagnose
from shards.manifest import Manifest
from shards.measure import BenchConfig, RankResult
from shards.show import ListConfig, ShowConfig, shard_table, show_lines


def main(arguments: list[str]) -> int:
    """Run one command and return its exit status."""
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(prog="python -m shards", description="Look into a dataset, and measure its loader.")
    commands = parser.add_subcommands()
    listing = ArgumentParser(description="List the shards of a dataset.")
    listing.add_class_arguments(ListConfig)
    commands.add_subcommand("ls", listing, help="list the shards of a dataset")
    showing = ArgumentParser(description="Show a sample of a dataset, or how well an epoch is mixed (--plan).")
    showing.add_class_arguments(ShowConfig)
    commands.add_subcommand("show", showing, help="show a sample, or with --plan the order of an epoch")
    bench = ArgumentParser(description="Throughput of each rank's loader, beside bare preadv of the same bytes.")
    bench.add_argument("--config", action="config", help="YAML file with these options")
    bench.add_class_arguments(BenchConfig)
    bench.add_argument("--json", type=Path | None, default=None, help="also write the figures to this file")
    bench.add_argument("--plot", type=Path | None, default=None, help="also draw GB/s by threads and ranks (PNG)")
    commands.add_subcommand("bench", bench, help="measure what each rank's loader delivers")
    options = parser.parse_args(spelled(arguments)).as_dict()
    command = options["subcommand"]
    return exit_status(lambda: _COMMANDS[command](options[command]))


def list_shards(options: dict[str, Any]) -> None:
    """Print the table of shards."""
    _console().print(shard_table(ListConfig(**options)))


def show(options: dict[str, Any]) -> None:
    """Print a sample or a plan."""
    print("\n".join(show_lines(ShowConfig(**options))))


def bench(options: dict[str, Any]) -> None:
    """Measure, print what was found and what it means, and write the files that are wanted."""
    options.pop("config")
    output, picture = options.pop("json"), options.pop("plot")
    config = BenchConfig(**options)
    results = run_bench(config)
    info = Manifest.open(config.shards).info
    _console().print(bench_table(config, results))
    print("\n" + fill(diagnose(config, results, info, len(os.sched_getaffinity(0))), 100))
    if output is not None:
        figures = {"config": asdict(config) | {"shards": str(config.shards)}, "ranks": [asdict(r) for r in results]}
        output.write_text(json.dumps(figures, indent=1))
    if picture is not None:
        draw_curves(config, picture)


def bench_table(config: BenchConfig, results: list[RankResult]) -> Table:
    """One row a rank, and their sum."""
    cache = "cold" if config.cold else "warm"
    table = Table(
        title=f"{config.shards}: batches of {config.batch_size} x at most {config.frames:,} frames, "
        f"{config.threads} threads a rank, {cache} page cache, {results[0].io} reads, {config.device}",
        caption="ceiling: the same byte ranges read by bare preadv with the same threads, in turns with the loader",
    )
    for heading in ("rank", "samples/s", "GB/s", "bytes read", "p50 ms", "p99 ms", "CPU-s/GB"):
        table.add_column(heading, justify="right")
    for heading in ("ceiling GB/s", "CPU-s/GB", "of ceiling"):
        table.add_column(heading, justify="right", style="dim")
    for r in results:
        table.add_row(
            str(r.rank),
            f"{r.samples_per_second:,.0f}",
            f"{r.gb_per_second:.2f}",
            f"{r.bytes_read_share:.3f} x",
            f"{r.p50_ms:.1f}",
            f"{r.p99_ms:.1f}",
            f"{r.cpu_seconds_per_gb:.3f}",
            f"{r.ceiling_gb_per_second:.2f}",
            f"{r.ceiling_cpu_seconds_per_gb:.3f}",
            f"{r.ratio:.2f}",
        )
    if len(results) > 1:
        table.add_section()
        rates = [sum(getattr(r, name) for r in results) for name in ("samples_per_second", "gb_per_second")]
        ceiling, ratio = sum(r.ceiling_gb_per_second for r in results), sum(r.ratio for r in results) / len(results)
        table.add_row(
            "all", f"{rates[0]:,.0f}", f"{rates[1]:.2f}", "", "", "", "", f"{ceiling:.2f}", "", f"{ratio:.2f}"
        )
    return table


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 120)


_COMMANDS: Final = {"ls": list_shards, "show": show, "bench": bench}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
