"""Rows that are left out, and why: for a message, for `rejects.csv` and for `rejects.xlsx`.

Whatever a cell of the index held, no spreadsheet runs it: text that begins like a formula is written as text.
"""

import csv
import io
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from shards.atomic import atomic_file
from shards.errors import ConfigError

REJECTS_CSV: Final = "rejects.csv"
REJECTS_XLSX: Final = "rejects.xlsx"
NO_FILE: Final = "no file"  # how the reason of a row begins whose file is not there
_LIMIT: Final = re.compile(r"(\d+(?:\.\d+)?)%|\d+", re.ASCII)
# A spreadsheet runs a cell that begins like this as a formula when the CSV is opened; full-width ones too,
# where Chinese or Japanese is set.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
# Characters that XML, and so a workbook, cannot hold or changes.
_NOT_IN_XML: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Excel reads these seven characters as one.
_EXCEL_ESCAPE: Final = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")
_SHEET_ROWS: Final = 1 << 20  # of a worksheet, the header's included
_TIMES: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


class Reject(NamedTuple):
    """One row that cannot be used. `row` is the sheet's own row number, as Excel shows it."""

    sheet: str
    row: int
    id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.sheet}!{self.row}: {self.reason}"


class Fault(NamedTuple):
    """A sample found to be bad while its shard was written: its position in the shard's plan, and why."""

    position: int
    reason: str


def allowed_rejects(limit: int | str, rows: int) -> int:
    """How many of `rows` may be left out under `limit`, a count (20) or a share ("1%"); raises ConfigError."""
    found = _LIMIT.fullmatch(str(limit))
    share = Fraction(found[1]) / 100 if found and found[1] else Fraction(0)
    if found is None or share > 1:
        raise ConfigError(f"max_rejects {limit!r}: expected a count such as 20, or a share of the rows such as 1%")
    return math.floor(share * rows) if found[1] else int(found[0])


def listing(rejects: Sequence[Reject], limit: int = 20) -> str:
    """One line a row, in order of sheet and row, at most `limit` lines and then how many more."""
    lines = [plain(f"  {reject}") for reject in in_order(rejects)[:limit]]
    if len(rejects) > limit:
        lines.append(f"  ... and {len(rejects) - limit:,} more")
    return "\n".join(lines)


def in_order(rejects: Sequence[Reject]) -> list[Reject]:
    """By sheet and row."""
    return sorted(rejects, key=lambda reject: reject[:2])


def plain(text: str) -> str:
    r"""The text with characters that XML cannot hold spelled out, as in `\x1b`."""
    return _NOT_IN_XML.sub(lambda found: ascii(found[0])[1:-1], text)


def write_rejects(folder: Path, rejects: Sequence[Reject]) -> None:
    """Write `rejects.csv` and `rejects.xlsx`, or remove old ones when nothing was rejected."""
    rows = [(plain(r.sheet), r.row, plain(r.id), plain(r.reason)) for r in in_order(rejects)]
    for name, encoded in ((REJECTS_CSV, _csv), (REJECTS_XLSX, _xlsx)):
        if not rows:
            (folder / name).unlink(missing_ok=True)
            continue
        with atomic_file(folder / name) as file:
            file.write(encoded(rows))


_Rows = Sequence[tuple[str, int, str, str]]


def _csv(rows: _Rows) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(Reject._fields)
    writer.writerows([_harmless(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return text.getvalue().encode("utf-8-sig")


def _harmless(text: str) -> str:
    """The text with a quote before it if a spreadsheet would run it."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text


def _xlsx(rows: _Rows) -> bytes:
    """A workbook whose text cells stay text, even when somebody edits one in Excel."""
    # The slowest import of the package, for a file that most builds do without.
    from openpyxl import Workbook  # noqa: PLC0415
    from openpyxl.cell import WriteOnlyCell  # noqa: PLC0415

    book = Workbook(write_only=True)
    for start in range(0, len(rows), _SHEET_ROWS - 1):
        sheet = book.create_sheet("rejects")
        sheet.column_dimensions["C"].width, sheet.column_dimensions["D"].width = 30, 120
        sheet.append(Reject._fields)
        for row in rows[start : start + _SHEET_ROWS - 1]:
            cells = [WriteOnlyCell(sheet, _EXCEL_ESCAPE.sub("_x005F_", c) if isinstance(c, str) else c) for c in row]
            for cell in (cells[0], *cells[2:]):
                cell.data_type = "s"  # openpyxl has guessed a formula or an error from the text
                cell.quotePrefix = True
            sheet.append(cells)
    stream = io.BytesIO()
    book.save(stream)
    return _without_times(stream)


def _without_times(workbook: io.BytesIO) -> bytes:
    """The same workbook as if made on the first of January 1980, so that equal rejects give equal bytes."""
    timeless = io.BytesIO()
    with ZipFile(workbook) as old, ZipFile(timeless, "w", ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "docProps/core.xml":
                content = _TIMES.sub(b"1980-01-01T00:00:00Z", content)
            new.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    return timeless.getvalue()
