"""What a workbook, CSV or Parquet file holds, and what is said of one that is no index."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook

from pipeline.index import Columns, read_index
from shards.errors import ConfigError, DataError
from tests.pipeline.corpus import HEADER, write_features, write_workbook


def test_row_numbers_are_the_sheets_own_wherever_the_table_begins(tmp_path: Path) -> None:
    """A table that begins at C5 reports row 7 as row 7, and finds its columns."""
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for row, values in enumerate([HEADER, ("a", "i", "x"), ("a", None, "y")], start=5):
        for column, value in enumerate(values, start=3):
            sheet.cell(row, column, value)
    book.save(tmp_path / "i.xlsx")

    index = read_index(tmp_path / "i.xlsx", write_features(tmp_path / "f", ["x", "y"]))

    assert [row.row for row in index.rows] == [6]
    assert [str(reject) for reject in index.rejects] == ["Sheet!7: a_item is blank"]


def test_an_error_cell_a_formula_and_a_merged_cell_are_told_from_a_blank_one(tmp_path: Path) -> None:
    """The fast reader sees them alike; the message does not."""
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (HEADER, ("#N/A", "i", "x"), ("a", "=A1", "y"), ("b", "i", "z"), (None, "i", "w"), ("c", "i", "v")):
        sheet.append(row)
    sheet["A2"].data_type = "e"
    sheet.merge_cells("A4:A5")
    book.save(tmp_path / "i.xlsx")

    index = read_index(tmp_path / "i.xlsx", write_features(tmp_path / "f", "vwxyz"))

    reasons = {reject.row: reject.reason for reject in index.rejects}
    assert reasons == {
        2: "a_cls is the error #N/A; correct the formula or the cell",
        3: "a_item is a formula that was never computed; open and save the workbook in Excel",
        5: "a_cls is blank, inside the merged rows 4 to 5; unmerge and fill every row, or give --fill-merged",
    }


def test_an_error_cell_in_the_last_row_is_no_blank_row(tmp_path: Path) -> None:
    """A last row of errors in all three columns is rejected, not taken for the end."""
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (HEADER, ("a", "i", "x"), ("#REF!", "#REF!", "#REF!")):
        sheet.append(row)
    for cell in sheet[3]:
        cell.data_type = "e"
    book.save(tmp_path / "i.xlsx")

    index = read_index(tmp_path / "i.xlsx", write_features(tmp_path / "f", "x"))

    assert (index.rows_read, index.blank_rows) == (2, 0)
    assert "a_id is the error #REF!" in index.rejects[0].reason


def test_missing_columns_are_an_error_that_lists_what_was_found(tmp_path: Path) -> None:
    """In a workbook by sheet, elsewhere by file."""
    features = write_features(tmp_path / "f", ["x"])
    path = write_workbook(tmp_path / "i.xlsx", [("a", "i", "x")], header=("class", "a_item", "a_id"))
    with pytest.raises(DataError, match=r"columns 'a_cls', 'a_item', 'a_id': 'index' has 'class', 'a_item', 'a_id'"):
        read_index(path, features)
    (tmp_path / "i.csv").write_text("class,a_item\n")
    with pytest.raises(DataError, match=r"no column 'a_cls', 'a_id'; found 'class', 'a_item'; rename"):
        read_index(tmp_path / "i.csv", features)

    index = read_index(path, features, columns=Columns(cls="class"))

    assert index.rows[0].class_name == "a"


def test_an_empty_workbook_and_a_sheet_without_rows_are_errors(tmp_path: Path) -> None:
    """Each in its own words."""
    features = write_features(tmp_path / "f", ["x"])
    Workbook().save(tmp_path / "empty.xlsx")
    with pytest.raises(DataError, match="the workbook is empty"):
        read_index(tmp_path / "empty.xlsx", features)
    with pytest.raises(DataError, match="has a header and no rows below it"):
        read_index(write_workbook(tmp_path / "header.xlsx", []), features)
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(DataError, match="empty; the first row must name the columns"):
        read_index(tmp_path / "empty.csv", features)


def test_files_that_are_no_index_are_refused_in_words(tmp_path: Path) -> None:
    """Missing, protected, damaged, or of another kind."""
    features = write_features(tmp_path / "f", ["x"])
    for name, content, says in (
        ("none.xlsx", None, "no such file"),
        ("locked.xlsx", bytes.fromhex("D0CF11E0A1B11AE1") + bytes(999), "password-protected, or an old .xls"),
        ("broken.xlsx", b"PK nothing", "not a readable workbook"),
        ("broken.parquet", b"PAR1", "not a readable Parquet file"),
        ("latin.csv", "a_cls\n\u00e9".encode("latin-1"), "not UTF-8"),
        ("index.txt2", b"", "an index is .xlsx, .csv or .parquet, not '.txt2'"),
        ("index.ods", b"", "an OpenDocument sheet, of which some cells cannot be read; save it as .xlsx"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=says):
            read_index(tmp_path / name, features)
    with pytest.raises(DataError, match="no such folder"):
        read_index(write_workbook(tmp_path / "i.xlsx", [("a", "i", "x")]), tmp_path / "nowhere")


def test_a_header_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """Which of the two is meant is not guessed."""
    path = write_workbook(tmp_path / "i.xlsx", [("a", "i", "x", "y")], header=(*HEADER, "a_id "))
    with pytest.raises(DataError, match="the column 'a_id' is there more than once"):
        read_index(path, write_features(tmp_path / "f", ["x"]))


def test_all_visible_sheets_with_the_columns_are_read_or_those_that_are_named(tmp_path: Path) -> None:
    """Each in its own order of columns; what is not read is said."""
    features = write_features(tmp_path / "f", ["x", "y", "z"])
    book = Workbook()
    sheets = (book.active, book.create_sheet("two"), book.create_sheet("hidden"), book.create_sheet("notes"))
    for sheet, id_ in zip(sheets[:3], "xyz", strict=True):
        assert sheet is not None
        sheet.append(HEADER)
        sheet.append(("a", "i", id_))
    sheets[1].move_range("A1:A2", cols=4)
    sheets[2].sheet_state = "hidden"
    sheets[3].append(("remarks",))
    book.save(tmp_path / "i.xlsx")

    index = read_index(tmp_path / "i.xlsx", features)

    assert [(row.sheet, row.row, row.id) for row in index.rows] == [("Sheet", 2, "x"), ("two", 2, "y")]
    assert index.sheets == ("Sheet", "two")
    assert index.notes == (
        "2 sheets are read, 'Sheet', 'two'; --sheet names other ones",
        "the sheets 'notes' have not the columns 'a_cls', 'a_item', 'a_id', and are not read",
        "the hidden sheets 'hidden' have the columns too, and are not read; --sheet names them",
    )
    named = read_index(tmp_path / "i.xlsx", features, sheets=["two", "hidden"])
    assert [row.id for row in named.rows] == ["y", "z"]
    assert named.notes == ()
    with pytest.raises(DataError, match="no sheet 'three'; the sheets are 'Sheet', 'two', 'hidden', 'notes'"):
        read_index(tmp_path / "i.xlsx", features, sheets=["three"])
    with pytest.raises(DataError, match="sheet 'notes': no column 'a_cls', 'a_item', 'a_id'; found 'remarks'"):
        read_index(tmp_path / "i.xlsx", features, sheets=["notes"])
    (tmp_path / "i.csv").write_text("a_cls\n")
    with pytest.raises(ConfigError, match=r"i.csv has no sheets; leave --sheet out"):
        read_index(tmp_path / "i.csv", features, sheets=["two"])


def test_one_id_in_two_sheets_is_one_id(tmp_path: Path) -> None:
    """The message names both places."""
    book = Workbook()
    for sheet, class_name in ((book.active, "a"), (book.create_sheet("two"), "b")):
        assert sheet is not None
        for row in (HEADER, (class_name, "i", "x"), ("a", "i", "y")):
            sheet.append(row)
    book.save(tmp_path / "i.xlsx")

    index = read_index(tmp_path / "i.xlsx", write_features(tmp_path / "f", "xy"))

    assert {str(reject) for reject in index.rejects} == {
        "two!3: id 'y' repeats Sheet!3; delete one of them",
        "two!2: id 'x' is 'b'/'i' in two!2 and 'a'/'i' in Sheet!2; decide which is right",
        "Sheet!2: id 'x' is 'b'/'i' in two!2 and 'a'/'i' in Sheet!2; decide which is right",
    }


def test_a_split_column_is_in_all_sheets_or_in_none(tmp_path: Path) -> None:
    """Half a split is no split."""
    book = Workbook()
    for sheet, row in ((book.active, (*HEADER, "split")), (book.create_sheet("two"), HEADER)):
        assert sheet is not None
        sheet.append(row)
        sheet.append(("a", "i", "x", "val")[: len(row)])
    book.save(tmp_path / "i.xlsx")

    with pytest.raises(DataError, match=r"no column 'split' for the split: sheet 'two' has .*every sheet or to none"):
        read_index(tmp_path / "i.xlsx", write_features(tmp_path / "f", "x"))


def test_numbers_in_parquet_follow_the_same_rule(tmp_path: Path) -> None:
    """12 and "12" are one label; a null is blank, a float with a fraction no label."""
    table = pa.table({"a_cls": [12, 13, 14], "a_item": [1.0, 2.5, None], "a_id": ["x", "y", "z"], "other": [1, 2, 3]})
    pq.write_table(table, tmp_path / "i.parquet")

    index = read_index(tmp_path / "i.parquet", write_features(tmp_path / "f", "xyz"))

    assert index.rows[0][:3] == ("12", "1", "x")
    assert [str(r) for r in index.rejects] == [
        "i.parquet!2: a_item is 2.5, a number with a fraction; make the cell text",
        "i.parquet!3: a_item is blank",
    ]


def test_a_quoted_csv_cell_keeps_its_commas_and_a_short_row_is_rejected(tmp_path: Path) -> None:
    """Records are numbered as Excel would."""
    (tmp_path / "i.csv").write_text('a_cls,a_item,a_id\n"one, two",i,x\na,i\na,i,y\n')

    index = read_index(tmp_path / "i.csv", write_features(tmp_path / "f", "xy"))

    assert [row[:3] for row in index.rows] == [("one, two", "i", "x"), ("a", "i", "y")]
    assert [str(reject) for reject in index.rejects] == ["i.csv!3: a_id is blank"]
