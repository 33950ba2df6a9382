"""The index: one row a sample, every label as it was typed, every file found. Frozen.

Rows read = rows kept + rows rejected, always; rows at the end that are blank in all columns are counted
apart. A row that cannot be used is never dropped silently: it is in `rejects` with sheet, row and reason.
"""

import gc
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from pipeline.features import SUFFIX
from pipeline.files import list_files
from pipeline.label import Labels, read_labels
from pipeline.rejects import NO_FILE, Reject
from pipeline.table import open_table
from shards.errors import DataError

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
    """Column of the sample's id; its file is FEATURES/<id>.npy."""
    split: str | None = "split"
    """Column of the split (train, val, test or a name of your own), used if it is there."""


class Row(NamedTuple):
    """One sample: `path` is that of its file below the feature folder, `row` the sheet's own row number."""

    class_name: str
    item: str
    id: str
    split: str | None
    path: str
    row: int


@dataclass(frozen=True, kw_only=True)
class Index:
    """What an index says, matched with the files on disk.

    rows        samples that can be used, in the sheet's order
    rejects     rows that cannot, each with its reason
    rows_read   len(rows) + len(rejects)
    blank_rows  rows after the last one that are blank in all columns
    unused      files that no row names
    notes       oddities that are no errors, for people to read
    """

    source: Path
    features: Path
    sheet: str
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
        more = {reject.row: reject for reject in rejects}
        rows = tuple(row for row in self.rows if row.row not in more)
        return replace(self, rows=rows, rejects=(*self.rejects, *more.values()))

    def to_pandas(self) -> "pd.DataFrame":
        """The kept rows as a frame of text and integer columns named like the fields of `Row`."""
        import pandas as pd  # noqa: PLC0415 - slow to import, and only wanted here

        return pd.DataFrame.from_records(self.rows, columns=list(Row._fields))


def read_index(path: Path, features: Path, *, columns: Columns | None = None, sheet: str | None = None) -> Index:
    """Read the index at `path` and find its files in `features`, with one listing of that folder."""
    columns = columns or Columns()
    wanted = [columns.cls, columns.item, columns.id]
    if len(set(wanted)) < len(wanted) or columns.split in wanted:
        raise DataError(f"{path}: one column cannot be two things: {wanted}, split {columns.split!r}")
    with _without_collector(), ThreadPoolExecutor(1) as pool:
        listing = pool.submit(list_files, features, SUFFIX, deep=False)  # the workbook's parser leaves Python free
        table = open_table(path, wanted, columns.split, sheet)
        if columns.split is not None and columns.split in table.header:
            wanted.append(columns.split)
        elif columns.split not in {None, Columns.split}:
            raise DataError(f"{path}: no column {columns.split!r} for the split; found {list(table.header)}")
        labelled = read_labels(table, [table.header.index(name) for name in wanted])
        if not labelled.good and not labelled.rejects:
            raise DataError(f"{path}: sheet {table.name!r} has a header and no rows below it; fill it in")
        deep = any("/" in labels[3] for labels in labelled.good)
        files = list_files(features, SUFFIX, deep=True) if deep else listing.result()
        rows, more = _find_files(labelled.good, table.name, features, files)
        named = {_name(reject.id) for reject in labelled.rejects}
        return Index(
            source=path,
            features=features,
            sheet=table.name,
            rows=tuple(rows),
            rejects=(*labelled.rejects, *more),
            rows_read=len(labelled.good) + len(labelled.rejects),
            blank_rows=labelled.blank,
            unused=tuple(sorted(file for name, file in files.items() if name not in named)),
            notes=tuple(labelled.notes),
        )


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


def _find_files(
    labelled: list[Labels], sheet: str, features: Path, files: dict[str, str]
) -> tuple[list[Row], list[Reject]]:
    """The rows whose file is there and named once; the others as rejects. Takes from `files` what it finds."""
    rows: list[Row] = []
    odd: list[Labels] = []
    take = files.pop
    for labels in labelled:
        number, class_name, item, id_, split = labels
        path = take(id_ if id_.endswith(SUFFIX) else id_ + SUFFIX, None)
        if path is None:
            odd.append(labels)
        else:
            rows.append(Row(class_name, item, id_, split, path, number))
    if not odd:
        return rows, []
    taken = {_name(row.id): row for row in rows}
    rejects: list[Reject] = []
    for number, class_name, item, id_, split in odd:
        first = taken.get(_name(id_))
        if first is None:
            rejects.append(Reject(sheet, number, id_, _why_missing(id_, features, files)))
        elif (first.class_name, first.item, first.split) == (class_name, item, split):
            rejects.append(Reject(sheet, number, id_, f"id {id_!r} repeats row {first.row}; delete one of them"))
        else:
            there, here = f"{first.class_name!r}/{first.item!r}", f"{class_name!r}/{item!r}"
            what = f"id {id_!r} is {here} in row {number} and {there} in row {first.row}; decide which is right"
            rejects += [Reject(sheet, number, id_, what), Reject(sheet, first.row, first.id, what)]
    contradicted = {reject.row for reject in rejects}
    return [row for row in rows if row.row not in contradicted], list({r.row: r for r in rejects}.values())


def _name(id_: str) -> str:
    return id_ if id_.endswith(SUFFIX) else id_ + SUFFIX


def _why_missing(id_: str, features: Path, files: dict[str, str]) -> str:
    name = _name(id_)
    if name.startswith("/") or ".." in Path(name).parts:
        return f"id {id_!r} leaves the feature folder; use a path inside {features}"
    padded = [f"{'0' * zeros}{name}" for zeros in range(1, 12) if f"{'0' * zeros}{name}" in files]
    if padded:
        return f"{NO_FILE} {features / name}, but {padded[0]} is there: make the id column text to keep its zeros"
    return f"{NO_FILE} {features / name}"
