"""The XML inside a workbook, looked through before a parser that trusts it is let in.

The parser lays a sheet out as a full rectangle, 32 bytes a cell: one forgotten cell far out, or a hostile one, would
take all memory. And it leaves out rows at the end that hold nothing but formulas which were never computed.
"""

import re
import zlib
from collections.abc import Generator
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple
from xml.etree import ElementTree as ET
from zipfile import BadZipFile, ZipFile

from shards.errors import DataError

_PIECE: Final = 1 << 20
_OVERLAP: Final = 4096  # longer than the tag of a cell
_MOST_CELLS: Final = 64 << 20  # 2 GiB once they are laid out
_MOST_BYTES: Final = 8 << 30  # of XML: several times what a full sheet of three columns has
# Nothing that an application has written holds a document type, and what it can do (entities) only harms.
_DOCTYPE: Final = re.compile(rb"<!DOCTYPE|<!ENTITY")
# A sheet of at most 26 columns and 999,999 rows is small enough; what is beyond is looked at in detail.
_FAR: Final = re.compile(rb' r="(?:[A-Z]{2}|[A-Z]?\d{7})')
_FILLED: Final = re.compile(rb'<(?:\w+:)?c\s(?:[^>]*?\s)?r="([A-Z]+)(\d+)"[^>]*(?<!/)>')
_ROW: Final = re.compile(rb'<(?:\w+:)?row\s(?:[^>]*?\s)?r="(\d+)"')
_FORMULA: Final = re.compile(rb'r="[A-Z]+(\d+)"[^>]*>\s*<(?:\w+:)?f\b')

_DAMAGES: Final = (BadZipFile, OSError, EOFError, zlib.error, NotImplementedError, RuntimeError, ET.ParseError)


class Reach(NamedTuple):
    """How far the filled cells of a sheet go, from 1, as far as that matters, and the last row with a formula."""

    columns: int = 26
    rows: int = 0
    last_formula: int = 0


def reaches(path: Path) -> dict[str, Reach]:
    """The reach of every sheet of a workbook, by the sheet's name.

    Raises DataError for a workbook that is damaged or would harm who opens it.
    """
    try:
        with ZipFile(path) as archive:
            parts = {
                name: _reach(path, archive, name) for name in archive.namelist() if name.endswith((".xml", ".rels"))
            }
            found = {name: parts[part] for name, part in _sheet_parts(archive).items() if part in parts}
    except (*_DAMAGES, KeyError) as error:
        raise DataError(f"{path}: not a readable workbook ({error}); open it in Excel and save it again") from error
    for name, reach in found.items():
        if reach.columns * reach.rows > _MOST_CELLS:
            raise DataError(
                f"{path}: sheet {name!r} has cells as far as column {reach.columns:,} and row {reach.rows:,}; an index "
                "needs a few columns: delete what stands far from the table, or save the sheet as .csv"
            )
    return found


def _reach(path: Path, archive: ZipFile, part: str) -> Reach:
    """How far a sheet reaches; nothing of interest for other parts, but those are looked through too."""
    columns, rows, last_formula, total = 26, 0, 0, 0
    with archive.open(part) as file:
        for piece in _pieces(file):
            total += len(piece)
            if total > _MOST_BYTES:
                raise DataError(f"{path}: {part} unpacks to more than {_MOST_BYTES >> 30} GiB; no index is that large")
            if b"<!" in piece and _DOCTYPE.search(piece):
                raise DataError(f"{path}: {part} declares a document type or entities; no workbook does: not opened")
            if (last := piece.rfind(b"<row ")) >= 0:
                rows = max(rows, *map(int, _ROW.findall(piece, last)), 0)
            if _FAR.search(piece):
                for letters, row in _FILLED.findall(piece):
                    columns, rows = max(columns, _column(letters)), max(rows, int(row))
            if (last := piece.rfind(b"<f")) >= 0:
                last_formula = max(last_formula, *map(int, _FORMULA.findall(piece, max(0, last - _OVERLAP))), 0)
    return Reach(columns, rows, last_formula)


def _pieces(file: IO[bytes]) -> Generator[bytes]:
    """What is in the file, in pieces that overlap, so that no tag is cut in all of them."""
    before = b""
    while piece := file.read(_PIECE):
        yield before + piece
        before = piece[-_OVERLAP:]


def _sheet_parts(archive: ZipFile) -> dict[str, str]:
    """The part of the archive that holds a sheet, by the sheet's name."""
    book = ET.fromstring(archive.read("xl/workbook.xml"))  # noqa: S314 - it has no entities
    links = ET.fromstring(archive.read("xl/_rels/workbook.xml.rels"))  # noqa: S314
    targets = {link.get("Id"): link.get("Target", "") for link in links}
    parts: dict[str, str] = {}
    for sheet in book.iter():
        if sheet.tag.endswith("}sheet"):
            link = next((value for key, value in sheet.items() if key.endswith("}id")), "")
            parts[sheet.get("name", "")] = str(PurePosixPath("/xl") / targets.get(link, "")).removeprefix("/")
    return parts


def _column(letters: bytes) -> int:
    """The number of a column, "A" being 1."""
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number
