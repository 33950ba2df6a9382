"""From a workbook, CSV or Parquet file and a folder to an Index: nothing lost, nothing guessed."""

import datetime as dt
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from openpyxl import Workbook
from openpyxl.styles import PatternFill

from pipeline.index import Columns, read_index
from shards.errors import ConfigError, DataError
from tests.pipeline.corpus import HEADER, write_features, write_workbook

ROWS = (("007", "NA", "0001"), ("null", "TRUE", "0002"), ("1e5", "nan", "0003"))


def rejected(folder: Path, rows: Sequence[Sequence[Any]], ids: Sequence[str] = ("x", "y", "z")) -> dict[int, str]:
    """Reason by row number of what is rejected of a workbook with these rows and files for `ids`."""
    index = read_index(write_workbook(folder / "i.xlsx", rows), write_features(folder / "f", ids))
    assert index.rows_read == len(index.rows) + len(index.rejects)
    return {reject.row: reject.reason for reject in index.rejects}


@pytest.mark.parametrize("kind", ["xlsx", "csv", "semicolon", "tab", "bom", "parquet"])
def test_every_source_gives_the_same_labels_as_they_were_typed(tmp_path: Path, kind: str) -> None:
    """Zeros in front, NA, null, nan, TRUE and 1e5 as text come out as the text that went in."""
    features = write_features(tmp_path / "features", [row[2] for row in ROWS])
    delimiter = {"semicolon": ";", "tab": "\t"}.get(kind, ",")
    text = "\n".join(delimiter.join(row) for row in (HEADER, *ROWS))
    path = tmp_path / f"index.{kind if kind in {'xlsx', 'parquet'} else 'csv'}"
    if kind == "xlsx":
        write_workbook(path, ROWS)
    elif kind == "parquet":
        pq.write_table(pa.table(dict(zip(HEADER, zip(*ROWS, strict=True), strict=True))), path)
    else:
        path.write_text(text, encoding="utf-8-sig" if kind == "bom" else "utf-8")

    index = read_index(path, features)

    assert [row[:3] for row in index.rows] == list(ROWS)
    assert [row.path for row in index.rows] == ["0001.npy", "0002.npy", "0003.npy"]
    assert index.rows_read == 3
    assert not index.rejects


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


def test_every_bad_cell_is_rejected_with_its_row_and_what_it_holds(tmp_path: Path) -> None:
    """Blank, boolean, date, long number: each by its own row, several in one row together."""
    found = rejected(
        tmp_path,
        [
            ("a", "i", "x"),
            (None, "i", "y"),
            ("a", True, "y"),
            (dt.date(2026, 9, 7), "i", "y"),
            ("a", "i", 12345678901234567),
            ("a", 1.5, None),
            ("a", "i", "y"),
        ],
    )

    assert list(found) == [3, 4, 5, 6, 7]
    assert found[3] == "a_cls is blank"
    assert found[4] == "a_item is TRUE, a boolean; make the cell text"
    assert found[5].startswith("a_cls is 2026-09-07, a date or time")
    assert "a number of more than 15 digits, which Excel rounds; make it text" in found[6]
    assert found[7] == "a_item is 1.5, a number with a fraction; make the cell text; a_id is blank"


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
        5: "a_cls is blank, inside the merged rows 4 to 5; unmerge and fill every row",
    }


def test_trailing_blank_rows_are_counted_and_blank_rows_between_are_rejected(tmp_path: Path) -> None:
    """Rows read = kept + rejected; blank rows at the end are neither, whatever their colour or notes."""
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (HEADER, ("a", "i", "x"), (None, None, None), ("a", "i", "y")):
        sheet.append(row)
    sheet["D5"], sheet["B6"] = "a remark", " "
    sheet["A9"].fill = PatternFill("solid", fgColor="FF0000")
    book.save(tmp_path / "i.xlsx")

    index = read_index(tmp_path / "i.xlsx", write_features(tmp_path / "f", "xy"))

    assert (index.rows_read, len(index.rows), index.blank_rows) == (3, 2, 2)
    assert [str(r) for r in index.rejects] == ["Sheet!3: the row is blank, with rows below it; delete it or fill it in"]


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


def test_a_missing_file_is_named_and_lost_zeros_are_pointed_out(tmp_path: Path) -> None:
    """7 in the sheet and 007.npy on disk: said, never guessed."""
    found = rejected(tmp_path, [("a", "i", "nowhere"), ("a", "i", 7)], ids=["007"])

    assert found[2] == f"no file {tmp_path / 'f' / 'nowhere.npy'}"
    assert "007.npy is there: make the id column text to keep its zeros" in found[3]


@pytest.mark.parametrize("id_", ["../x", "a/../../x", "/etc/x"])
def test_an_id_cannot_leave_the_feature_folder(tmp_path: Path, id_: str) -> None:
    """Even if there is a file."""
    write_features(tmp_path, ["x"])

    assert f"id {id_!r} leaves the feature folder" in rejected(tmp_path, [("a", "i", id_)])[2]


def test_an_id_may_name_a_subfolder_or_carry_the_suffix(tmp_path: Path) -> None:
    """`deep/er/x` and `y.npy` are files below the feature folder."""
    write_features(tmp_path / "f", ["deep/er/x", "y"])
    path = write_workbook(tmp_path / "i.xlsx", [("a", "i", "deep/er/x"), ("a", "i", "y.npy")])

    assert [row.path for row in read_index(path, tmp_path / "f").rows] == ["deep/er/x.npy", "y.npy"]


def test_a_repeated_id_is_rejected_and_a_contradicting_one_takes_both_rows_with_it(tmp_path: Path) -> None:
    """The same row twice: the first stays. Two classes for one file: nobody knows which is right."""
    found = rejected(tmp_path, [("a", "i", "x"), ("a", "i", "x"), ("a", "i", "y"), ("b", "i", "y"), ("b", "i", "z")])

    assert list(found) == [3, 5, 4]
    assert found[3] == "id 'x' repeats row 2; delete one of them"
    assert found[4] == found[5] == "id 'y' is 'b'/'i' in row 5 and 'a'/'i' in row 4; decide which is right"


def test_a_decomposed_file_name_is_found_and_two_spellings_of_one_name_are_refused(tmp_path: Path) -> None:
    """Names from a Mac meet the index in NFC."""
    composed = "caf\u00e9"
    features = write_features(tmp_path / "f", [unicodedata.normalize("NFD", composed)])
    path = write_workbook(tmp_path / "i.xlsx", [("a", "i", composed)])

    assert len(read_index(path, features).rows) == 1

    write_features(features, [composed])
    with pytest.raises(DataError, match="one name in two Unicode spellings"):
        read_index(path, features)


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
        ("index.ods", b"", "an index is .xlsx, .csv or .parquet, not '.ods'"),
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


def test_one_visible_sheet_may_have_the_columns_or_one_is_named(tmp_path: Path) -> None:
    """Two that fit are a question for the person; a hidden one is never picked unasked."""
    features = write_features(tmp_path / "f", ["x", "y", "z"])
    book = Workbook()
    sheets = (book.active, book.create_sheet("two"), book.create_sheet("hidden"), book.create_sheet("notes"))
    for sheet, id_ in zip(sheets[:3], "xyz", strict=True):
        sheet.append(HEADER)
        sheet.append(("a", "i", id_))
    sheets[2].sheet_state = "hidden"
    sheets[3].append(("remarks",))
    book.save(tmp_path / "i.xlsx")

    with pytest.raises(DataError, match=r"the sheets 'Sheet', 'two' all have the columns .* name one with --sheet"):
        read_index(tmp_path / "i.xlsx", features)
    with pytest.raises(DataError, match="no sheet 'three'; the sheets are 'Sheet', 'two', 'hidden', 'notes'"):
        read_index(tmp_path / "i.xlsx", features, sheet="three")
    with pytest.raises(DataError, match="sheet 'notes': no column 'a_cls', 'a_item', 'a_id'; found 'remarks'"):
        read_index(tmp_path / "i.xlsx", features, sheet="notes")
    assert [read_index(tmp_path / "i.xlsx", features, sheet=s).rows[0].id for s in ("two", "hidden")] == ["y", "z"]
    (tmp_path / "i.csv").write_text("a_cls\n")
    with pytest.raises(ConfigError, match=r"i.csv has no sheets; leave --sheet out"):
        read_index(tmp_path / "i.csv", features, sheet="two")


def test_classes_that_differ_in_case_or_width_alone_stay_apart_and_are_noted(tmp_path: Path) -> None:
    """Dog and dog may be two classes or a slip; a person decides."""
    path = write_workbook(tmp_path / "i.xlsx", [("Dog", "i", "x"), ("dog", "i", "y"), ("cat", "i", "z")])

    index = read_index(path, write_features(tmp_path / "f", "xyz"))

    assert index.notes == ("classes 'Dog', 'dog' differ only in case or width; they stay apart",)
    assert len({row.class_name for row in index.rows}) == 3


def test_a_class_that_is_spelled_in_several_ways_is_one_class_and_noted(tmp_path: Path) -> None:
    """1 and "1", "dog " and "dog": equal labels, which a person should hear of."""
    rows = [(1, "i", "w"), ("1", "i", "x"), ("dog ", "i", "y"), ("dog", "i", "z"), (2, "i", "v")]
    index = read_index(write_workbook(tmp_path / "i.xlsx", rows), write_features(tmp_path / "f", "vwxyz"))

    assert {row.class_name for row in index.rows} == {"1", "2", "dog"}
    assert index.notes == (
        "class '1' is also spelled 1.0; one class",
        "class 'dog' is also spelled 'dog '; one class",
    )


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


def test_the_split_column_is_read_if_there_is_one_and_must_be_there_if_it_is_named(tmp_path: Path) -> None:
    """By default a column called split; another by --columns.split."""
    features = write_features(tmp_path / "f", ["x"])
    path = write_workbook(tmp_path / "i.xlsx", [("a", "i", "x", "val")], header=(*HEADER, "split"))

    assert read_index(path, features).rows[0].split == "val"
    assert read_index(path, features, columns=Columns(split=None)).rows[0].split is None
    with pytest.raises(DataError, match="no column 'fold' for the split"):
        read_index(path, features, columns=Columns(split="fold"))
    with pytest.raises(DataError, match="one column cannot be two things"):
        read_index(path, features, columns=Columns(cls="a_id"))


def test_an_index_becomes_a_frame_of_text(tmp_path: Path) -> None:
    """Labels are still as typed."""
    path = write_workbook(tmp_path / "i.xlsx", ROWS)

    frame = read_index(path, write_features(tmp_path / "f", ["0001", "0002", "0003"])).to_pandas()

    assert isinstance(frame, pd.DataFrame)
    assert frame["id"].tolist() == ["0001", "0002", "0003"]
    assert frame["class_name"].tolist() == ["007", "null", "1e5"]
    assert frame["row"].tolist() == [2, 3, 4]
