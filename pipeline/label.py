"""The one rule that turns a cell, of any source, into a label, and the rows of a table by that rule.

Labels are text and keep their spelling: "007", "NA", "null" and "1e5" as text are labels like any other.
Only what Excel itself may have changed, or what cannot be seen, is refused.
"""

import datetime as dt
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from pipeline.rejects import Reject
from pipeline.table import Table
from pipeline.workbook import explain

# Excel keeps 15 significant digits of a number; the rest are zeros that nobody typed.
_MAX_DIGITS: Final = 15
_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class BadCellError(ValueError):
    """A cell that is no label; the message completes the sentence "a_id is ..."."""


def label_of(cell: object) -> str:
    """The label that `cell` holds; raises BadCellError saying what it holds instead.

    Text is brought to Unicode form NFC and loses surrounding white space; a whole number of at most
    15 digits becomes its decimal digits, without the ".0" that workbooks store.
    """
    if isinstance(cell, str):
        return _text(cell)
    if cell is None:
        raise BadCellError("blank")
    if isinstance(cell, bool):
        raise BadCellError(f"{str(cell).upper()}, a boolean; make the cell text")
    if isinstance(cell, int | float):
        return _number(cell)
    if isinstance(cell, dt.date | dt.time | dt.timedelta):
        raise BadCellError(f"{cell}, a date or time; what was typed is lost: type it again in a text cell")
    raise BadCellError(f"{cell!r}, neither text nor a whole number; make the cell text")


def _text(cell: str) -> str:
    text = cell.strip()
    if text.isascii() and text.isprintable() and text:
        return text
    text = unicodedata.normalize("NFC", text).strip()
    if not text:
        raise BadCellError("blank")
    if not text.isprintable():  # also false for a no-break space, which is a fair part of a name
        for char in text:
            if unicodedata.category(char) in _INVISIBLE:
                raise BadCellError(f"{text!r}, with the invisible character U+{ord(char):04X}; delete it")
    return text


def _number(cell: float) -> str:
    if cell != cell or abs(cell) == float("inf"):  # noqa: PLR0124 - the plainest test for NaN
        raise BadCellError("not a number")
    if int(cell) != cell:
        raise BadCellError(f"{cell!r}, a number with a fraction; make the cell text")
    digits = str(int(cell))
    if len(digits.lstrip("-")) > _MAX_DIGITS:
        raise BadCellError(f"{digits}, a number of more than {_MAX_DIGITS} digits, which Excel rounds; make it text")
    return digits


# (row number, class, item, id, split)
Labels = tuple[int, str, str, str, str | None]


class Labelled(NamedTuple):
    """What the rows of a table say: good ones, bad ones, how many blank ones at the end.

    sheet     the table's name
    spelled   the cells that gave each class, where these are not always the same
    put_right how many cells lost white space around them or were brought to Unicode form NFC
    """

    sheet: str
    good: list[Labels]
    rejects: list[Reject]
    blank: int
    spelled: Mapping[str, set[object]]
    put_right: int


class _Known(dict[str, str]):
    """The labels of text cells met so far: classes and items come again and again."""

    def __missing__(self, cell: str) -> str:
        label = self[cell] = _text(cell)
        return label


def read_labels(table: Table, picks: Sequence[int]) -> Labelled:
    """The labels in the picked columns (class, item, id and perhaps split) of every row."""
    good: list[Labels] = []
    bad: dict[int, Sequence[object]] = {}
    class_texts, item_texts, numbers = _Known(), _Known(), defaultdict[str, set[object]](set)
    put_right = 0
    class_pick, item_pick, id_pick, *split_pick = picks
    for number, cells in table.rows:
        try:
            cell, other = cells[class_pick], cells[item_pick]
            class_name = class_texts[cell] if isinstance(cell, str) else label_of(cell)
            item = item_texts[other] if isinstance(other, str) else label_of(other)
            id_ = label_of(id_cell := cells[id_pick])
            split = label_of(cells[split_pick[0]]) if split_pick else None
        except (BadCellError, IndexError):
            bad[number] = cells
            continue
        if not isinstance(cell, str):
            numbers[class_name].add(cell)
        if id_ is not id_cell and isinstance(id_cell, str) and id_ != id_cell:
            put_right += 1
        good.append((number, class_name, item, id_, split))
    spelled: defaultdict[str, set[object]] = defaultdict(set, numbers)
    for cell, class_name in class_texts.items():
        spelled[class_name].add(cell)
    faults = {number: _faults(cells, picks) for number, cells in bad.items()}
    blanks = [(row, pick) for row, found in faults.items() for pick, what in found.items() if what == "blank"]
    for (row, pick), what in (explain(table, blanks) if blanks else {}).items():
        faults[row][pick] = what
    empty = {row for row, found in faults.items() if len(found) == len(picks) and set(found.values()) == {"blank"}}
    last = max((row for row in (*faults, *(number for number, *_ in good[-1:])) if row not in empty), default=0)
    rejects = [
        Reject(table.name, row, _shown(bad[row], picks[2]), _sentence(table, found, blank=row in empty))
        for row, found in faults.items()
        if row < last or row not in empty
    ]
    put_right += sum(cell != text for texts in (class_texts, item_texts) for cell, text in texts.items())
    return Labelled(table.name, good, rejects, len(faults) - len(rejects), spelled, put_right)


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


def notes_on(tables: Sequence[Labelled]) -> Iterable[str]:
    """What a person may have meant otherwise: what was taken as one class, what was kept apart, what was put right."""
    spelled: defaultdict[str, set[object]] = defaultdict(set)
    for table in tables:
        for name, cells in table.spelled.items():
            spelled[name] |= cells
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for name, cells in sorted(spelled.items()):
        alike[unicodedata.normalize("NFKC", name).casefold()].append(name)
        if len(cells) > 1:
            yield f"class {name!r} is also spelled {', '.join(sorted(repr(c) for c in cells if c != name))}; one class"
    for names in alike.values():
        if len(names) > 1:
            yield f"classes {', '.join(map(repr, names))} differ only in case or width; they stay apart"
    if put_right := sum(table.put_right for table in tables):
        yield f"white space around names and names not in Unicode form NFC: {put_right:,}, put right"
