"""Workbooks and ids that would harm who reads them: refused with a message, no memory taken, no file outside read."""

import resource
from pathlib import Path

import pytest

from pipeline.index import read_index
from pipeline.ooxml import reaches
from shards.errors import ConfigError, DataError
from tests.pipeline.corpus import HEADER, write_features, write_workbook
from tests.pipeline.workbooks import xml_row, xml_workbook

GOOD = xml_row(1, *HEADER) + xml_row(2, "a", "i", "x")
ENTITIES = (
    '<!DOCTYPE bomb [<!ENTITY a "aaaaaaaaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    f"<worksheet>{GOOD}<row><c><v>&b;</v></c></row></worksheet>"
)
OUTSIDE = '<!DOCTYPE x [<!ENTITY x SYSTEM "file:///etc/hostname">]><worksheet><row><c><v>&x;</v></c></row></worksheet>'


def cell(place: str) -> str:
    row = "".join(filter(str.isdigit, place))
    return f'<row r="{row}"><c r="{place}"><v>1</v></c></row>'


@pytest.mark.parametrize(
    ("rows", "parts", "says"),
    [
        (
            GOOD + cell("CRXO500000"),
            {},
            "as far as column 65,535 and row 500,000; an index needs a few columns",
        ),
        (GOOD + cell("XFD1048576"), {}, "as far as column 16,384 and row 1,048,576"),
        (GOOD + cell("C99999999"), {}, "as far as column 26 and row 99,999,999"),
        (GOOD + cell("ZZ200000"), {}, "as far as column 702 and row 200,000"),
        (GOOD, {"xl/worksheets/sheet1.xml": ENTITIES}, "sheet1.xml declares a document type or entities"),
        (GOOD, {"xl/worksheets/sheet1.xml": OUTSIDE}, "sheet1.xml declares a document type or entities"),
        (GOOD, {"xl/sharedStrings.xml": ENTITIES}, "sharedStrings.xml declares a document type or entities"),
        (GOOD, {"xl/workbook.xml": "<workbook>"}, "not a readable workbook"),
        (GOOD, {"xl/_rels/workbook.xml.rels": "no XML"}, "not a readable workbook"),
    ],
)
def test_a_workbook_that_would_take_all_memory_is_refused_before_it_is_parsed(
    tmp_path: Path, rows: str, parts: dict[str, str], says: str
) -> None:
    """The parser lays a sheet out as a rectangle, and trusts."""
    path = xml_workbook(tmp_path / "i.xlsx", rows, parts=parts)
    features = write_features(tmp_path / "f", "x")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(DataError, match=says):
        read_index(path, features)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_a_wide_sheet_of_a_few_rows_is_just_wide(tmp_path: Path) -> None:
    """65,535 columns of header are read, and named if the right ones are missing."""
    index = read_index(xml_workbook(tmp_path / "i.xlsx", GOOD + cell("CRXO3")), write_features(tmp_path / "f", "x"))
    assert len(index.rows) == 1
    assert index.blank_rows == 1


def test_the_reach_of_a_sheet_is_that_of_its_filled_cells(tmp_path: Path) -> None:
    """Styled cells without a value are none."""
    rows = GOOD + '<row r="9"><c r="ZZ9" s="1"/><c s="1" r="AB9"><v>1</v></c></row>'
    assert reaches(xml_workbook(tmp_path / "i.xlsx", rows))["index"][:2] == (28, 9)


@pytest.mark.parametrize("kind", ["xlsx", "csv"])
def test_an_index_of_zeros_or_of_noise_is_no_index(tmp_path: Path, kind: str) -> None:
    """One message, no traceback."""
    (tmp_path / f"i.{kind}").write_bytes(bytes(1000))
    with pytest.raises(DataError, match=r"not a readable workbook|no column"):
        read_index(tmp_path / f"i.{kind}", write_features(tmp_path / "f", "x"))


@pytest.mark.parametrize("pattern", ["{id}", "{cls}/{item}/{id}.npy", "sub/{item}/{id}.npy"])
def test_labels_in_a_path_cannot_lead_out_of_the_folder(tmp_path: Path, pattern: str) -> None:
    """Whatever part of the path they make."""
    write_features(tmp_path, ["secret"])
    rows = [("../..", "..", "../secret.npy"), ("/etc", "..", "/etc/passwd")]
    index = read_index(
        write_workbook(tmp_path / "i.xlsx", rows), write_features(tmp_path / "f", ["x", "sub/y"]), pattern=pattern
    )
    assert not index.rows
    assert all("leaves the feature folder" in reject.reason for reject in index.rejects)


@pytest.mark.parametrize(
    "pattern", ["x.npy", "{}.npy", "{id.npy", "{id!r}", "{id:>9}", "{name}/{id}", "../{id}", "/f/{id}"]
)
def test_a_pattern_is_a_path_below_the_folder_with_the_id_in_it(pattern: str) -> None:
    """Said before anything is read."""
    with pytest.raises(ConfigError, match="pattern"):
        read_index(Path("nowhere"), Path("nowhere"), pattern=pattern)
