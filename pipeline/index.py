"""The index: one row a sample, every label as it was typed, every file found. Frozen.

Rows read = rows kept + rows rejected, always; rows at the end that are blank in all columns are counted
apart. A row that cannot be used is never dropped silently: it is in `rejects` with sheet, row and reason.
"""

import gc
import unicodedata
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from sys import intern
from typing import TYPE_CHECKING, NamedTuple, Self

from pipeline.features import SUFFIX
from pipeline.files import list_files
from pipeline.label import BadCellError, label_of
from pipeline.rejects import Reject
from pipeline.table import Table, explain, open_table
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
    notes       oddities that are no errors, for people to read
    """

    source: Path
    features: Path
    sheet: str
    rows: tuple[Row, ...]
    rejects: tuple[Reject, ...]
    rows_read: int
    blank_rows: int
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.rows) + len(self.rejects) != self.rows_read:
            raise RuntimeError(
                f"[internal error] {self.source}: {self.rows_read} rows read, but {len(self.rows)} kept "
                f"and {len(self.rejects)} rejected; please report this"
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


# (row number, class, item, id, split)
Labelled = list[tuple[int, str, str, str, str | None]]


def read_index(path: Path, features: Path, *, columns: Columns | None = None, sheet: str | None = None) -> Index:
    """Read the index at `path` and find its files in `features`, with one listing of that folder."""
    columns = columns or Columns()
    wanted = [columns.cls, columns.item, columns.id]
    if len(set(wanted)) < len(wanted) or columns.split in wanted:
        raise DataError(f"{path}: one column cannot be two things: {wanted}, split {columns.split!r}")
    table = open_table(path, wanted, columns.split, sheet)
    if columns.split is not None and columns.split in table.header:
        wanted.append(columns.split)
    elif columns.split not in {None, Columns.split}:
        raise DataError(f"{path}: no column {columns.split!r} for the split; found {list(table.header)}")
    with _without_collector():
        return _match(path, features, table, [table.header.index(name) for name in wanted])


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


def _match(path: Path, features: Path, table: Table, picks: Sequence[int]) -> Index:
    labelled, rejects, blank = read_labels(table, picks)
    if not labelled and not rejects:
        raise DataError(f"{path}: sheet {table.name!r} has a header and no rows below it; fill it in")
    deep = any("/" in labels[3] for labels in labelled)
    rows, more = _find_files(labelled, table.name, features, list_files(features, SUFFIX, deep=deep))
    return Index(
        source=path,
        features=features,
        sheet=table.name,
        rows=tuple(rows),
        rejects=(*rejects, *more),
        rows_read=len(labelled) + len(rejects),
        blank_rows=blank,
        notes=tuple(_notes(row.class_name for row in rows)),
    )


def read_labels(table: Table, picks: Sequence[int]) -> tuple[Labelled, list[Reject], int]:
    """(row number, labels of the picked columns) of every good row, the rejects, and trailing blank rows."""
    good: Labelled = []
    bad: list[tuple[int, Sequence[object]]] = []
    for number, cells in table.rows:
        try:
            class_name, item, id_, *split = [label_of(cells[pick]) for pick in picks]
            good.append((number, intern(class_name), intern(item), id_, split[0] if split else None))
        except (BadCellError, IndexError):
            bad.append((number, cells))
    faults = {number: _faults(cells, picks) for number, cells in bad}
    blanks = [(row, pick) for row, found in faults.items() for pick, what in found.items() if what == "blank"]
    for (row, pick), what in (explain(table, blanks) if blanks else {}).items():
        faults[row][pick] = what
    empty = {row for row, found in faults.items() if len(found) == len(picks) and set(found.values()) == {"blank"}}
    last = max((row for row in (*faults, *(number for number, *_ in good[-1:])) if row not in empty), default=0)
    id_of = {number: _shown(cells, picks[2]) for number, cells in bad}
    rejects = [
        Reject(table.name, row, id_of[row], _sentence(table, found, blank=row in empty))
        for row, found in faults.items()
        if row < last or row not in empty
    ]
    return good, rejects, len(faults) - len(rejects)


def _faults(cells: Sequence[object], picks: Sequence[int]) -> dict[int, str]:
    """What is wrong with each picked cell of a bad row, by its position."""
    found: dict[int, str] = {}
    for pick in picks:
        try:
            label_of(cells[pick] if pick < len(cells) else None)
        except BadCellError as error:
            found[pick] = str(error)
    return found


def _sentence(table: Table, found: dict[int, str], *, blank: bool) -> str:
    if blank:
        return "the row is blank, with rows below it; delete it or fill it in"
    return "; ".join(f"{table.header[pick]} is {what}" for pick, what in found.items())


def _shown(cells: Sequence[object], pick: int) -> str:
    return str(cells[pick]) if pick < len(cells) else ""


def _find_files(
    labelled: Labelled, sheet: str, features: Path, files: dict[str, str]
) -> tuple[list[Row], list[Reject]]:
    """The rows whose file is there and named once; the others as rejects. Takes from `files` what it finds."""
    rows: list[Row] = []
    odd: Labelled = []
    for labels in labelled:
        number, class_name, item, id_, split = labels
        path = files.pop(_name(id_), None)
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
        return f"no file {features / name}, but {padded[0]} is there: make the id column text to keep its zeros"
    return f"no file {features / name}"


def _notes(classes: Iterable[str]) -> Iterable[str]:
    """Class names that differ only in case or width: kept apart, but a person should know."""
    alike: defaultdict[str, set[str]] = defaultdict(set)
    for name in set(classes):
        alike[unicodedata.normalize("NFKC", name).casefold()].add(name)
    for names in alike.values():
        if len(names) > 1:
            yield f"classes {', '.join(map(repr, sorted(names)))} differ only in case or width; they stay apart"
