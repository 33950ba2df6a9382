"""What a person sees during and after a build: a bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from pipeline.layout import Layout

_SECONDS_BETWEEN_LINES: Final = 5.0


@contextmanager
def progress(console: Console, title: str, total: int) -> Generator[Callable[[int], None]]:
    """Yield a function to be told the bytes done so far, out of `total`, as often as one likes."""
    if not console.is_terminal:
        yield _line_printer(console, title, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=min(done, total))


def _line_printer(console: Console, title: str, total: int) -> Callable[[int], None]:
    began = last = time.monotonic()

    def show(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _SECONDS_BETWEEN_LINES or done == 0:
            return
        last = now
        speed = done / (now - began)
        left = max(0, total - done) / speed
        console.print(
            f"{title}: {decimal(min(done, total))} of {decimal(total)}, {decimal(int(speed))}/s, {left:.0f} s left",
            highlight=False,
            soft_wrap=True,
        )

    return show


def layout_table(layout: Layout) -> Table:
    """One line a shard: what `--dry-run` prints."""
    table = Table(title=f"{len(layout.shards):,} shards, {decimal(layout.nbytes)}, {len(layout.classes):,} classes")
    table.add_column("shard")
    for name in ("samples", "classes", "size"):
        table.add_column(name, justify="right")
    table.add_column("first class")
    table.add_column("last class")
    for shard in layout.shards:
        first, last = shard.rows[0], shard.rows[-1]
        table.add_row(
            shard.name,
            f"{len(shard.rows):,}",
            f"{len(set(shard.labels)):,}",
            decimal(shard.nbytes),
            Text(first.class_name),
            Text(last.class_name),
        )
    return table
