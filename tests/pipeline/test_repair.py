"""A damaged shard is written again from the feature files, and is the one that was there."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from pipeline.repair import RepairConfig, repair_shards
from pipeline.verify import VerifyConfig, verify_shards
from shards import DataError, Manifest
from tests.pipeline.corpus import build, contents, spoil, write_corpus


def repair(folder: Path, **options: Any) -> list[str]:
    given = {"shards": folder / "shards", "features": folder / "features", "jobs": 1, **options}
    return repair_shards(RepairConfig(**given), Console(quiet=True))


def faults_of(folder: Path) -> list[str]:
    return verify_shards(VerifyConfig(shards=folder / "shards"), Console(quiet=True))


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if not path.name.startswith(".")}


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit in a payload": lambda path: flip(path, 4096 + 100),
    "a flipped bit in a header": lambda path: flip(path, 20),
    "a cut": lambda path: path.write_bytes(path.read_bytes()[:-5000]),
    "no file": lambda path: path.unlink(),
    "an empty file": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
@pytest.mark.parametrize("options", [{}, {"format": "arrow", "dtype": "bfloat16"}], ids=["tar", "arrow"])
def test_just_the_damaged_shards_are_written_again(tmp_path: Path, damage: str, options: dict[str, Any]) -> None:
    """Byte for byte; no other file of the folder is touched, and a second repair finds nothing to do."""
    write_corpus(tmp_path, classes=6, width=256, frames=300)
    data = build(tmp_path, shard_mb=1, **options)
    before, at = contents(data.folder), times(data.folder)
    damaged = sorted(data.shard_names)[1::3]
    for name in damaged:
        DAMAGE[damage](data.folder / name)

    assert sorted(repair(tmp_path)) == damaged

    assert contents(data.folder) == before
    assert {name for name, mtime in times(data.folder).items() if mtime != at[name]} == set(damaged)
    assert repair(tmp_path) == faults_of(tmp_path) == []


def test_repair_needs_neither_index_nor_ledger_and_the_files_may_have_moved(tmp_path: Path) -> None:
    """The manifest knows what was in the shard; times of the files do not matter, their content does."""
    data = build(write_corpus(tmp_path))
    before = contents(data.folder)
    (tmp_path / "index.xlsx").unlink()
    (data.folder / "ledger.jsonl").unlink()
    (data.folder / "train-00000.tar").unlink()
    (tmp_path / "features").rename(tmp_path / "elsewhere")
    for path in (tmp_path / "elsewhere").iterdir():
        path.touch()

    assert repair(tmp_path, features=tmp_path / "elsewhere") == ["train-00000.tar"]
    assert contents(data.folder) == before


def test_samples_left_out_by_the_build_stay_out(tmp_path: Path) -> None:
    """Also where the rejected file has been put right since."""
    data = build(spoil(write_corpus(tmp_path), "001-1-1"), max_rejects=1)
    before = contents(data.folder)
    np.save(tmp_path / "features" / "001-1-1.npy", np.zeros((5, 4), np.float32))
    flip(data.folder / "train-00000.tar", 5000)

    assert repair(tmp_path) == ["train-00000.tar"]
    assert contents(data.folder) == before


def test_files_that_are_not_what_they_were_are_named_together_and_other_shards_are_written(tmp_path: Path) -> None:
    """A shard made of other features would be a lie; the damaged one stays as it is."""
    write_corpus(tmp_path, classes=6, width=256, frames=300)
    data = build(tmp_path, shard_mb=1)
    before = contents(data.folder)
    features = tmp_path / "features"
    ids = [data.id(int(np.flatnonzero(data.shards == shard)[0])) for shard in range(4)]
    for name in data.shard_names[:4]:
        flip(data.folder / name, 5000)
    (features / f"{ids[0]}.npy").unlink()
    array = np.load(features / f"{ids[1]}.npy")
    np.save(features / f"{ids[1]}.npy", array + 1)
    np.save(features / f"{ids[2]}.npy", array[:, :3])

    with pytest.raises(DataError, match="of 4 damaged shards not all could be written again") as error:
        repair(tmp_path)

    assert f"{ids[0]}.npy: cannot be read (No such file or directory)" in str(error.value)
    assert f"{ids[1]}.npy: not what was stored: {len(array)} frames, checksum" in str(error.value)
    assert f"{ids[2]}.npy: expected float32 (frames, 256)" in str(error.value)
    assert ids[3] not in str(error.value)
    left = {name for name, now in contents(data.folder).items() if now != before[name]}
    assert left == set(data.shard_names[:3])


def test_a_shard_that_the_manifest_does_not_list_is_removed(tmp_path: Path) -> None:
    """As a build removes it."""
    data = build(write_corpus(tmp_path))
    before = contents(data.folder)
    shutil.copy(data.folder / "train-00000.tar", data.folder / "train-00007.tar")

    assert repair(tmp_path) == []
    assert contents(data.folder) == before


def test_raw_samples_cannot_be_repaired_and_the_message_says_why(tmp_path: Path) -> None:
    """The feature files themselves are the samples; there is nothing to write them from."""
    data = build(write_corpus(tmp_path), format="raw")
    flip(data.shard_path(3), 130)

    with pytest.raises(DataError, match="the samples are feature files, and 1 of these are not what they were"):
        repair(tmp_path)


def test_a_damaged_manifest_is_made_again_by_reindex_first(tmp_path: Path) -> None:
    """Repair goes by the manifest, so it must be whole; the message names the command."""
    data = build(write_corpus(tmp_path))
    flip(data.folder / "manifest.arrow", 1000)

    with pytest.raises(DataError, match=r"manifest.arrow: damaged.*`python -m pipeline reindex` makes it again"):
        repair(tmp_path)


@pytest.mark.parametrize("container", ["tar", "arrow"])
def test_with_manifest_and_shard_both_lost_the_build_writes_just_these(tmp_path: Path, container: str) -> None:
    """What reindex says then is true."""
    write_corpus(tmp_path, classes=6, width=256, frames=300)
    data: Manifest = build(tmp_path, shard_mb=1, format=container)
    before, at = contents(data.folder), times(data.folder)
    flip(data.folder / "dataset.json", 100)
    flip(data.folder / "manifest.arrow", 1000)
    (data.folder / data.shard_names[2]).unlink()

    build(tmp_path, shard_mb=1, format=container)

    assert contents(data.folder) == before
    after = times(data.folder)
    assert [name for name in data.shard_names if after[name] != at[name]] == [data.shard_names[2]]
