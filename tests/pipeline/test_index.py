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
from shards.errors import DataError
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
    assert found[3] == "id 'x' repeats index!2; delete one of them"
    assert found[4] == found[5] == "id 'y' is 'b'/'i' in index!5 and 'a'/'i' in index!4; decide which is right"


def test_a_decomposed_file_name_is_found_and_two_spellings_of_one_name_are_refused(tmp_path: Path) -> None:
    """Names from a Mac meet the index in NFC."""
    composed = "caf\u00e9"
    features = write_features(tmp_path / "f", [unicodedata.normalize("NFD", composed)])
    path = write_workbook(tmp_path / "i.xlsx", [("a", "i", composed)])

    assert len(read_index(path, features).rows) == 1

    write_features(features, [composed])
    with pytest.raises(DataError, match="one name in two Unicode spellings"):
        read_index(path, features)


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
        "white space around names and names not in Unicode form NFC: 1, put right",
    )


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
