"""Whatever is damaged, verify says where and what; whatever is well, it says so."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from pipeline.verify import VerifyConfig, verify_shards
from shards import DataError, Manifest
from tests.pipeline.corpus import build, write_corpus


def faults_of(folder: Path) -> list[str]:
    return verify_shards(VerifyConfig(shards=folder / "shards", jobs=2), Console(quiet=True))


def damage(path: Path, change: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


@pytest.fixture
def dataset(tmp_path: Path) -> Manifest:
    """Twelve samples in two shards, without a fault."""
    manifest = build(write_corpus(tmp_path, classes=2))
    assert faults_of(tmp_path) == []
    return manifest


@pytest.mark.parametrize("row", [0, 5, 11])
def test_one_flipped_bit_is_found_and_its_sample_named(dataset: Manifest, tmp_path: Path, row: int) -> None:
    """Shard, row and id; and nothing else is accused."""
    place = int(dataset.offsets[row] + dataset.nbytes[row] // 2)

    def flip(data: bytearray) -> None:
        data[place] ^= 1

    damage(dataset.shard_path(row), flip)

    (fault,) = faults_of(tmp_path)
    assert fault.startswith(f"{dataset.shard_path(row).name} row {row} id {dataset.id(row)!r}: checksum ")
    assert fault.endswith(f"expected {dataset.checksums[row]:016x}")


def test_a_shard_cut_inside_a_payload_is_found(dataset: Manifest, tmp_path: Path) -> None:
    """The sample that is cut is named, and so are those behind it."""
    cut = int(dataset.offsets[4]) + 10
    damage(dataset.shard_path(4), lambda data: data.__delitem__(slice(cut, None)))

    found = faults_of(tmp_path)

    rows = [row for row in range(len(dataset)) if dataset.shards[row] == dataset.shards[4] and row >= 4]
    for row in rows:
        assert any(f"row {row} id {dataset.id(row)!r}: the shard ends inside its payload" in fault for fault in found)
    assert not any(f"row {rows[0] - 1} " in fault for fault in found)


def test_a_shard_cut_between_members_is_found_though_archive_readers_see_nothing(
    dataset: Manifest, tmp_path: Path
) -> None:
    """A tar cut at a boundary reads clean everywhere; the manifest knows how many there were."""
    cut = int(dataset.offsets[4]) - 4096 - 2048
    cut -= cut % 512
    damage(dataset.shard_path(4), lambda data: data.__delitem__(slice(cut, None)))

    assert any("the archive ends after" in fault or "not a readable archive" in fault for fault in faults_of(tmp_path))


def test_a_missing_end_of_archive_is_found(dataset: Manifest, tmp_path: Path) -> None:
    """All payloads are there, and yet the file is not whole."""
    damage(dataset.shard_path(0), lambda data: data.__delitem__(slice(-512, None)))

    assert faults_of(tmp_path) == ["train-00000.tar: the end of the archive is missing"]


def test_a_missing_and_an_extra_shard_are_found(dataset: Manifest, tmp_path: Path) -> None:
    """One is rebuilt by the same build, the other deleted."""
    path = dataset.shard_path(0)
    path.rename(path.with_name("train-00007.tar"))

    assert faults_of(tmp_path) == [
        "train-00000.tar: the shard is missing; run the same build again",
        "train-00007.tar: the manifest does not list this shard; delete it",
    ]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'"id": "000-', b'"id": "999-', "000000.json says id '999-"),
        (b'"class": "000"', b'"class": "999"', "000000.json says class '999', expected '000'"),
        (b'{"class"', b'["class"', "000000.json is not JSON"),
        (b"'descr': '<f4'", b"'descr': '<i4'", "000000.npy is int32 ("),
        (b"'shape': (", b"'shape': 9", "000000.npy is "),
    ],
)
def test_small_members_must_agree_with_the_manifest(
    dataset: Manifest, tmp_path: Path, old: bytes, new: bytes, says: str
) -> None:
    """The payload's checksum alone would not notice."""

    def replace(data: bytearray) -> None:
        place = data.index(old)
        data[place : place + len(old)] = new

    damage(dataset.shard_path(0), replace)

    (fault,) = faults_of(tmp_path)
    assert fault.startswith(f"train-00000.tar row 0 id {dataset.id(0)!r}: {says}")


def test_a_label_member_that_disagrees_is_found(dataset: Manifest, tmp_path: Path) -> None:
    """000000.cls is the first member, its content in the second block."""

    def relabel(data: bytearray) -> None:
        data[512:513] = b"1"

    damage(dataset.shard_path(0), relabel)

    (fault,) = faults_of(tmp_path)
    assert "000000.cls says label b'1', expected 0" in fault


def test_a_manifest_that_was_altered_is_found(dataset: Manifest, tmp_path: Path) -> None:
    """A relabelled row no longer has the fingerprint, nor its class's label."""
    path = tmp_path / "shards" / "manifest.arrow"
    table = dataset.table
    labels = pa.array([1, *table.column("label").to_pylist()[1:]], pa.int32())
    table = table.set_column(table.schema.get_field_index("label"), table.schema.field("label"), labels)
    altered = path.with_name("altered")
    with pa.OSFile(str(altered), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_batch(table)
    altered.rename(path)

    found = faults_of(tmp_path)

    assert any(fault.startswith("manifest.arrow: fingerprint of its rows is") for fault in found)
    assert any("row 0" in fault and "label 1 and class '000' disagree" in fault for fault in found)
    assert any("000000.cls says label b'0', expected 1" in fault for fault in found)


def test_a_dataset_json_of_another_build_is_an_error(dataset: Manifest, tmp_path: Path) -> None:
    """There is no telling which of the two is right."""
    path = tmp_path / "shards" / "dataset.json"
    raw = json.loads(path.read_bytes())
    path.write_text(json.dumps(raw | {"fingerprint": "0" * 32}))

    with pytest.raises(DataError, match="the two files are from different builds"):
        faults_of(tmp_path)
    assert len(dataset) == 12
