"""Rows that are left out, and why: for a message, and for `rejects.csv`."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from shards.atomic import atomic_file

REJECTS_FILE: Final = "rejects.csv"
# A spreadsheet runs a cell that begins like this as a formula when the CSV is opened.
_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")


class Reject(NamedTuple):
    """One row that cannot be used. `row` is the sheet's own row number, as Excel shows it."""

    sheet: str
    row: int
    id: str
    reason: str

    def __str__(self) -> str:
        return f"{self.sheet}!{self.row}: {self.reason}"


def listing(rejects: Sequence[Reject], limit: int = 20) -> str:
    """One line a row, in row order, at most `limit` lines and then how many more."""
    lines = [f"  {reject}" for reject in sorted(rejects, key=lambda r: r.row)[:limit]]
    if len(rejects) > limit:
        lines.append(f"  ... and {len(rejects) - limit:,} more")
    return "\n".join(lines)


def write_rejects(folder: Path, rejects: Sequence[Reject]) -> None:
    """Write `rejects.csv`, or remove an old one when nothing was rejected."""
    path = folder / REJECTS_FILE
    if not rejects:
        path.unlink(missing_ok=True)
        return
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(Reject._fields)
    for reject in sorted(rejects, key=lambda r: r.row):
        writer.writerow([_harmless(reject.sheet), reject.row, _harmless(reject.id), _harmless(reject.reason)])
    with atomic_file(path) as file:
        file.write(text.getvalue().encode("utf-8-sig"))


def _harmless(text: str) -> str:
    """The text with a quote before it if a spreadsheet would run it."""
    return f"'{text}" if text.startswith(_FORMULA_STARTS) else text
