"""A workbook, CSV or Parquet file as rows of raw cells: no types are guessed here.

Excel's formats are known to this file alone. Workbooks are read with python-calamine (400,000 rows in
about a second); it gives '' alike for a blank cell, an error and a formula that was never computed, so
`explain` opens the workbook again with openpyxl, twenty times slower, when there is such a cell.
Known limit: rows at the very end that hold nothing but formulas never computed are invisible to calamine.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

from shards.errors import ConfigError, DataError

_OLE: Final = bytes.fromhex("D0CF11E0A1B11AE1")
_DELIMITERS: Final = (",", ";", "\t")


@dataclass(frozen=True, kw_only=True)
class Table:
    """A header and the rows below it.

    name    the sheet, or the file's name where there are no sheets
    rows    (row number as Excel shows it, cells), to be read once
    merged  cells that lie in a merged range but are not its first: (row, column) of both corners, from 1
    """

    source: Path
    name: str
    header: tuple[str, ...]
    rows: Iterator[tuple[int, Sequence[object]]]
    merged: tuple[tuple[int, int, int, int], ...] = ()
    first_column: int = 1


def open_table(path: Path, wanted: Sequence[str], optional: str | None, sheet: str | None) -> Table:
    """The table of `path` whose header has all `wanted` names; raises DataError listing what was found.

    optional    a column to read as well if there is one; others may be left out
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; give the index (.xlsx, .csv or .parquet) as --index")
    match path.suffix.lower():
        case ".xlsx" | ".xlsm":
            return _open_workbook(path, wanted, sheet)
        case ".csv" | ".tsv" | ".txt" if sheet is None:
            return _checked(_open_csv(path, wanted), wanted)
        case ".parquet" if sheet is None:
            return _checked(_open_parquet(path, wanted, optional), wanted)
        case ".csv" | ".tsv" | ".txt" | ".parquet":
            raise ConfigError(f"--sheet {sheet!r}: {path.name} has no sheets; leave --sheet out")
        case other:
            raise DataError(f"{path}: an index is .xlsx, .csv or .parquet, not {other!r}; save it as one of these")


def _open_workbook(path: Path, wanted: Sequence[str], sheet: str | None) -> Table:
    with path.open("rb") as file:
        if file.read(len(_OLE)) == _OLE:
            raise DataError(f"{path}: password-protected, or an old .xls; save it as .xlsx without a password")
    try:
        book = CalamineWorkbook.from_path(path)
        names = _sheets_to_look_at(path, book, sheet)
        tables = [_sheet_table(path, book.get_sheet_by_name(name)) for name in names]
    except (CalamineError, OSError) as error:
        raise DataError(f"{path}: not a readable workbook ({error}); open it in Excel and save it again") from error
    fitting = [table for table in tables if set(wanted) <= set(table.header)]
    if len(fitting) == 1 or (sheet is not None and tables):
        return _checked((fitting or tables)[0], wanted)
    if fitting:
        found = ", ".join(repr(table.name) for table in fitting)
        raise DataError(f"{path}: the sheets {found} all have the columns {_list(wanted)}; name one with --sheet")
    if not any(table.header for table in tables):
        raise DataError(f"{path}: the workbook is empty: no visible sheet has a row; fill in {_list(wanted)}")
    found = "; ".join(f"{table.name!r} has {_list(table.header) or 'nothing'}" for table in tables)
    raise DataError(f"{path}: no visible sheet has the columns {_list(wanted)}: {found}; {_CURE}")


_CURE: Final = "rename the header cells or map them (--columns.cls NAME, --columns.item NAME, --columns.id NAME)"


def _sheets_to_look_at(path: Path, book: CalamineWorkbook, sheet: str | None) -> list[str]:
    if sheet is None:
        sheets = [meta for meta in book.sheets_metadata if meta.typ == SheetTypeEnum.WorkSheet]
        return [meta.name for meta in sheets if meta.visible == SheetVisibleEnum.Visible]
    if sheet not in book.sheet_names:
        raise DataError(f"{path}: no sheet {sheet!r}; the sheets are {_list(book.sheet_names)}")
    return [sheet]


def _sheet_table(path: Path, sheet: CalamineSheet) -> Table:
    # iter_rows begins at the sheet's own row 1, but at the first column that holds anything.
    rows = enumerate(sheet.iter_rows(), start=1)
    header = _header(rows)
    ranges = sheet.merged_cell_ranges or []
    return Table(
        source=path,
        name=sheet.name,
        header=header,
        rows=rows,
        merged=tuple((top + 1, left + 1, bottom + 1, right + 1) for (top, left), (bottom, right) in ranges),
        first_column=(sheet.start or (0, 0))[1] + 1,
    )


def _open_csv(path: Path, wanted: Sequence[str]) -> Table:
    """Rows as the csv module cuts them, every cell text; the delimiter is the one that gives the columns."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 ({error}); save it as 'CSV UTF-8', or give the workbook itself") from error
    tables: list[Table] = []
    for delimiter in _DELIMITERS:
        rows = enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), start=1)
        header = _header(rows)
        tables.append(Table(source=path, name=path.name, header=header, rows=rows))
    return next((table for table in tables if set(wanted) <= set(table.header)), tables[0])


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


def _header(rows: Iterator[tuple[int, Sequence[object]]]) -> tuple[str, ...]:
    """The first row that is not blank, as names without surrounding white space."""
    for _, cells in rows:
        names = tuple(str(cell).strip() for cell in cells)
        if any(names):
            return names
    return ()


def _checked(table: Table, wanted: Sequence[str]) -> Table:
    where = f"{table.source}: sheet {table.name!r}" if table.name != table.source.name else f"{table.source}"
    if not table.header:
        raise DataError(f"{where}: empty; the first row must name the columns {_list(wanted)}")
    missing = [name for name in wanted if name not in table.header]
    if missing:
        raise DataError(f"{where}: no column {_list(missing)}; found {_list(table.header)}; {_CURE}")
    twice = [name for name in wanted if table.header.count(name) > 1]
    if twice:
        raise DataError(f"{where}: the column {_list(twice)} is there more than once; rename or delete one")
    return table


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names if name)


def explain(table: Table, cells: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """What the blank-looking `cells`, (row number, position in the header), really are.

    Cells that are truly blank are left out. Reads up to the last of them with openpyxl.
    """
    found: dict[tuple[int, int], str] = {}
    for row, position in cells:
        column = table.first_column + position
        for top, left, bottom, right in table.merged:
            if top <= row <= bottom and left <= column <= right and (row, column) != (top, left):
                found[row, position] = f"blank, inside the merged rows {top} to {bottom}; unmerge and fill every row"
    if table.source.suffix.lower() in {".xlsx", ".xlsm"} and len(found) < len(cells):
        # openpyxl refuses some workbooks that calamine reads; then a blank-looking cell stays "blank".
        with suppress(Exception):
            found |= _explain_with_openpyxl(table, set(cells) - set(found))
    return found


def _explain_with_openpyxl(table: Table, cells: set[tuple[int, int]]) -> dict[tuple[int, int], str]:
    # The slowest import of the package, for the rarest case.
    from openpyxl import load_workbook  # noqa: PLC0415

    found: dict[tuple[int, int], str] = {}
    rows = {row for row, _ in cells}
    book = load_workbook(table.source, read_only=True)
    try:
        first, last = min(rows), max(rows)
        sheet = book[table.name]
        sheet.reset_dimensions()  # a declared size may be a lie
        for number, values in enumerate(sheet.iter_rows(min_row=first, max_row=last), start=first):
            for row, position in [(number, p) for p in range(len(table.header))] if number in rows else []:
                column = table.first_column + position - 1
                if column >= len(values) or (row, position) not in cells:
                    continue
                cell = values[column]
                if cell.data_type == "e":
                    found[row, position] = f"the error {cell.value}; correct the formula or the cell"
                elif cell.data_type == "f":
                    found[row, position] = "a formula that was never computed; open and save the workbook in Excel"
    finally:
        book.close()
    return found
