"""The one rule that turns a cell, of any source, into a label.

Labels are text and keep their spelling: "007", "NA", "null" and "1e5" as text are labels like any other.
Only what Excel itself may have changed, or what cannot be seen, is refused.
"""

import datetime as dt
import unicodedata
from typing import Final

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
