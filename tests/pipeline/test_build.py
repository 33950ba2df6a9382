"""A build: what lies on disk afterwards, for any reader; and when it refuses."""

import json
import os
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset as wds
from rich.console import Console

from pipeline import build_shards
from shards import ConfigError, DataError, Manifest
from tests.pipeline.corpus import (
    HEADER,
    build,
    config_for,
    contents,
    spoil,
    write_corpus,
    write_features,
    write_workbook,
)


def source_of(folder: Path, manifest: Manifest, row: int) -> np.ndarray[Any, Any]:
    return np.load(folder / "features" / f"{manifest.id(row)}.npy")


def test_every_payload_is_the_source_bit_for_bit_on_a_page_boundary(tmp_path: Path) -> None:
    """At the offset that the manifest gives, in the shard that it names."""
    manifest = build(write_corpus(tmp_path))

    assert len(manifest) == 18
    assert not (manifest.offsets % 4096).any()
    for row in range(len(manifest)):
        array = source_of(tmp_path, manifest, row)
        with manifest.shard_path(row).open("rb") as file:
            file.seek(manifest.offsets[row])
            assert file.read(manifest.nbytes[row]) == array.tobytes()
        assert manifest.frames[row] == len(array)


def test_tarfile_and_numpy_read_every_member(tmp_path: Path) -> None:
    """Three members a sample, keys in order, labels as in the manifest."""
    manifest = build(write_corpus(tmp_path))

    row = 0
    for name in manifest.shard_names:
        with tarfile.open(tmp_path / "shards" / name) as archive:
            names = archive.getnames()
            for key in range(len(names) // 3):
                assert names[3 * key : 3 * key + 3] == [f"{key:06d}.cls", f"{key:06d}.json", f"{key:06d}.npy"]
                label, described, array = (archive.extractfile(n).read() for n in names[3 * key : 3 * key + 3])  # type: ignore[union-attr]
                assert int(label) == manifest.labels[row]
                assert json.loads(described)["id"] == manifest.id(row)
                assert np.array_equal(np.load(BytesIO(array), allow_pickle=False), source_of(tmp_path, manifest, row))
                row += 1
    assert row == len(manifest)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_webdataset_reads_and_decodes_every_sample(tmp_path: Path) -> None:
    """Its own decoders for npy, cls and json; one sample a key, ids with dots and all."""
    rows = [("a.b", "i.1", f"{n}.x.y") for n in range(3)] + [("c", "i", "plain")]
    write_features(tmp_path / "features", [row[2] for row in rows])
    write_workbook(tmp_path / "index.xlsx", rows)
    manifest = build(tmp_path)

    url = str(tmp_path / "shards" / "train-00000.tar")
    found = list(wds.WebDataset(url, shardshuffle=False).decode())

    assert [sample["__key__"] for sample in found] == [f"{key:06d}" for key in range(4)]
    for row, sample in enumerate(found):
        assert sample["json"] == {
            "class": manifest.classes[manifest.labels[row]],
            "item": manifest.table.column("item")[row].as_py(),
            "id": manifest.id(row),
            "source": f"{manifest.id(row)}.npy",
        }
        assert sample["cls"] == manifest.labels[row]
        assert np.array_equal(sample["npy"], source_of(tmp_path, manifest, row))


def test_labels_come_out_as_the_text_that_went_in(tmp_path: Path) -> None:
    """007 stays 007, NA and null are classes; the label is the position in text order."""
    rows = [("null", "1", "a"), ("007", "NA", "b"), ("NA", "TRUE", "c"), ("7", "1", "d")]
    write_features(tmp_path / "features", "abcd")
    write_workbook(tmp_path / "index.xlsx", rows)

    manifest = build(tmp_path)

    assert manifest.classes == ("007", "7", "NA", "null")
    assert manifest.table.column("class").to_pylist() == ["007", "7", "NA", "null"]
    assert manifest.table.column("item").to_pylist() == ["NA", "1", "TRUE", "1"]


@pytest.mark.parametrize(("dtype", "frame"), [("<f2", ()), (">f4", (3,)), ("<f8", (2, 3))])
def test_types_and_frame_shapes_are_kept(tmp_path: Path, dtype: str, frame: tuple[int, ...]) -> None:
    """Big-endian becomes little-endian; one-dimensional samples have frames of one number."""
    (tmp_path / "features").mkdir()
    array = np.random.default_rng(0).normal(size=(5, *frame)).astype(dtype)
    np.save(tmp_path / "features" / "x.npy", array)
    write_workbook(tmp_path / "index.xlsx", [("a", "i", "x")])

    manifest = build(tmp_path)

    assert manifest.info.frame_shape == frame
    assert manifest.info.dtype == array.dtype.name
    data = manifest.shard_path(0).read_bytes()[manifest.offsets[0] :][: manifest.nbytes[0]]
    assert data == array.astype(array.dtype.newbyteorder("<")).tobytes()


def test_the_order_of_the_index_and_the_number_of_processes_decide_nothing(tmp_path: Path) -> None:
    """The same rows shuffled, on three processes: the same bytes in every file."""
    write_corpus(tmp_path, classes=6, frames=40_000)
    build(tmp_path, shard_mb=4)
    book_rows = [(f"{c:03d}", f"item {i}", f"{c:03d}-{i}-{s}") for c in range(6) for i in range(3) for s in range(2)]
    np.random.default_rng(0).shuffle(book_rows)
    write_workbook(tmp_path / "index.xlsx", book_rows)

    build(tmp_path, shards=tmp_path / "other", shard_mb=4, jobs=3)

    assert len(contents(tmp_path / "shards")) > 5
    assert contents(tmp_path / "shards") == contents(tmp_path / "other")


def test_a_dry_run_prints_the_layout_and_writes_nothing(tmp_path: Path) -> None:
    """Not even the folder."""
    console = Console(record=True, width=100, quiet=False, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    with console.file:
        assert build_shards(config_for(write_corpus(tmp_path), dry_run=True), console) is None

    text = console.export_text()
    assert "train-00000.tar" in text
    assert "val-00000.tar" in text
    assert not (tmp_path / "shards").exists()


def test_bad_rows_and_bad_files_stop_the_build_together_before_anything_is_written(tmp_path: Path) -> None:
    """One message has them all, by sheet and row; the odd file says expected and found."""
    write_features(tmp_path / "features", "abcdef")
    np.save(tmp_path / "features" / "c.npy", np.zeros((5, 9), np.float32))
    np.save(tmp_path / "features" / "d.npy", np.zeros((5, 4), np.float64))
    (tmp_path / "features" / "e.npy").write_bytes((tmp_path / "features" / "e.npy").read_bytes()[:-7])
    write_workbook(
        tmp_path / "index.xlsx",
        [("x", "1", "a"), (None, "1", "b"), *(("x", "1", i) for i in "cdef"), ("x", "1", "gone")],
    )

    with pytest.raises(DataError) as caught:
        build(tmp_path)

    features = tmp_path / "features"
    lines = str(caught.value).splitlines()
    assert "5 of 7 rows cannot be used, --max-rejects is 0; nothing was written" in lines[0]
    assert lines[1] == "  index!3: a_cls is blank"
    assert lines[2].startswith(
        f"  index!4: {features}/c.npy: expected float32 (frames, 4) as in most files, found float32 (frames, 9)"
    )
    assert lines[3].startswith(
        f"  index!5: {features}/d.npy: expected float32 (frames, 4) as in most files, found float64"
    )
    assert lines[4].startswith(f"  index!6: {features}/e.npy: truncated: float32 (6, 4) needs 224 bytes, found 217")
    assert lines[5] == f"  index!8: no file {features}/gone.npy"
    assert lines[6] == "correct them, or leave them out with --max-rejects 5"
    assert not (tmp_path / "shards").exists()


def test_rejected_rows_are_listed_and_the_rest_is_built(tmp_path: Path) -> None:
    """rejects.csv and rejects.xlsx say why; they go when all is well."""
    write_features(tmp_path / "features", "ab")
    rows = [("x", "1", "a"), ("x", "2", "=cmd()"), ("x", "3", "b"), ("x", "1", "@SUM(A1)")]
    path = tmp_path / "index.csv"
    path.write_text("\n".join(map(",".join, (HEADER, *rows))))

    manifest = build(tmp_path, index=path, max_rejects=2)

    assert len(manifest) == 2
    assert manifest.info.options["rows_rejected"] == 2
    lines = (tmp_path / "shards" / "rejects.csv").read_text(encoding="utf-8-sig").splitlines()
    assert lines[0] == "sheet,row,id,reason"
    assert lines[1].startswith("index.csv,3,'=cmd(),no file")
    assert lines[2].startswith("index.csv,5,'@SUM(A1),no file")

    path.write_text("\n".join(map(",".join, (HEADER, rows[0], rows[2]))))
    build(tmp_path, index=path)
    assert not list((tmp_path / "shards").glob("rejects.*"))


def test_when_nothing_is_left_there_is_no_dataset(tmp_path: Path) -> None:
    """Rejecting every row is an error in any case."""
    write_features(tmp_path / "features", "a")
    write_workbook(tmp_path / "index.xlsx", [("x", "1", "gone")])

    with pytest.raises(DataError, match="1 of 1 rows cannot be used"):
        build(tmp_path, max_rejects="100%")


def test_nan_is_refused_and_kept_on_request(tmp_path: Path) -> None:
    """It is found while writing; the file is named, and the frame."""
    spoil(write_corpus(tmp_path, classes=2), "000-0-0")

    with pytest.raises(DataError, match=r"(?s)1 of 12 rows .* index!2: .*000-0-0.npy: 1 values are NaN .* in frame 3"):
        build(tmp_path)
    with pytest.raises(DataError, match="a build is not finished there"):
        Manifest.open(tmp_path / "shards")

    assert len(build(tmp_path, non_finite="keep")) == 12


def test_a_split_column_makes_the_splits(tmp_path: Path) -> None:
    """Known splits first, others after them."""
    write_features(tmp_path / "features", "abcd")
    rows = [("x", "1", "a", "zeta"), ("x", "1", "b", "test"), ("x", "1", "c", "train"), ("x", "1", "d", "val")]
    write_workbook(tmp_path / "index.xlsx", rows, header=(*HEADER, "split"))

    manifest = build(tmp_path)

    assert manifest.splits == ["train", "val", "test", "zeta"]
    assert manifest.shard_names == [f"{split}-00000.tar" for split in manifest.splits]
    assert [manifest.id(row) for row in range(4)] == ["c", "d", "b", "a"]


@pytest.mark.parametrize(("option", "value"), [("shard_mb", 0), ("jobs", 0)])
def test_options_that_cannot_be_are_refused_at_once(tmp_path: Path, option: str, value: int) -> None:
    """Before any file is read."""
    with pytest.raises(ConfigError, match=f"{option} {value}"):
        config_for(tmp_path, **{option: value})
