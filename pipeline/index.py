"""The index: one row a sample, every label as it was typed, every file found. Frozen.

Rows read = rows kept + rows rejected, always; rows at the end that are blank in all columns are counted
apart. A row that cannot be used is never dropped silently: it is in `rejects` with sheet, row and reason.
"""

import gc
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pipeline.files import list_files
from pipeline.label import Labelled, notes_on, read_labels
from pipeline.matching import FileSearch, Row
from pipeline.pattern import DEFAULT_PATTERN, Pattern
from pipeline.rejects import Reject
from pipeline.table import WORKBOOKS, Table, check_is_there, filled, open_table
from pipeline.workbook import open_workbook
from shards.errors import DataError

__all__ = ["Columns", "Index", "Row", "read_index"]

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names of the index's columns."""

    cls: str = "a_cls"
    """Column of the class, what the model learns to tell apart."""
    item: str = "a_item"
    """Column of the item; samples of one item never meet in two splits."""
    id: str = "a_id"
    """Column of the sample's id; its file is FEATURES/<id>.npy, or what --pattern says."""
    split: str | None = "split"
    """Column of the split (train, val, test or a name of your own), used if it is there."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """What an index says, matched with the files on disk.

    sheets      those that were read, or the name of a file that has none
    rows        samples that can be used, in the order of the sheets and their rows
    rejects     rows that cannot, each with its reason
    rows_read   len(rows) + len(rejects)
    blank_rows  rows after the last one that are blank in all columns
    unused      files that no row names
    notes       oddities that are no errors, for people to read
    """

    source: Path
    features: Path
    sheets: tuple[str, ...]
    rows: tuple[Row, ...]
    rejects: tuple[Reject, ...]
    rows_read: int
    blank_rows: int
    unused: tuple[str, ...]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.rows) + len(self.rejects) != self.rows_read:
            raise RuntimeError(
                f"[internal error] {self.source}: {self.rows_read} rows read, but {len(self.rows)} kept "
                f"and {len(self.rejects)} rejected; please report this"
            )

    @property
    def counts(self) -> str:
        """What became of the rows, in words."""
        return f"{self.rows_read:,} rows read, {len(self.rows):,} kept, {len(self.rejects):,} rejected" + (
            f", {self.blank_rows:,} blank at the end" if self.blank_rows else ""
        )

    def reject(self, rejects: Iterable[Reject]) -> Self:
        """The same index with these of its rows moved to the rejects."""
        more = {reject[:2]: reject for reject in rejects}
        rows = tuple(row for row in self.rows if (row.sheet, row.row) not in more)
        return replace(self, rows=rows, rejects=(*self.rejects, *more.values()))

    def to_pandas(self) -> "pd.DataFrame":
        """The kept rows as a frame of text and integer columns named like the fields of `Row`."""
        import pandas as pd  # noqa: PLC0415 - slow to import, and only wanted here

        return pd.DataFrame.from_records(self.rows, columns=list(Row._fields))


def read_index(
    path: Path,
    features: Path,
    *,
    columns: Columns | None = None,
    sheets: Sequence[str] | None = None,
    fill_merged: bool = False,
    encoding: str | None = None,
    pattern: str = DEFAULT_PATTERN,
) -> Index:
    """Read the index at `path` and find its files in `features`, with one listing of that folder.

    sheets        of a workbook; None: all visible ones that have the columns
    fill_merged   give class and item cells that are merged downwards to every row that they span
    encoding      of a .csv; None: UTF-8, or what its first bytes say
    pattern       a file's path below `features`
    """
    columns, placed = columns or Columns(), Pattern(pattern)
    with _without_collector(), ThreadPoolExecutor(1) as pool:
        # The workbook's parser leaves Python free meanwhile.
        listing = pool.submit(list_files, features, placed.ending, deep=placed.deep)
        tables, notes = _open(path, columns, sheets, encoding)
        labelled = [_labels(table, columns, fill_merged=fill_merged) for table in tables]
        read = sum(len(part.good) + len(part.rejects) for part in labelled)
        if read == 0:
            names = " and ".join(f"{table.name!r}" for table in tables)
            raise DataError(f"{path}: sheet {names} has a header and no rows below it; fill it in")
        paths = [[placed.path(*labels[1:4]) for labels in part.good] for part in labelled]
        deep = not placed.deep and any("/" in path for of_table in paths for path in of_table)
        files = list_files(features, placed.ending, deep=True) if deep else listing.result()
        search = FileSearch(features, placed, files)
        for part, of_table in zip(labelled, paths, strict=True):
            search.add(part, of_table)
        rows, rejects = search.end()
        early = [reject for part in labelled for reject in part.rejects]
        return Index(
            source=path,
            features=features,
            sheets=tuple(table.name for table in tables),
            rows=tuple(rows),
            rejects=(*early, *rejects),
            rows_read=read,
            blank_rows=sum(part.blank for part in labelled),
            unused=search.unused(early),
            notes=(*notes, *notes_on(labelled), *search.notes),
        )


def _open(
    path: Path, columns: Columns, sheets: Sequence[str] | None, encoding: str | None
) -> tuple[list[Table], list[str]]:
    """The tables of an index and notes on them; each has the columns."""
    wanted = [columns.cls, columns.item, columns.id]
    if len(set(wanted)) < len(wanted) or columns.split in wanted:
        raise DataError(f"{path}: one column cannot be two things: {wanted}, split {columns.split!r}")
    check_is_there(path, sheets)
    if path.suffix.lower() in WORKBOOKS:
        tables, notes = open_workbook(path, wanted, sheets)
    else:
        tables, notes = [open_table(path, wanted, columns.split, encoding)], []
    without = [table for table in tables if columns.split not in table.header]
    if without and (len(without) < len(tables) or columns.split not in {None, Columns.split}):
        where = f"sheet {without[0].name!r} has {list(without[0].header)}"
        raise DataError(f"{path}: no column {columns.split!r} for the split: {where}; add it to every sheet or to none")
    return tables, notes


def _labels(table: Table, columns: Columns, *, fill_merged: bool) -> Labelled:
    picks = [table.header.index(name) for name in (columns.cls, columns.item, columns.id)]
    if fill_merged:
        table = filled(table, picks[:2], picks[2])
    if columns.split in table.header:
        picks.append(table.header.index(columns.split))
    return read_labels(table, picks)


@contextmanager
def _without_collector() -> Generator[None]:
    """Hundreds of thousands of small tuples hold no cycles, yet the collector looks them all over, again
    and again: half of the time for 400,000 rows.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
