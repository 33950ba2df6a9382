"""Whatever is damaged, verify says where and what; whatever is well, it says so."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
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


def flip(place: int) -> Callable[[bytearray], object]:
    """Change one bit of the byte at `place`."""
    return lambda data: data.__setitem__(place, data[place] ^ 1)


@pytest.fixture
def dataset(tmp_path: Path) -> Manifest:
    """Twelve samples in two shards, without a fault."""
    manifest = build(write_corpus(tmp_path, classes=2))
    assert faults_of(tmp_path) == []
    return manifest


@pytest.mark.parametrize("row", [0, 5, 11])
def test_one_flipped_bit_is_found_and_its_sample_named(dataset: Manifest, tmp_path: Path, row: int) -> None:
    """Shard, row and id; and nothing else is accused."""
    damage(dataset.shard_path(row), flip(int(dataset.offsets[row] + dataset.nbytes[row] // 2)))

    (fault,) = faults_of(tmp_path)
    assert fault.startswith(
        f"{dataset.shard_path(row).name} row {row} id {dataset.id(row)!r}: checksum of its features"
    )
    assert fault.endswith(f"not {dataset.checksums[row]:016x}")


@pytest.mark.parametrize("what", [b"000002.cls", b'"class"', b"'descr'", b"ustar"])
def test_what_lies_around_a_payload_is_its_samples(dataset: Manifest, tmp_path: Path, what: bytes) -> None:
    """Headers, labels, names: the sample that they describe is named."""
    row = 2
    path = dataset.shard_path(row)
    damage(path, flip(path.read_bytes().index(what, int(dataset.offsets[row - 1] + dataset.nbytes[row - 1]))))

    (fault,) = faults_of(tmp_path)
    assert f" row {row} id {dataset.id(row)!r}: something has changed around its features" in fault


def test_a_shard_cut_inside_a_payload_is_found(dataset: Manifest, tmp_path: Path) -> None:
    """The first sample that is cut is named, and how many are."""
    damage(dataset.shard_path(4), lambda data: data.__delitem__(slice(int(dataset.offsets[4]) + 10, None)))
    left = int(np.count_nonzero(dataset.shards[4:] == dataset.shards[4]))

    (fault,) = faults_of(tmp_path)
    assert f"row 4 id {dataset.id(4)!r}: the file ends at byte" in fault
    assert fault.endswith(f"so this and {left - 1} samples more are cut off")


def test_a_shard_cut_between_members_is_found_though_archive_readers_see_nothing(
    dataset: Manifest, tmp_path: Path
) -> None:
    """A tar cut at a boundary reads clean everywhere; the manifest knows how many there were."""
    end = int(dataset.offsets[3] + dataset.nbytes[3])
    damage(dataset.shard_path(4), lambda data: data.__delitem__(slice(end + -end % 512, None)))

    (fault,) = faults_of(tmp_path)
    assert f"row 4 id {dataset.id(4)!r}: the file ends at byte" in fault


@pytest.mark.parametrize("change", ["cut", "longer"])
def test_the_end_of_a_shard_belongs_to_its_last_sample(dataset: Manifest, tmp_path: Path, change: str) -> None:
    """All payloads are there, and yet the file is not the one that was written."""
    changes = {"cut": lambda data: data.__delitem__(slice(-512, None)), "longer": lambda data: data.append(0)}
    damage(dataset.shard_path(0), changes[change])
    last = int(np.flatnonzero(dataset.shards == 0)[-1])

    (fault,) = faults_of(tmp_path)
    assert f"train-00000.tar row {last} id {dataset.id(last)!r}: something has changed around its features" in fault


def test_a_missing_and_an_extra_shard_are_found(dataset: Manifest, tmp_path: Path) -> None:
    """One is to be written again, the other deleted."""
    path = dataset.shard_path(0)
    path.rename(path.with_name("train-00007.tar"))

    assert sorted(faults_of(tmp_path)) == [
        "train-00000.tar: the file is missing",
        "train-00007.tar: the manifest does not list this shard; finish the build that wrote it, or delete it",
    ]


def test_a_manifest_that_was_altered_is_an_error(dataset: Manifest, tmp_path: Path) -> None:
    """Even where Arrow would open it and nobody would see."""
    path = tmp_path / "shards" / "manifest.arrow"
    damage(path, flip(path.stat().st_size // 2))

    with pytest.raises(
        DataError, match=r"manifest.arrow: damaged: its checksum is .*; `python -m pipeline reindex` makes"
    ):
        faults_of(tmp_path)
    assert len(dataset) == 12


def test_a_manifest_of_another_build_is_an_error(dataset: Manifest, tmp_path: Path) -> None:
    """There is no telling which of the two files is right."""
    other = build(write_corpus(tmp_path / "other", classes=3))
    (other.folder / "manifest.arrow").replace(dataset.folder / "manifest.arrow")

    with pytest.raises(DataError, match=r"manifest\.arrow: damaged"):
        faults_of(tmp_path)


def test_every_flipped_byte_of_dataset_json_is_an_error(dataset: Manifest, tmp_path: Path) -> None:
    """Also one in white space, which is the same JSON."""
    path = dataset.folder / "dataset.json"
    text = path.read_bytes()
    for place in range(len(text)):
        for bit in (0, 3, 5):
            path.write_bytes(text[:place] + bytes([text[place] ^ 1 << bit]) + text[place + 1 :])
            with pytest.raises(DataError):
                faults_of(tmp_path)
