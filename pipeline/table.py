"""The tables of an index, whatever the file: rows of raw cells, no types guessed.

Excel's formats are known to `pipeline.workbook` alone.
"""

import codecs
import csv
import io
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from shards.errors import ConfigError, DataError

WORKBOOKS: Final = {".xlsx", ".xlsm", ".xls", ".xlsb"}
_TEXTS: Final = {".csv", ".tsv", ".txt"}
_DELIMITERS: Final = (",", ";", "\t")
# Each is told by its first bytes, so nobody has to name it.
_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    bytes.fromhex("84319533"): "gb18030",
}
CURE: Final = "rename the header cells or map them (--columns.cls NAME, --columns.item NAME, --columns.id NAME)"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A header and the rows below it.

    name    the sheet, or the file's name where there are no sheets
    rows    (row number as Excel shows it, cells), to be read once
    merged  ranges of cells of which only the first holds anything: (row, column) of both corners, from 1
    last    number of the last row; 0 if there is none, or that is not known
    """

    source: Path
    name: str
    header: tuple[str, ...]
    rows: Iterator[tuple[int, Sequence[object]]]
    merged: tuple[tuple[int, int, int, int], ...] = ()
    first_column: int = 1
    last: int = 0


def open_table(path: Path, wanted: Sequence[str], optional: str | None, encoding: str | None) -> Table:
    """The table of a .csv or .parquet file whose header has all `wanted` names; raises DataError.

    optional    a column to read as well if there is one; others may be left out
    encoding    of a .csv; None: UTF-8, or what its first bytes say
    """
    match path.suffix.lower():
        case suffix if suffix in _TEXTS:
            return checked(_open_csv(path, wanted, encoding), wanted)
        case ".parquet":
            return checked(_open_parquet(path, wanted, optional), wanted)
        case ".ods":
            raise DataError(f"{path}: an OpenDocument sheet, of which some cells cannot be read; save it as .xlsx")
        case other:
            raise DataError(f"{path}: an index is .xlsx, .csv or .parquet, not {other!r}; save it as one of these")


def check_is_there(path: Path, sheets: Sequence[str] | None) -> None:
    """Raise DataError if there is no such file, ConfigError if it cannot have `sheets`."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; give the index (.xlsx, .csv or .parquet) as --index")
    if sheets is not None and path.suffix.lower() not in WORKBOOKS:
        raise ConfigError(f"--sheet {listed(sheets)}: {path.name} has no sheets; leave --sheet out")


def _open_csv(path: Path, wanted: Sequence[str], encoding: str | None) -> Table:
    """Rows as the csv module cuts them, every cell text; the delimiter is the one that gives the columns."""
    text = _decoded(path, path.read_bytes(), encoding)
    tables: list[Table] = []
    for delimiter in _DELIMITERS:
        rows = enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), start=1)
        try:
            tables.append(Table(source=path, name=path.name, header=header_of(rows), rows=_whole(path, rows)))
        except csv.Error as error:
            raise DataError(f"{path}: row 1: {error}; save it as CSV again, or give the workbook itself") from error
    return next((table for table in tables if set(wanted) <= set(table.header)), tables[0])


def _whole(path: Path, rows: Iterator[tuple[int, Sequence[str]]]) -> Generator[tuple[int, Sequence[str]]]:
    """The rows; DataError where one cannot be cut into cells."""
    number = 1
    try:
        for number, cells in rows:
            yield number, cells
    except csv.Error as error:
        raise DataError(
            f"{path}: after row {number}: {error}; a quote is not closed, perhaps; save it as CSV again"
        ) from error


def _decoded(path: Path, data: bytes, encoding: str | None) -> str:
    """The text of a file, without a byte-order mark; never with a character that was not there."""
    named = encoding or next((name for mark, name in _MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        return data.decode(named).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: not {named.upper()}: byte {error.start:,} is 0x{data[error.start]:02X}; say what it is, such as "
            "--encoding gb18030, or save it as 'CSV UTF-8', or give the workbook itself"
        ) from error


def _open_parquet(path: Path, wanted: Sequence[str], optional: str | None) -> Table:
    # Imported here because a workbook, the usual index, does without.
    import pyarrow.parquet as pq  # noqa: PLC0415

    rows: Iterator[tuple[int, Sequence[object]]] = iter(())
    try:
        header = tuple(pq.read_schema(path).names)
        if set(wanted) <= set(header):
            header = tuple(name for name in header if name in wanted or name == optional)
            columns = pq.read_table(path, columns=list(dict.fromkeys(header))).columns
            rows = enumerate(zip(*(column.to_pylist() for column in columns), strict=True), start=1)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error}); write it again") from error
    return Table(source=path, name=path.name, header=header, rows=rows)


def header_of(rows: Iterator[tuple[int, Sequence[object]]]) -> tuple[str, ...]:
    """The first row that is not blank, as names without surrounding white space."""
    for _, cells in rows:
        names = tuple(str(cell).strip() for cell in cells)
        if any(names):
            return names
    return ()


def checked(table: Table, wanted: Sequence[str]) -> Table:
    """The table; raises DataError if a wanted column is not there, or there twice."""
    where = f"{table.source}: sheet {table.name!r}" if table.name != table.source.name else f"{table.source}"
    if not table.header:
        raise DataError(f"{where}: empty; the first row must name the columns {listed(wanted)}")
    missing = [name for name in wanted if name not in table.header]
    if missing:
        raise DataError(f"{where}: no column {listed(missing)}; found {listed(table.header)}; {CURE}")
    twice = [name for name in wanted if table.header.count(name) > 1]
    if twice:
        raise DataError(f"{where}: the column {listed(twice)} is there more than once; rename or delete one")
    return table


def listed(names: Iterable[str]) -> str:
    """Names as in a sentence, quoted."""
    return ", ".join(repr(name) for name in names if name)


def filled(table: Table, positions: Sequence[int], id_position: int) -> Table:
    """The table with cells that are blank because they are merged downwards filled with what the first one holds.

    In the columns at `positions`, and only in rows that have an id.
    """
    bottoms = {(top, left - table.first_column): bottom for top, left, bottom, right in table.merged if left == right}

    def rows() -> Generator[tuple[int, Sequence[object]]]:
        merged: dict[int, tuple[int, object]] = {}
        for number, cells in table.rows:
            row = list(cells)
            for position in positions:
                if position >= len(row):
                    continue
                if (number, position) in bottoms:
                    merged[position] = bottoms[number, position], row[position]
                bottom, value = merged.get(position, (0, ""))
                if number <= bottom and row[position] == "" and row[id_position : id_position + 1] not in ([""], []):
                    row[position] = value
            yield number, row

    return replace(table, rows=rows()) if bottoms else table
