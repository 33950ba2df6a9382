"""Rows of an index meet the files of a folder: each row the one file that its labels name, each file one row."""

import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, final

from pipeline.label import Labelled, Labels
from pipeline.pattern import Pattern
from pipeline.rejects import NO_FILE, Reject

_MOST_ZEROS: Final = 11


class Row(NamedTuple):
    """One sample: `path` is that of its file below the feature folder, `row` the number of its row in `sheet`."""

    class_name: str
    item: str
    id: str
    split: str | None
    path: str
    row: int
    sheet: str

    @property
    def place(self) -> str:
        """Where it stands, as in a spreadsheet."""
        return f"{self.sheet}!{self.row}"


@final
class FileSearch:
    """Finds the files of rows, table by table.

    files    every path there is, by its Unicode form NFC
    notes    what was taken for the same though it is spelled otherwise
    """

    def __init__(self, features: Path, pattern: Pattern, files: dict[str, str]) -> None:
        self._features = features
        self._pattern = pattern
        self._files = files
        self._sheets: list[str] = []
        self._rows: list[Row] = []
        self._odd: list[tuple[str, Labels, str]] = []
        self._decomposed: list[Row] = []
        self.notes: list[str] = []

    def add(self, table: Labelled, paths: Sequence[str]) -> None:
        """Take the good rows of one table; `paths` are those that their labels name."""
        take, sheet = self._files.pop, table.sheet
        self._sheets.append(sheet)
        for labels, wanted in zip(table.good, paths, strict=True):
            number, class_name, item, id_, split = labels
            path = take(wanted, None)
            if path is None:
                self._odd.append((sheet, labels, wanted))
                continue
            row = Row(class_name, item, id_, split, path, number, sheet)
            self._rows.append(row)
            if path != wanted:
                self._decomposed.append(row)

    def end(self) -> tuple[list[Row], list[Reject]]:
        """The rows whose file is there and named once, and the others as rejects; call it once."""
        if self._decomposed:
            self._note("in another Unicode form", [(row.id, row.path) for row in self._decomposed])
        if not self._odd:
            return self._rows, []
        taken = {unicodedata.normalize("NFC", row.path): row for row in self._rows}
        wide: dict[str, list[str]] = {}
        for name in self._files:
            wide.setdefault(unicodedata.normalize("NFKC", name), []).append(name)
        rejects: list[Reject] = []
        respelled: list[tuple[str, str]] = []
        for sheet, labels, wanted in self._odd:
            number, class_name, item, id_, split = labels
            narrow = unicodedata.normalize("NFKC", wanted)
            alike = wide.get(narrow, [])
            if first := taken.get(wanted) or taken.get(narrow):
                rejects += _repeated(first, Row(class_name, item, id_, split, first.path, number, sheet))
            elif len(alike) == 1:
                path = self._files.pop(alike.pop())
                taken[wanted] = taken[narrow] = Row(class_name, item, id_, split, path, number, sheet)
                self._rows.append(taken[wanted])
                respelled.append((id_, path))
            else:
                rejects.append(Reject(sheet, number, id_, self._why_missing(id_, wanted, alike)))
        if respelled:
            self._note("in characters of another width", respelled)
        contradicted = {reject[:2] for reject in rejects}
        rows = [row for row in self._rows if (row.sheet, row.row) not in contradicted]
        rows.sort(key=lambda row: (self._sheets.index(row.sheet), row.row))
        return rows, list({reject[:2]: reject for reject in rejects}.values())

    def unused(self, rejects: Iterable[Reject]) -> tuple[str, ...]:
        """Files that no row names, not even one of `rejects`, whose class may be unknown."""
        ids = {reject.id.removesuffix(self._pattern.suffix) for reject in rejects}
        names = {f"{id_}{self._pattern.suffix}".rpartition("/")[2] for id_ in ids}
        return tuple(sorted(file for name, file in self._files.items() if name.rpartition("/")[2] not in names))

    def _note(self, how: str, found: Sequence[tuple[str, str]]) -> None:
        id_, path = found[0]
        self.notes.append(f"ids spelled {how} than the names of their files: {len(found):,}, first {id_!r}: {path!r}")

    def _why_missing(self, id_: str, name: str, alike: Sequence[str]) -> str:
        if name.startswith("/") or ".." in Path(name).parts:
            return f"id {id_!r} leaves the feature folder; use a path inside {self._features}"
        if alike:
            return f"{NO_FILE} {self._features / name}, but {', '.join(alike)}, which differ in width; rename one"
        folder, slash, last = name.rpartition("/")
        padded = [f"{folder}{slash}{'0' * zeros}{last}" for zeros in range(1, _MOST_ZEROS + 1)]
        there = next((path for path in padded if path in self._files), None)
        if there is not None:
            return f"{NO_FILE} {self._features / name}, but {there} is there: make the id column text to keep its zeros"
        return f"{NO_FILE} {self._features / name}"


def _repeated(first: Row, row: Row) -> list[Reject]:
    """The rejects that come of two rows for one file."""
    same = (first.class_name, first.item, first.split) == (row.class_name, row.item, row.split)
    if same:
        return [Reject(row.sheet, row.row, row.id, f"id {row.id!r} repeats {first.place}; delete one of them")]
    there, here = f"{first.class_name!r}/{first.item!r}", f"{row.class_name!r}/{row.item!r}"
    what = f"id {row.id!r} is {here} in {row.place} and {there} in {first.place}; decide which is right"
    return [Reject(r.sheet, r.row, r.id, what) for r in (row, first)]
