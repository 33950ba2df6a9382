"""What was made of what, as one page for people: `report.html`, complete in itself, without a script.

The same input gives the same page but for what stands between TIMES, which tells of one run.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from rich.filesize import decimal

from pipeline.chart import histogram, throughput
from pipeline.features import Form
from pipeline.index import Index
from pipeline.rejects import Reject, in_order, plain
from pipeline.summary import SPREAD_HEAD, Summary
from pipeline.values import NO_LOSS, CastLoss
from shards.atomic import atomic_file
from shards.schema import DatasetInfo

REPORT_FILE: Final = "report.html"
TIMES: Final = ("<!-- times -->", "<!-- /times -->")
_MOST_CLASSES: Final = 20  # at each end of the list of classes
_MOST_REJECTS: Final = 10_000  # about 2 MB of page; rejects.csv has all
_MOST_POINTS: Final = 400


@final
class Run:
    """One run of a build: when it was, how long it took, what it wrote.

    points    (second, bytes read by then), thinned out as they grow, so that days take no more room than minutes
    """

    def __init__(self) -> None:
        self.began = datetime.now().astimezone()
        self.seconds = 0.0
        self.shards = self.nbytes = 0
        self.points: list[tuple[float, int]] = []
        self._start = time.monotonic()

    def watched(self, show: Callable[[int], None]) -> Callable[[int], None]:
        """The function `show`, which is told the bytes read so far, with every call noted."""

        def note(done: int) -> None:
            self.points.append((time.monotonic() - self._start, done))
            if len(self.points) > _MOST_POINTS:
                del self.points[1:-1:2]
            show(done)

        return note

    def end(self, shards: int, nbytes: int) -> None:
        """The run has written so many shards of so many bytes in all."""
        self.seconds = time.monotonic() - self._start
        self.shards, self.nbytes = shards, nbytes

    def __str__(self) -> str:
        speed = self.nbytes / self.seconds / 1e6
        return f"{decimal(self.nbytes)} written in {self.seconds:.1f} s, {speed:,.0f} MB/s"


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a page says.

    facts    what was read, in the order in which it is shown
    loss     what storing as another type has cost; nothing if that was not done
    """

    title: str
    facts: Mapping[str, str]
    summary: Summary
    notes: Sequence[str]
    rejects: Sequence[Reject]
    loss: CastLoss = NO_LOSS
    run: Run | None = None


def report_of_build(
    *,
    info: DatasetInfo,
    index: Index,
    notes: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
    loss: CastLoss,
    run: Run,
) -> Report:
    """What a build has made: `columns` as in the manifest, `notes` and `loss` from before and while writing."""
    summary = Summary.of(
        class_names=columns["class"],
        items=columns["item"],
        splits=columns["split"],
        frames=columns["frames"],
        nbytes=columns["nbytes"],
    )
    form, shards = Form(info.dtype, info.frame_shape), len(set(columns["shard"]))
    stored = f"{len(summary):,} samples, {decimal(int(summary.nbytes.sum()))}, {form}, in {shards:,} shards"
    options = {name: f"{value}" for name, value in info.options.items() if value is not None and "rows_" not in name}
    empty = sorted(set(info.classes) - set(summary.classes))
    return Report(
        title=f"Shards of {index.source.name}",
        facts={"rows": index.counts, "stored": stored, **options},
        summary=summary,
        notes=[*notes, *(f"class {name!r} has no sample left; it keeps its label" for name in empty)],
        rejects=index.rejects,
        loss=loss,
        run=run,
    )


def write_report(path: Path, report: Report) -> None:
    """Write the page as a whole or not at all."""
    with atomic_file(path) as file:
        file.write(page(report).encode())


def page(report: Report) -> str:
    """The page as HTML; every text from outside is escaped where it is put in a cell."""
    parts = (
        f"<h1>{_text(report.title)}</h1>",
        _table(report.facts.items(), kind="text"),
        _table([(what, *spread.cells()) for what, spread in report.summary.spreads.items()], SPREAD_HEAD),
        _classes(report.summary),
        _lengths(report.summary),
        _splits(report.summary),
        _cast(report.loss) if report.loss.values else "",
        _section("Notes", _list(report.notes)) if report.notes else "",
        _rejects(report.rejects),
        "" if report.run is None else _times(report.run),
    )
    return f"{_HEAD.replace('TITLE', _text(report.title))}{chr(10).join(parts)}\n</body></html>\n"


def _times(run: Run) -> str:
    began = f"{run.began:%Y-%m-%d %H:%M:%S %z}"
    written = _table([("began", began), ("shards written", f"{run.shards:,}"), ("throughput", f"{run}")], kind="text")
    return f"{TIMES[0]}{_section('This run', written, throughput(run.points))}{TIMES[1]}"


def _classes(summary: Summary) -> str:
    order = np.argsort(-summary.class_sizes, kind="stable")
    shown = (
        order if len(order) <= 2 * _MOST_CLASSES else np.concatenate([order[:_MOST_CLASSES], order[-_MOST_CLASSES:]])
    )
    sizes, items = summary.class_sizes, summary.class_items
    lines = [(summary.classes[label], f"{sizes[label]:,}", f"{items[label]:,}") for label in shown]
    if len(shown) < len(order):
        lines.insert(_MOST_CLASSES, (f"... {len(order) - len(shown):,} classes of sizes between", "", ""))
    return _section(
        "Classes",
        histogram(sizes, unit="samples", of="classes"),
        histogram(items, unit="items", of="classes"),
        f"<details><summary>Classes by size</summary>{_table(lines, ('class', 'samples', 'items'))}</details>",
    )


def _lengths(summary: Summary) -> str:
    return _section(
        "Lengths",
        histogram(summary.frames, unit="frames", of="samples"),
        histogram(summary.nbytes, unit="bytes", of="samples", show=decimal),
    )


def _splits(summary: Summary) -> str:
    if not summary.parts:
        return _section("Splits", "<p>None yet: the index has no split column.</p>")
    lines = [(part.name, *(f"{count:,}" for count in part[1:-1]), decimal(part.nbytes)) for part in summary.parts]
    return _section("Splits", _table(lines, ("split", "samples", "classes", "items", "frames", "size")))


def _cast(loss: CastLoss) -> str:
    lines = (
        ("values cast", f"{loss.values:,}"),
        ("largest absolute error", f"{loss.absolute:.3g}"),
        ("largest relative error", f"{loss.relative:.3g}"),
        ("overflowed to infinity", f"{loss.overflowed:,}"),
        ("underflowed to zero", f"{loss.underflowed:,}"),
    )
    return _section("Cast", _table(lines))


def _rejects(rejects: Sequence[Reject]) -> str:
    if not rejects:
        return _section("Rejects", "<p>None: every row is used.</p>")
    lines = [(reject.sheet, f"{reject.row}", reject.id, reject.reason) for reject in in_order(rejects)[:_MOST_REJECTS]]
    more = len(rejects) - len(lines)
    return _section(
        "Rejects",
        f"<p>{len(rejects):,} rows are left out.</p>",
        _table(lines, Reject._fields, kind="text"),
        f"<p>... and {more:,} more.</p>" if more else "",
    )


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{title}</h2>{''.join(parts)}</section>"


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>"


def _table(lines: Iterable[Sequence[str]], head: Sequence[str] = (), *, kind: str = "numbers") -> str:
    """A table whose first column names what the others say."""
    heading = f"<tr>{''.join(f'<th>{_text(cell)}</th>' for cell in head)}</tr>" if head else ""
    rows = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in line)}</tr>\n" for line in lines)
    return f'<div><table class="{kind}">{heading}{rows}</table></div>'


def _text(text: str) -> str:
    return escape(plain(text))


# The policy forbids what the page does not do: run a script, ask the network for anything.
_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>TITLE</title>
<style>
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1b1f24; --faint: #5a6570; --rule: #d5dae0; --bar: #2563eb }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171b; --ink: #e8ebee; --faint: #9aa5b1; --rule: #39414a; --bar: #6ea8fe }
}
body { background: var(--ground); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem }
h1, h2 { line-height: 1.2; overflow-wrap: anywhere }
h2 { margin-top: 2.5rem }
div { overflow-x: auto }
table { margin: 1rem 0; border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--rule); padding: .2rem 1.2rem .2rem 0; text-align: left; vertical-align: top }
.numbers :is(th, td):not(:first-child) { text-align: right }
.text td { overflow-wrap: anywhere; white-space: pre-wrap }
th, figcaption, summary { color: var(--faint); font-weight: normal }
figure { margin: 1.5rem 0 }
svg { width: 100%; max-width: 48rem }
svg rect { fill: var(--bar) }
svg line { stroke: var(--rule) }
svg text { fill: var(--faint); font: 12px system-ui, sans-serif }
</style></head><body>
"""
