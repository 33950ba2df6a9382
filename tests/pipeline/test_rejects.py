"""What is left out: how much may be, and how it is written down so that it stays text."""

import csv
import time
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openpyxl import load_workbook
from python_calamine import CalamineWorkbook
from rich.console import Console

from pipeline.rejects import Reject, allowed_rejects, plain, write_rejects
from pipeline.verify import VerifyConfig, verify_shards
from shards import ConfigError, DataError
from tests.pipeline.corpus import build, config_for, contents, spoil, write_corpus

FORMULAS = ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1")
QUIET = Console(quiet=True)


def cells_of_csv(folder: Path) -> list[list[str]]:
    with (folder / "rejects.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.parametrize(("limit", "rows", "allowed"), [(0, 99, 0), (20, 5, 20), ("20", 5, 20), ("1%", 400_000, 4_000)])
def test_a_limit_is_a_count_or_a_share_of_the_rows(limit: int | str, rows: int, allowed: int) -> None:
    """As typed on the command line or in a file."""
    assert allowed_rejects(limit, rows) == allowed


@given(st.integers(0, 10_000), st.integers(0, 10**7))
def test_a_share_is_rounded_down_and_exact(hundredths: int, rows: int) -> None:
    """One percent of 99 rows is none; no binary fraction decides."""
    assert allowed_rejects(f"{hundredths // 100}.{hundredths % 100:02d}%", rows) == hundredths * rows // 10_000


@pytest.mark.parametrize("limit", [-1, "101%", "1.5", "some", "%", "", "1e3", "\u0661"])
def test_a_limit_that_is_neither_is_refused(tmp_path: Path, limit: int | str) -> None:
    """When the options are read, with an example of each kind."""
    with pytest.raises(ConfigError, match="expected a count such as 20, or a share of the rows such as 1%"):
        config_for(tmp_path, max_rejects=limit)


@pytest.mark.parametrize("text", [*FORMULAS, "#N/A", "TRUE", "007", "1e5", "_x0041_", " pad ", "a\tb", "caf\u00e9"])
def test_whatever_a_cell_held_is_text_in_both_files(tmp_path: Path, text: str) -> None:
    """The workbook has the very text, for two readers; the CSV a quote before what would run."""
    write_rejects(tmp_path, [Reject(text, 2, text, text)])

    wanted = plain(text)
    sheet = load_workbook(tmp_path / "rejects.xlsx").active
    assert sheet is not None
    for column in (1, 3, 4):
        cell = sheet.cell(2, column)
        assert cell.data_type in {"s", "inlineStr"}
        assert str(cell.value).replace("_x005F_", "_") == wanted
        assert cell.quotePrefix
    read = CalamineWorkbook.from_path(tmp_path / "rejects.xlsx").get_sheet_by_index(0).to_python()
    assert read[0] == ["sheet", "row", "id", "reason"]
    assert read[1][1] == 2
    assert b"<f>" not in ZipFile(tmp_path / "rejects.xlsx").read("xl/worksheets/sheet1.xml")
    shown = cells_of_csv(tmp_path)[1]
    assert shown[1] == "2"
    assert shown[0] in {wanted, f"'{wanted}"}
    assert not shown[0].startswith(("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d"))


@given(st.text())
@example("\x00\ud800\ufffe\x1b[2J")
def test_any_text_can_be_written_and_read(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """What XML cannot hold is spelled out."""
    folder = tmp_path_factory.getbasetemp()
    write_rejects(folder, [Reject("s", 1, text, "r")])

    value = load_workbook(folder / "rejects.xlsx").active["C2"].value or ""  # type: ignore[index]
    assert value.replace("_x005F_", "_") == plain(text)
    assert cells_of_csv(folder)[1][2].removeprefix("'") in {plain(text), plain(text).removeprefix("'")}


def test_the_same_rejects_give_the_same_bytes_at_any_time(tmp_path: Path) -> None:
    """A workbook usually holds the time at which it was saved, in two places."""
    rejects = [Reject("s", row, f"{row}", "no file") for row in (3, 2)]
    for name in "ab":
        (tmp_path / name).mkdir()
    write_rejects(tmp_path / "a", rejects)
    time.sleep(2.1)  # zip counts in steps of two seconds
    write_rejects(tmp_path / "b", rejects[::-1])

    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert {info.date_time for info in ZipFile(tmp_path / "a" / "rejects.xlsx").infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_files_found_bad_while_writing_are_left_out_as_far_as_may_be(tmp_path: Path) -> None:
    """The shard has the others, the dataset is whole, and a second run finds everything done."""
    spoil(write_corpus(tmp_path, classes=4), "000-0-0", "001-1-1")

    manifest = build(tmp_path, max_rejects=2)

    assert len(manifest) == 22
    assert {"000-0-0", "001-1-1"}.isdisjoint(manifest.table.column("id").to_pylist())
    assert (manifest.info.options["rows_kept"], manifest.info.options["rows_rejected"]) == (22, 2)
    assert [row[1:3] for row in cells_of_csv(tmp_path / "shards")[1:]] == [["2", "000-0-0"], ["11", "001-1-1"]]
    for row in range(len(manifest)):
        data = manifest.shard_path(row).read_bytes()[manifest.offsets[row] :][: manifest.nbytes[row]]
        assert data == np.load(tmp_path / "features" / f"{manifest.id(row)}.npy").tobytes()
    assert verify_shards(VerifyConfig(shards=tmp_path / "shards"), QUIET) == []
    before = contents(tmp_path / "shards")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "shards").glob("*.tar")}
    build(tmp_path, max_rejects="9%")
    assert contents(tmp_path / "shards") == before
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "shards").glob("*.tar")}


def test_one_reject_more_than_may_be_stops_the_build_in_the_middle(tmp_path: Path) -> None:
    """Rows found bad before count too; what is whole by then is kept, and a larger limit goes on from there to
    the same bytes as a build that was never stopped.
    """
    bad = ("000-0-0", "001-0-0", "003-0-0")
    spoil(write_corpus(tmp_path, classes=4, frames=100_000), *bad)
    (tmp_path / "features" / "002-0-0.npy").unlink()

    with pytest.raises(DataError) as caught:
        build(tmp_path, max_rejects=2, shard_mb=4)

    assert "3 of 24 rows cannot be used, --max-rejects is 2; found while writing:\n  index!" in str(caught.value)
    assert "000-0-0.npy: 1 values are NaN or infinite" in str(caught.value)
    assert "give a larger --max-rejects to leave them out and go on" in str(caught.value)
    assert not (tmp_path / "shards" / "dataset.json").exists()
    shards = len(list((tmp_path / "shards").glob("*.tar")))
    manifest = build(tmp_path, max_rejects=4, shard_mb=4)
    assert len(manifest) == 20
    assert 0 < shards < len(manifest.shard_names)
    build(tmp_path, max_rejects=4, shard_mb=4, shards=tmp_path / "unbroken")
    assert contents(tmp_path / "shards") == contents(tmp_path / "unbroken")
    with pytest.raises(DataError, match="4 of 24 rows cannot be used, --max-rejects is 3"):
        build(tmp_path, max_rejects=3, shard_mb=4)
    assert len(manifest) == 20


def test_a_shard_of_which_nothing_is_left_is_no_file(tmp_path: Path) -> None:
    """Its class keeps its label without a sample; when all files are bad, there is no dataset."""
    write_corpus(tmp_path, classes=2, items=1, samples=1, frames=500_000)
    spoil(tmp_path, "000-0-0")

    manifest = build(tmp_path, max_rejects=1, shard_mb=1)

    assert manifest.classes == ("000", "001")
    assert manifest.labels.tolist() == [1]
    assert manifest.shard_names == ["train-00001.tar"]
    assert [path.name for path in (tmp_path / "shards").glob("*.tar")] == ["train-00001.tar"]
    assert verify_shards(VerifyConfig(shards=tmp_path / "shards"), QUIET) == []
    build(tmp_path, max_rejects=1, shard_mb=1)

    spoil(tmp_path, "001-0-0")
    with pytest.raises(DataError, match="2 of 2 rows cannot be used"):
        build(tmp_path, max_rejects="100%", shard_mb=1, overwrite=True)
