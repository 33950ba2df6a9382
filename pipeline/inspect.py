"""What an index and a feature folder hold, as it was understood, before anything is written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from pipeline.index import Index
from pipeline.plan import Corpus, CorpusConfig, read_corpus
from pipeline.rejects import NO_FILE, listing, plain
from pipeline.report import Report, write_report
from pipeline.summary import SPREAD_HEAD, Summary

_MOST_NAMES = 5  # of the files that no row names


@dataclass(frozen=True, kw_only=True)
class InspectConfig(CorpusConfig):
    """Print what an index and its feature files hold, and write no shards; exit 1 if a row cannot be used."""

    report: Path | None = None
    """HTML file to write it to as well, with histograms and all rejects."""


def inspect_corpus(config: InspectConfig, console: Console | None = None) -> Index:
    """Print what `build` would make shards of, and return the index with all its rejects."""
    console = console or Console()
    corpus = read_corpus(config)
    index, summary = corpus.index, _summary(corpus)
    facts = _facts(config, corpus, summary)
    notes = list(index.notes)
    if config.features_from is not None:
        notes.append("lengths and bytes are estimated: only a build calls --features-from for every file")
    console.print(_table(facts.items()))
    console.print(_table([(what, *spread.cells()) for what, spread in summary.spreads.items()], SPREAD_HEAD))
    for note in notes:
        console.print(f"note: {plain(note)}", style="yellow", markup=False, soft_wrap=True)
    if index.rejects:
        console.print(f"{len(index.rejects):,} rows cannot be used:", style="red", highlight=False)
        console.print(listing(index.rejects), markup=False, highlight=False, soft_wrap=True)
    if config.report is not None:
        title = f"Inspection of {index.source.name}"
        report = Report(title=title, facts=facts, summary=summary, notes=notes, rejects=index.rejects)
        write_report(config.report, report)
        console.print(f"report: {config.report}", markup=False, highlight=False, soft_wrap=True)
    return index


def _summary(corpus: Corpus) -> Summary:
    rows = corpus.index.rows
    return Summary.of(
        class_names=[row.class_name for row in rows],
        items=[row.item for row in rows],
        splits=[row.split for row in rows if row.split is not None],
        frames=[feature.frames for feature in corpus.features],
        nbytes=[feature.nbytes for feature in corpus.features],
    )


def _facts(config: InspectConfig, corpus: Corpus, summary: Summary) -> dict[str, str]:
    """What was understood, by what it is."""
    index, columns = corpus.index, config.columns
    missing = sum(reject.reason.startswith(NO_FILE) for reject in index.rejects)
    strays = ", ".join(index.unused[:_MOST_NAMES]) + (", ..." if len(index.unused) > _MOST_NAMES else "")
    return {
        "index": f"{index.source}",
        "sheets": ", ".join(index.sheets),
        "class, item, id": f"columns {columns.cls}, {columns.item}, {columns.id}",
        "split": f"column {columns.split}" if summary.split_names else "no column; build deals samples out",
        "rows": index.counts,
        "classes": f"{len(summary.classes):,}",
        "items": f"{int(summary.class_items.sum()):,}",
        "features": f"{config.features / config.pattern}",
        "stored as": f"{corpus.form or 'nothing'}, {decimal(int(summary.nbytes.sum()))}",
        "files missing": f"{missing:,}",
        "files without a row": f"{len(index.unused):,}" + (f": {strays}" if strays else ""),
    }


def _table(lines: Iterable[Sequence[str]], head: Sequence[str] = ()) -> Table:
    """Names in the first column, numbers to the right if there is a heading; no text is taken for markup."""
    table = Table(show_header=bool(head), box=None)
    for number, name in enumerate(head or ("", "")):
        table.add_column(name, justify="right" if head and number else "left", overflow="fold")
    for line in lines:
        table.add_row(*(Text(plain(cell)) for cell in line))
    return table
