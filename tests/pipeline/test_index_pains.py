"""What goes wrong with indexes elsewhere, E1 to E29, and what happens here."""

import datetime as dt
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from openpyxl import Workbook
from openpyxl.styles import PatternFill
from openpyxl.worksheet.worksheet import Worksheet

from pipeline.index import Index, read_index
from pipeline.table import open_table
from pipeline.workbook import open_workbook
from shards.errors import DataError
from tests.pipeline.corpus import HEADER, write_features, write_workbook
from tests.pipeline.workbooks import xls_workbook, xlsb_workbook, xml_row, xml_workbook

Rows = Iterable[Sequence[Any]]


def index_of(folder: Path, rows: Rows, ids: Iterable[str], **options: Any) -> Index:
    """The index of a workbook with these rows, where there are files for `ids`."""
    return read_index(write_workbook(folder / "i.xlsx", rows), write_features(folder / "f", ids), **options)


def edited(folder: Path, rows: Rows, edit: Callable[[Worksheet], object]) -> Path:
    """A workbook with these rows, after somebody was at it."""
    book = Workbook()
    sheet = book.active
    assert isinstance(sheet, Worksheet)
    for row in (HEADER, *rows):
        sheet.append(list(row))
    edit(sheet)
    book.save(folder / "i.xlsx")
    return folder / "i.xlsx"


def reasons(index: Index) -> dict[int, str]:
    return {reject.row: reject.reason for reject in index.rejects}


def test_e1_text_ids_keep_their_zeros(tmp_path: Path) -> None:
    """001 is not 1."""
    index = index_of(tmp_path, [("01", "001", "0001")], ["0001"])
    assert index.rows[0][:3] == ("01", "001", "0001")


def test_e2_zeros_of_a_number_format_are_nowhere_and_are_not_guessed(tmp_path: Path) -> None:
    """12 shown as 00012: the file 00012.npy is pointed out, not taken."""
    path = edited(tmp_path, [("a", "i", 12)], lambda sheet: setattr(sheet["C2"], "number_format", "00000"))
    index = read_index(path, write_features(tmp_path / "f", ["00012"]))
    assert "12.npy, but 00012.npy is there: make the id column text to keep its zeros" in reasons(index)[2]


def test_e3_one_blank_cell_makes_no_fractions(tmp_path: Path) -> None:
    """12 stays 12 where another cell of the column is blank."""
    index = index_of(tmp_path, [("a", 1, 12), ("a", 2, None), ("a", 3, 13)], ["12", "13"])
    assert [row.id for row in index.rows] == ["12", "13"]
    assert reasons(index) == {3: "a_id is blank"}


def test_e4_numbers_that_excel_has_rounded_are_refused(tmp_path: Path) -> None:
    """Of 16 digits only 15 are what was typed; as text all are."""
    index = index_of(tmp_path, [("a", "i", 1234567890123456), ("a", "i", "1234567890123456")], ["1234567890123456"])
    assert [row.row for row in index.rows] == [3]
    assert "a number of more than 15 digits, which Excel rounds; make it text" in reasons(index)[2]


def test_e5_text_that_looks_like_a_number_is_text(tmp_path: Path) -> None:
    """1e5 is no 100000."""
    index = index_of(tmp_path, [("1e5", "123e", "1_000")], ["1_000"])
    assert index.rows[0][:3] == ("1e5", "123e", "1_000")


def test_e6_na_null_none_and_nan_are_names(tmp_path: Path) -> None:
    """Only an empty cell is missing."""
    names = ["NA", "None", "null", "nan", "N/A", "TRUE", "1-2", "007"]
    index = index_of(tmp_path, [(name, name, f"x{n}") for n, name in enumerate(names)], [f"x{n}" for n in range(8)])
    assert [row.class_name for row in index.rows] == [row.item for row in index.rows] == names


def test_e7_true_is_not_1_and_a_number_is_its_text(tmp_path: Path) -> None:
    """A boolean is refused; 1 and "1" are one class, and that is said."""
    index = index_of(tmp_path, [(True, "i", "x"), (1, "i", "y"), ("1", "i", "z")], "xyz")
    assert [row.class_name for row in index.rows] == ["1", "1"]
    assert reasons(index) == {2: "a_cls is TRUE, a boolean; make the cell text"}
    assert index.notes[0] == "class '1' is also spelled 1.0; one class"


def test_e8_a_date_among_numbers_is_refused_by_its_cell(tmp_path: Path) -> None:
    """No TypeError of a sort that compares them."""
    index = index_of(tmp_path, [(1, "i", "x"), (dt.datetime(2026, 1, 2, tzinfo=None), "i", "y")], "xy")  # noqa: DTZ001
    assert reasons(index)[3].startswith("a_cls is 2026-01-02")


def test_e9_rows_are_counted_not_cells(tmp_path: Path) -> None:
    """A row without an id is a row."""
    index = index_of(tmp_path, [("a", "i", "x"), ("a", "i", None)], "x")
    assert (index.rows_read, len(index.rows), len(index.rejects)) == (2, 1, 1)


@pytest.mark.parametrize("typed", [dt.date(2026, 1, 2), dt.datetime(2026, 9, 1, 3, 4), dt.time(1, 2)])  # noqa: DTZ001
def test_e10_and_e12_what_excel_made_a_date_of_is_refused_whatever_its_type(tmp_path: Path, typed: object) -> None:
    """1-2 or SEPT9 was typed; nobody can know."""
    index = index_of(tmp_path, [(typed, "i", "x"), ("b", "i", "y")], "xy")
    assert "a date or time; what was typed is lost: type it again in a text cell" in reasons(index)[2]


def test_e11_a_number_with_a_format_of_its_own_is_no_date(tmp_path: Path) -> None:
    """The d in 0"d" is a letter."""
    path = edited(tmp_path, [("a", 7, "x")], lambda sheet: setattr(sheet["B2"], "number_format", '0"d"'))
    assert read_index(path, write_features(tmp_path / "f", "x")).rows[0].item == "7"


def test_e13_merged_cells_are_filled_only_on_request_and_never_beyond(tmp_path: Path) -> None:
    """Without it the range is named; with it a blank cell below the range is still blank."""
    rows = [("a", "i", "v"), (None, None, "w"), (None, "j", "x"), (None, "j", "y"), ("b", "j", "z")]

    def merge(sheet: Worksheet) -> None:
        sheet.merge_cells("A2:A4")
        sheet.merge_cells("B2:B3")
        sheet.merge_cells("A6:A9")

    path, features = edited(tmp_path, rows, merge), write_features(tmp_path / "f", "vwxyz")

    plain, filled = (read_index(path, features, fill_merged=fill) for fill in (False, True))

    inside, cure = "a_cls is blank, inside the merged rows", "unmerge and fill every row, or give --fill-merged"
    assert reasons(plain) == {
        3: f"{inside} 2 to 4; {cure}; a_item is blank, inside the merged rows 2 to 3; {cure}",
        4: f"{inside} 2 to 4; {cure}",
        5: "a_cls is blank",
    }
    assert [row[:3] for row in filled.rows] == [("a", "i", "v"), ("a", "i", "w"), ("a", "j", "x"), ("b", "j", "z")]
    assert reasons(filled) == {5: "a_cls is blank"}


def test_e14_a_sheet_that_lies_about_its_size_is_read_whole(tmp_path: Path) -> None:
    """It says A1; the rows are there, and so is the explanation of what is wrong in one."""
    rows = [("a", "i", "x"), ("b", "i", "y"), ("#N/A", "i", "z")]
    honest = edited(tmp_path, rows, lambda sheet: setattr(sheet["A4"], "data_type", "e"))
    path = tmp_path / "lying.xlsx"
    with ZipFile(honest) as old, ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b'<dimension ref="A1:C4"', b'<dimension ref="A1"'))
    assert path.stat().st_size != honest.stat().st_size
    index = read_index(path, write_features(tmp_path / "f", "xy"))
    assert [row.id for row in index.rows] == ["x", "y"]
    assert reasons(index) == {4: "a_cls is the error #N/A; correct the formula or the cell"}


def test_e15_blank_rows_at_the_end_are_counted_and_coloured_columns_are_no_cells(tmp_path: Path) -> None:
    """Whatever their style."""

    def colour(sheet: Worksheet) -> None:
        for cell in ("A9", "XFD2", "ZZ500"):
            sheet[cell].fill = PatternFill("solid", fgColor="FF0000")
        sheet["D7"] = "a remark"

    path = edited(tmp_path, [("a", "i", "x")], colour)
    index = read_index(path, write_features(tmp_path / "f", "x"))
    assert (index.rows_read, index.blank_rows, len(index.rejects)) == (1, 5, 0)


def test_e16_an_error_is_no_blank(tmp_path: Path) -> None:
    """It is named."""
    path = edited(tmp_path, [("a", "#REF!", "x")], lambda sheet: setattr(sheet["B2"], "data_type", "e"))
    index = read_index(path, write_features(tmp_path / "f", "x"))
    assert reasons(index) == {2: "a_item is the error #REF!; correct the formula or the cell"}


def test_e17_formulas_never_computed_are_reported_also_in_the_last_rows(tmp_path: Path) -> None:
    """A library wrote them, and no spreadsheet has opened the file since; the fast reader does not even see the end."""
    index = index_of(tmp_path, [("a", "i", "x"), ("a", "=B2", "y"), *[("=A2", "=B2", "=C2")] * 2], "xy")
    never = "a formula that was never computed; open and save the workbook in Excel"
    assert [row.id for row in index.rows] == ["x"]
    assert (index.rows_read, index.blank_rows) == (4, 0)
    assert reasons(index)[3] == f"a_item is {never}"
    assert reasons(index)[5] == f"a_cls is {never}; a_item is {never}; a_id is {never}"


def test_e18_hidden_rows_are_rows_and_hidden_sheets_are_left_alone_and_named(tmp_path: Path) -> None:
    """A filter hides rows from the eye only."""

    def hide(sheet: Worksheet) -> None:
        sheet.row_dimensions[3].hidden = True
        assert sheet.parent is not None
        other = sheet.parent.create_sheet("old")
        other.append(HEADER)
        other.sheet_state = "veryHidden"

    index = read_index(edited(tmp_path, [("a", "i", "x"), ("a", "i", "y")], hide), write_features(tmp_path / "f", "xy"))
    assert [row.id for row in index.rows] == ["x", "y"]
    assert index.notes == ("the hidden sheets 'old' have the columns too, and are not read; --sheet names them",)


def test_e19_a_sheet_that_is_full_to_the_last_row_is_noted(tmp_path: Path) -> None:
    """What was too long for a sheet was cut off without a word when it was written."""
    rows = xml_row(1, *HEADER) + xml_row(2, "a", "i", "x") + xml_row(1 << 20, "a", "i", "y")
    tables, notes = open_workbook(xml_workbook(tmp_path / "i.xlsx", rows), HEADER, None)
    assert sum(1 for _ in tables[0].rows) == (1 << 20) - 1
    assert "sheet 'index' is full to Excel's last row; what did not fit was cut off" in notes[0]


def test_e20_no_type_is_taken_from_the_first_rows(tmp_path: Path) -> None:
    """Three thousand numbers, then text."""
    ids = [*map(str, range(3000)), "x-1"]
    index = index_of(tmp_path, [("a", "i", int(id_) if id_.isdigit() else id_) for id_ in ids], ids)
    assert [row.id for row in index.rows] == ids


def test_e21_a_mixed_column_is_read_cell_by_cell(tmp_path: Path) -> None:
    """Number, text, text of digits."""
    index = index_of(tmp_path, [(1, 2.0, "x"), ("one", "02", 3), ("1", "2", "4")], ["x", "3", "4"])
    assert [row[:3] for row in index.rows] == [("1", "2", "x"), ("one", "02", "3"), ("1", "2", "4")]


def test_e22_white_space_around_a_name_goes_and_what_cannot_be_seen_is_refused(tmp_path: Path) -> None:
    """A no-break space too; a zero-width space is no white space and nobody sees it."""
    rows = [(" a", "i\u00a0", " x "), ("a", "\u3000i", "y"), ("a", "i\u200b", "z")]
    index = index_of(tmp_path, rows, "xyz")
    assert [row[:3] for row in index.rows] == [("a", "i", "x"), ("a", "i", "y")]
    assert "invisible character U+200B" in reasons(index)[4]
    assert index.notes == (
        "class 'a' is also spelled ' a'; one class",
        "white space around names and names not in Unicode form NFC: 4, put right",
    )


def test_e23_spellings_of_one_name_in_unicode_are_matched_and_it_is_said(tmp_path: Path) -> None:
    """Decomposed on a Mac's disk or in the index, full-width in an index from Japan."""
    nfc, nfd = "caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")
    wide = "\uff11\uff12\uff21"
    rows = [("a", "i", nfc), ("a", "i", nfd + "2"), ("a", "i", wide), ("a", "i", "x")]
    index = index_of(tmp_path, rows, [nfd, nfc + "2", "12A", "x"])
    assert [row.path for row in index.rows] == [f"{nfd}.npy", f"{nfc}2.npy", "12A.npy", "x.npy"]
    assert index.rows[2].id == wide
    assert index.notes == (
        "white space around names and names not in Unicode form NFC: 1, put right",
        f"ids spelled in another Unicode form than the names of their files: 1, first {nfc!r}: '{nfd}.npy'",
        f"ids spelled in characters of another width than the names of their files: 1, first {wide!r}: '12A.npy'",
    )


def test_e23_two_ids_of_another_width_are_one_file(tmp_path: Path) -> None:
    """And two files for one id are nobody's."""
    rows = [("a", "i", "12"), ("a", "i", "\uff11\uff12"), ("a", "i", "\uff11A")]
    index = index_of(tmp_path, rows, ["12", "1\uff21", "1A"])
    assert [row.id for row in index.rows] == ["12"]
    assert reasons(index)[3] == "id '\uff11\uff12' repeats index!2; delete one of them"
    assert "which differ in width; rename one" in reasons(index)[4]


def test_e24_a_protected_workbook_gets_a_sentence(tmp_path: Path) -> None:
    """Not "File is not a zip file"."""
    ole = bytes.fromhex("D0CF11E0A1B11AE1") + bytes(600) + "EncryptedPackage".encode("utf-16-le")
    for name in ("i.xlsx", "i.xls"):
        (tmp_path / name).write_bytes(ole)
        with pytest.raises(DataError, match=r"password-protected, .*; save it as .xlsx without a password"):
            read_index(tmp_path / name, write_features(tmp_path / "f", "x"))


def test_e25_styles_never_matter(tmp_path: Path) -> None:
    """A bare <fill/>, on which openpyxl gives up; a blank cell is then called blank."""
    rows = xml_row(1, *HEADER) + xml_row(2, "a", "i", "x") + xml_row(3, "a", "", "y")
    index = read_index(xml_workbook(tmp_path / "i.xlsx", rows), write_features(tmp_path / "f", "xy"))
    assert [row.id for row in index.rows] == ["x"]
    assert reasons(index) == {3: "a_item is blank"}


def test_e26_old_kinds_of_workbooks_are_read_with_a_notice_and_ods_is_not(tmp_path: Path) -> None:
    """.xls and .xlsb hold the same cells."""
    features = write_features(tmp_path / "f", "xy")
    xls = read_index(xls_workbook(tmp_path / "i.xls"), features)
    xlsb = read_index(xlsb_workbook(tmp_path / "i.xlsb", [HEADER, ("007", "12", "x"), ("NA", "i", "y")]), features)
    assert [row[:3] for row in xls.rows] == [row[:3] for row in xlsb.rows] == [("007", "12", "x"), ("NA", "i", "y")]
    for index in (xls, xlsb):
        assert "is of an old kind, of which blank cells, errors and formulas look alike" in index.notes[0]
    (tmp_path / "i.ods").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"an OpenDocument sheet, of which some cells cannot be read; save it as .xlsx"):
        read_index(tmp_path / "i.ods", features)


def test_e27_many_bad_cells_are_explained_in_one_pass(tmp_path: Path) -> None:
    """Two thousand errors in two thousand merged ranges: no search of each in all."""
    rows = [("a" if n % 2 else "#N/A", "i" if n % 2 else None, f"x{n}") for n in range(4000)]

    def spoil(sheet: Worksheet) -> None:
        for number in range(2, 4002, 2):
            sheet[f"A{number}"].data_type = "e"
        for number in range(3, 4001, 2):
            sheet.merge_cells(f"B{number}:B{number + 1}")

    index = read_index(
        edited(tmp_path, rows, spoil), write_features(tmp_path / "f", [f"x{n}" for n in range(1, 4000, 2)])
    )
    assert len(index.rows) == len(index.rejects) == 2000
    assert reasons(index)[4].startswith(
        "a_cls is the error #N/A; correct the formula or the cell; a_item is blank, inside"
    )


def test_e28_a_header_with_spaces_is_found_and_one_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Which of the two is meant is not guessed."""
    features = write_features(tmp_path / "f", "x")
    path = write_workbook(tmp_path / "i.xlsx", [("a", "i", "x")], header=("a_cls ", "a_item", "a_id"))
    assert len(read_index(path, features).rows) == 1
    path = write_workbook(tmp_path / "i.xlsx", [("a", "i", "x", "y")], header=(*HEADER, "a_id"))
    with pytest.raises(DataError, match="the column 'a_id' is there more than once"):
        read_index(path, features)


def test_e29_a_repeated_id_is_left_out_and_a_contradiction_takes_both_rows(tmp_path: Path) -> None:
    """Rows that say the same keep one."""
    index = index_of(tmp_path, [("a", "i", "x"), ("a", "i", "x"), ("a", "i", "y"), ("a", "j", "y")], "xy")
    assert [row.row for row in index.rows] == [2]
    assert sorted(reasons(index)) == [3, 4, 5]


@pytest.mark.parametrize(
    ("encoding", "mark", "given"),
    [
        ("utf-8", b"", None),
        ("utf-8", b"\xef\xbb\xbf", None),
        ("utf-16-le", b"\xff\xfe", None),
        ("gb18030", bytes.fromhex("84319533"), None),
        ("gb18030", b"", "gb18030"),
        ("cp1252", b"", "cp1252"),
    ],
)
def test_a_csv_says_its_encoding_by_its_mark_or_is_told(
    tmp_path: Path, encoding: str, mark: bytes, given: str | None
) -> None:
    """Without a mark it is UTF-8; anything else is asked for, as most bytes are text in many encodings."""
    name = "caf\u00e9" if encoding == "cp1252" else "\u6a31\u82b1"
    (tmp_path / "i.csv").write_bytes(mark + f"a_cls,a_item,a_id\n{name},i,x\n".encode(encoding))
    features = write_features(tmp_path / "f", "x")

    assert read_index(tmp_path / "i.csv", features, encoding=given).rows[0].class_name == name

    if given is not None:
        with pytest.raises(DataError, match=r"not UTF-8: byte \d+ is 0x[0-9A-F]{2}; say what it is, such as"):
            read_index(tmp_path / "i.csv", features)


def test_a_quote_that_is_never_closed_is_an_error_with_its_row(tmp_path: Path) -> None:
    """The csv module gives up at a cell of 131,072 characters."""
    (tmp_path / "i.csv").write_text('a_cls,a_item,a_id\na,i,x\n"b,i,y\n' + "b,i,z\n" * 30_000)
    table = open_table(tmp_path / "i.csv", HEADER, None, None)
    with pytest.raises(DataError, match=r"after row 2: .*a quote is not closed, perhaps"):
        list(table.rows)
