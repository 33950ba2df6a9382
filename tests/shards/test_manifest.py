"""The manifest comes back as it was written, opens cheaply, and refuses what does not belong together."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shards import DataError, Manifest
from shards.manifest import write_manifest
from shards.schema import DATASET_FILE, MANIFEST_FILE, SCHEMA, DatasetInfo
from tests.support.datasets import write_dataset

INFO = DatasetInfo(dtype="float32", frame_shape=(8,), classes=("007", "NA", "é"), options={"shard_mb": 1})


def columns_of(rows: int, **changes: object) -> dict[str, object]:
    """Columns of `rows` samples in three classes, with some replaced."""
    columns: dict[str, object] = {
        "split": ["train"] * (rows - 1) + ["val"],
        "shard": [f"train-{row // 100:05d}.tar" for row in range(rows)],
        "offset": np.arange(rows) * 4096 + 2**40,
        "nbytes": np.full(rows, 320),
        "frames": np.full(rows, 10),
        "label": np.arange(rows) % 3,
        "class": [INFO.classes[row % 3] for row in range(rows)],
        "item": [f"i{row % 5}" for row in range(rows)],
        "id": [f"{row:07d}" for row in range(rows)],
        "source": [f"{row}.npy" for row in range(rows)],
        "checksum": np.arange(rows, dtype=np.uint64) + 2**63,
        "around": np.arange(rows, dtype=np.uint64),
    }
    return columns | changes


def test_columns_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Offsets above 4 GB, checksums above 2**63 and labels like '007' survive."""
    columns = columns_of(7)

    data = write_manifest(tmp_path, INFO, columns)  # type: ignore[arg-type]

    assert len(data) == 7
    assert data.info == INFO
    assert data.classes == ("007", "NA", "é")
    assert data.offsets.tolist() == columns["offset"].tolist()  # type: ignore[union-attr]
    assert data.checksums.tolist() == columns["checksum"].tolist()  # type: ignore[union-attr]
    assert [data.id(row) for row in range(7)] == columns["id"]
    assert data.shard_path(3) == tmp_path / "train-00000.tar"
    assert (len(data.split("train")), len(data.split("val"))) == (6, 1)
    assert data.split("train").labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert len(set(data.split("train").items.tolist())) == 5


def test_a_split_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    """The message lists the splits."""
    data = write_manifest(tmp_path, INFO, columns_of(7))  # type: ignore[arg-type]

    with pytest.raises(DataError, match="no split 'test'; this dataset has train, val"):
        data.split("test")


def test_the_fingerprint_is_of_the_samples_not_of_where_they_lie(tmp_path: Path) -> None:
    """Other shards and offsets give the same fingerprint; another checksum, label or id gives another."""
    prints = []
    for number, changes in enumerate(
        (
            {},
            {"shard": ["one.tar"] * 7, "offset": np.zeros(7, np.int64)},
            {"checksum": np.zeros(7, np.uint64)},
            {"id": list("abcdefg")},
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        prints.append(write_manifest(folder, INFO, columns_of(7, **changes)).fingerprint)  # type: ignore[arg-type]

    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_equal_rows_give_equal_bytes(tmp_path: Path) -> None:
    """Both files, written twice, are identical."""
    for name in "ab":
        (tmp_path / name).mkdir()
        write_manifest(tmp_path / name, INFO, columns_of(50))  # type: ignore[arg-type]

    for file in (DATASET_FILE, MANIFEST_FILE):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_folder_without_a_dataset_says_what_to_do(tmp_path: Path) -> None:
    """No dataset: how to make one. A build under way: how to finish it."""
    with pytest.raises(DataError, match="no dataset is there; make one with `make shards`"):
        Manifest.open(tmp_path)
    (tmp_path / "ledger.jsonl").touch()
    with pytest.raises(DataError, match="not finished there; run the same build again"):
        Manifest.open(tmp_path)


def test_files_of_different_builds_are_refused(tmp_path: Path) -> None:
    """A manifest beside the dataset.json of another build is noticed by its fingerprint."""
    for name, rows in (("a", 5), ("b", 6)):
        (tmp_path / name).mkdir()
        write_manifest(tmp_path / name, INFO, columns_of(rows))  # type: ignore[arg-type]
    (tmp_path / "b" / MANIFEST_FILE).replace(tmp_path / "a" / MANIFEST_FILE)

    with pytest.raises(DataError, match="the two files are from different builds"):
        Manifest.open(tmp_path / "a")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / MANIFEST_FILE).write_bytes(b"ARROW1 no"), "not a readable manifest"),
        (lambda folder: (folder / MANIFEST_FILE).unlink(), "not a readable manifest"),
        (lambda folder: (folder / DATASET_FILE).write_text("{"), "not valid JSON"),
        (lambda folder: _edit(folder, version=99), "version 99; this program reads"),
        (lambda folder: _edit(folder, format="other"), "format 'other'"),
        (lambda folder: _edit(folder, dtype="float16"), "was changed by hand or damaged"),
        (lambda folder: (folder / DATASET_FILE).write_text("[]"), "format None"),
        (lambda folder: (folder / DATASET_FILE).write_text("7"), "not valid JSON"),
        (lambda folder: (folder / DATASET_FILE).write_bytes(b"\xff\xfe"), "not valid JSON"),
    ],
)
def test_damaged_files_are_refused_by_name(tmp_path: Path, damage: object, message: str) -> None:
    """Cut short, missing, unreadable or of another version: one message with the path."""
    write_manifest(tmp_path, INFO, columns_of(5))  # type: ignore[arg-type]
    damage(tmp_path)  # type: ignore[operator]

    with pytest.raises(DataError, match=message):
        Manifest.open(tmp_path)


def _edit(folder: Path, **changes: object) -> None:
    path = folder / DATASET_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_million_rows_open_without_being_read(tmp_path: Path) -> None:
    """Opening maps the file: the process grows by far less than the manifest's size."""
    rows = 1_000_000
    names = ["x"] * rows
    columns = columns_of(
        rows,
        split=["train"] * rows,
        shard=names,
        item=names,
        **{"class": names},
        id=np.char.mod("%07d", np.arange(rows)),
    )
    write_manifest(tmp_path, INFO, columns)  # type: ignore[arg-type]
    code = (
        "import resource, sys; from shards import Manifest;"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
        "data = Manifest.open(sys.argv[1]);"
        "print(len(data), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )

    out = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, capture_output=True, text=True)

    count, grown_kib = map(int, out.stdout.split())
    assert count == rows
    assert (tmp_path / MANIFEST_FILE).stat().st_size > 50e6
    assert grown_kib < 20_000


def test_columns_are_read_only(tmp_path: Path) -> None:
    """Nobody changes the map of a dataset that others read."""
    data = write_dataset(tmp_path)

    with pytest.raises(ValueError, match="read-only"):
        data.labels[0] = 1


def test_schema_names_are_the_format(tmp_path: Path) -> None:
    """The columns, in order: other readers rely on them."""
    assert " ".join(SCHEMA.names) == ("split shard offset nbytes frames label class item id source checksum around")
    assert resource.RLIMIT_NOFILE  # the manifest itself keeps no file open
    before = len(list(Path("/proc/self/fd").iterdir()))
    data = write_dataset(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(data) == 48
