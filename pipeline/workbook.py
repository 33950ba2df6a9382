"""Excel workbooks as tables of raw cells: no types are guessed here.

Read with python-calamine (400,000 rows in about a second); it gives '' alike for a blank cell, an error and a formula
that was never computed, so `explain` opens the workbook again with openpyxl, twenty times slower, when there is such
a cell.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, SheetTypeEnum, SheetVisibleEnum

from pipeline.ooxml import Reach, reaches
from pipeline.table import CURE, Table, checked, header_of, listed
from shards.errors import DataError

_OLE: Final = bytes.fromhex("D0CF11E0A1B11AE1")
_ENCRYPTED: Final = "EncryptedPackage".encode("utf-16-le")  # the stream of an .xlsx with a password
_XML: Final = {".xlsx", ".xlsm"}
_SHEET_ROWS: Final = 1 << 20


def open_workbook(path: Path, wanted: Sequence[str], sheets: Sequence[str] | None) -> tuple[list[Table], list[str]]:
    """The tables of the named sheets, or of all visible ones that have the columns, and notes for people.

    Raises DataError for what is no workbook, or one in which no sheet has the columns.
    """
    _check_container(path)
    found = reaches(path) if path.suffix.lower() in _XML else {}
    try:
        book = CalamineWorkbook.from_path(path)
        names = _worksheets(book, hidden=False) if sheets is None else _named(path, book, sheets)
        tables = [_sheet_table(path, book.get_sheet_by_name(name), found.get(name, Reach())) for name in names]
        hidden = [] if sheets is not None else _hidden_with(path, book, wanted)
    except (CalamineError, OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable workbook ({error}); open it in Excel and save it again") from error
    if sheets is not None:
        return [checked(table, wanted) for table in tables], _notes(path, tables)
    fitting = [table for table in tables if set(wanted) <= set(table.header)]
    if not fitting:
        raise _no_sheet(path, tables, wanted)
    others = [table.name for table in tables if table not in fitting and table.header]
    notes = _notes(path, fitting)
    if len(fitting) > 1:
        notes.append(f"{len(fitting)} sheets are read, {listed(t.name for t in fitting)}; --sheet names other ones")
    if others:
        notes.append(f"the sheets {listed(others)} have not the columns {listed(wanted)}, and are not read")
    if hidden:
        notes.append(f"the hidden sheets {listed(hidden)} have the columns too, and are not read; --sheet names them")
    return [checked(table, wanted) for table in fitting], notes


def _check_container(path: Path) -> None:
    """Raise DataError for a workbook that is locked, or not what its name says."""
    with path.open("rb") as file:
        start = file.read(len(_OLE))
        if start != _OLE:
            return
        file.seek(0)
        if _ENCRYPTED in file.read(1 << 20) or path.suffix.lower() in _XML:
            raise DataError(
                f"{path}: password-protected, or an old .xls by another name; save it as .xlsx without a password"
            )


def _worksheets(book: CalamineWorkbook, *, hidden: bool) -> list[str]:
    sheets = [meta for meta in book.sheets_metadata if meta.typ == SheetTypeEnum.WorkSheet]
    return [meta.name for meta in sheets if (meta.visible != SheetVisibleEnum.Visible) == hidden]


def _named(path: Path, book: CalamineWorkbook, sheets: Sequence[str]) -> list[str]:
    unknown = [name for name in sheets if name not in book.sheet_names]
    if unknown:
        raise DataError(f"{path}: no sheet {listed(unknown)}; the sheets are {listed(book.sheet_names)}")
    return list(dict.fromkeys(sheets))


def _hidden_with(path: Path, book: CalamineWorkbook, wanted: Sequence[str]) -> list[str]:
    """Hidden sheets that have the columns."""
    names = _worksheets(book, hidden=True)
    headers = {name: _sheet_table(path, book.get_sheet_by_name(name), Reach()).header for name in names}
    return [name for name, header in headers.items() if set(wanted) <= set(header)]


def _no_sheet(path: Path, tables: Sequence[Table], wanted: Sequence[str]) -> DataError:
    if not any(table.header for table in tables):
        return DataError(f"{path}: the workbook is empty: no visible sheet has a row; fill in {listed(wanted)}")
    found = "; ".join(f"{table.name!r} has {listed(table.header) or 'nothing'}" for table in tables)
    return DataError(f"{path}: no visible sheet has the columns {listed(wanted)}: {found}; {CURE}")


def _sheet_table(path: Path, sheet: CalamineSheet, reach: Reach) -> Table:
    # iter_rows begins at the sheet's own row 1, but at the first column that holds anything.
    rows: Iterator[tuple[int, Sequence[object]]] = enumerate(sheet.iter_rows(), start=1)
    header = header_of(rows)
    ranges = sheet.merged_cell_ranges or []
    last = sheet.end[0] + 1 if sheet.end else 0
    if last == 0:
        rows = iter(())
    return Table(
        source=path,
        name=sheet.name,
        header=header,
        # Rows with nothing but formulas that were never computed are not among the sheet's.
        rows=chain(rows, ((row, ()) for row in range(last + 1, reach.last_formula + 1))),
        merged=tuple((top + 1, left + 1, bottom + 1, right + 1) for (top, left), (bottom, right) in ranges),
        first_column=(sheet.start or (0, 0))[1] + 1,
        last=last,
    )


def _notes(path: Path, tables: Iterable[Table]) -> list[str]:
    notes = [
        f"sheet {table.name!r} is full to Excel's last row; what did not fit was cut off when it was made, unless it "
        "goes on in another sheet"
        for table in tables
        if table.last >= _SHEET_ROWS
    ]
    if path.suffix.lower() not in _XML:
        notes.append(
            f"{path.name} is of an old kind, of which blank cells, errors and formulas look alike; better .xlsx"
        )
    return notes


def explain(table: Table, cells: Sequence[tuple[int, int]]) -> dict[tuple[int, int], str]:
    """What the blank-looking `cells`, (row number, position in the header), really are.

    Cells that are truly blank are left out. Reads up to the last of them with openpyxl.
    """
    found: dict[tuple[int, int], str] = {}
    ranges = {position: _ranges(table, table.first_column + position) for position in {p for _, p in cells}}
    for row, position in cells:
        before = bisect_right(ranges[position], (row, 0, 0))
        top, bottom, left = ranges[position][before - 1] if before else (0, 0, 0)
        if row <= bottom and (row, table.first_column + position) != (top, left):
            cure = "unmerge and fill every row, or give --fill-merged"
            found[row, position] = f"blank, inside the merged rows {top} to {bottom}; {cure}"
    if table.source.suffix.lower() in _XML and len(found) < len(cells):
        # openpyxl refuses some workbooks that calamine reads; then a blank-looking cell stays "blank".
        with suppress(Exception):
            found |= _explain_with_openpyxl(table, set(cells) - set(found))
    return found


def _ranges(table: Table, column: int) -> list[tuple[int, int, int]]:
    """The merged ranges that a column is in, from top to bottom: first row, last row, first column."""
    return sorted((top, bottom, left) for top, left, bottom, right in table.merged if left <= column <= right)


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
