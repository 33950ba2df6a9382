"""What `inspect` has understood of an index and its files."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pipeline import Columns, InspectConfig, inspect_corpus
from tests.pipeline.corpus import HEADER, write_corpus, write_features, write_workbook
from tests.pipeline.test_main import pipeline


def inspected(folder: Path, **options: object) -> str:
    """What is printed about FOLDER/index.xlsx and FOLDER/features, white space made single."""
    console = Console(record=True, quiet=False, width=200, file=(folder / "terminal").open("w"))
    given: dict[str, object] = {"index": folder / "index.xlsx", "features": folder / "features", **options}
    with console.file:
        inspect_corpus(InspectConfig(**given), console)  # type: ignore[arg-type]
    return " ".join(console.export_text().split())


def test_columns_classes_and_sizes_are_printed(tmp_path: Path) -> None:
    """Least, median and most of ids and items per class, frames and bytes per sample."""
    rows = [("a", "1", "u"), ("a", "1", "v"), ("a", "2", "w"), ("b", "1", "x")]
    write_features(tmp_path / "features", "uvwx")
    write_workbook(tmp_path / "index.xlsx", rows)

    text = inspected(tmp_path)

    for said in (
        "sheets index",
        "class, item, id columns a_cls, a_item, a_id",
        "split no column",
        "rows 4 rows read, 4 kept, 0 rejected",
        "classes 2",
        "items 3",
        "stored as float32 (frames, 4), 368 bytes",
        "files missing 0",
        "files without a row 0",
        "samples (ids) per class 1 2 3",
        "items per class 1 1.5 2",
        "frames per sample 5 5.5 7",
        "bytes per sample 80 88 112",
    ):
        assert said in text
    assert "cannot be used" not in text


def test_files_missing_and_files_without_a_row_are_counted(tmp_path: Path) -> None:
    """A row that cannot be used still names its file; rejects are listed with sheet and row."""
    write_features(tmp_path / "features", [*"abcd", *(f"extra{number}" for number in range(7))])
    np.save(tmp_path / "features" / "c.npy", np.zeros((3, 9), np.float32))
    rows = [("x", "1", "a"), ("x", "1", "a"), (None, "1", "b"), ("x", "1", "c"), ("x", "1", "d"), ("x", "1", "gone")]
    write_workbook(tmp_path / "index.xlsx", rows)

    text = inspected(tmp_path)

    assert "files missing 1" in text
    assert "files without a row 7: extra0.npy, extra1.npy, extra2.npy, extra3.npy, extra4.npy, ..." in text
    assert "4 rows cannot be used: index!3: id 'a' repeats index!2" in text
    assert "index!4: a_cls is blank" in text
    assert "found float32 (frames, 9)" in text
    assert "index!7: no file" in text


def test_other_columns_and_a_split_column_are_named(tmp_path: Path) -> None:
    """As they were given; the report has the splits."""
    write_features(tmp_path / "features", "uv")
    write_workbook(
        tmp_path / "index.xlsx", [("a", "1", "u", "fit"), ("a", "2", "v", "val")], header=("k", "i", "n", "fold")
    )

    text = inspected(tmp_path, columns=Columns(cls="k", item="i", id="n", split="fold"), report=tmp_path / "r.html")

    assert "class, item, id columns k, i, n" in text
    assert "split column fold" in text
    assert f"report: {tmp_path}/r.html" in text
    assert "<td>fit</td>" in (tmp_path / "r.html").read_text()


def test_an_inspection_can_be_drawn_into_a_page(tmp_path: Path) -> None:
    """Four histograms and all rejects; nothing of it tells the time."""
    write_corpus(tmp_path)
    (tmp_path / "features" / "000-0-0.npy").unlink()

    inspected(tmp_path, report=tmp_path / "r.html")
    page = (tmp_path / "r.html").read_bytes()
    inspected(tmp_path, report=tmp_path / "r.html")

    assert page == (tmp_path / "r.html").read_bytes()
    assert page.count(b"<svg") == 4
    assert f"no file {tmp_path}/features/000-0-0.npy".encode() in page
    assert b"None yet: the index has no split column" in page
    assert not (tmp_path / "shards").exists()


def test_nothing_that_can_be_used_is_still_a_report(tmp_path: Path) -> None:
    """The wrong folder is the usual reason."""
    (tmp_path / "features").mkdir()
    write_workbook(tmp_path / "index.xlsx", [("a", "1", "u")])

    text = inspected(tmp_path, report=tmp_path / "r.html")

    assert "stored as nothing" in text
    assert "files missing 1" in text


@pytest.mark.parametrize("name", ["[/red]", "[bold]x[/bold]"])
def test_names_are_no_markup(tmp_path: Path, name: str) -> None:
    """Brackets in labels and files stay brackets."""
    write_features(tmp_path / "features", [name.replace("/", "|")])
    write_workbook(tmp_path / "index.xlsx", [(name, name, "gone"), (name.upper(), name, f"{name}?")], header=HEADER)

    text = inspected(tmp_path)

    assert f"files without a row 1: {name.replace('/', '|')}.npy" in text
    assert f"{name}?" in text


def test_the_exit_status_says_whether_all_rows_can_be_used(tmp_path: Path) -> None:
    """0 if so, 1 if not, 2 if there is no index."""
    write_corpus(tmp_path)
    options = ("inspect", "--index", tmp_path / "index.xlsx", "--features", tmp_path / "features")

    assert pipeline(*options).returncode == 0
    (tmp_path / "features" / "000-0-0.npy").unlink()
    found = pipeline(*options)
    assert found.returncode == 1
    assert "1 rows cannot be used:\n  index!2: no file" in found.stdout
    assert pipeline("inspect", "--index", tmp_path / "i.xlsx", "--features", tmp_path).returncode == 2
