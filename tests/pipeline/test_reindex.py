"""The manifest can be made again from the shards alone, and is the same."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from pipeline.reindex import ReindexConfig, reindex_shards
from shards import DataError, Manifest
from tests.pipeline.corpus import build, spoil, write_corpus


def reindex(folder: Path) -> Manifest:
    return reindex_shards(ReindexConfig(shards=folder, jobs=2), Console(quiet=True))


@pytest.mark.parametrize(
    "options", [{}, {"format": "arrow"}, {"dtype": "bfloat16"}, {"format": "arrow", "dtype": "bfloat16"}]
)
def test_the_manifest_comes_back_byte_for_byte(tmp_path: Path, options: dict[str, Any]) -> None:
    """From many shards of several splits; dataset.json too, as long as that is whole."""
    write_corpus(tmp_path, classes=6, items=5, samples=3, width=256, frames=300)
    data = build(tmp_path, shard_mb=1, **options)
    assert len(data.shard_names) > 8
    before = {name: (data.folder / name).read_bytes() for name in ("manifest.arrow", "dataset.json")}

    (data.folder / "manifest.arrow").write_bytes(b"damaged")
    assert reindex(data.folder).fingerprint == data.fingerprint
    assert before == {name: (data.folder / name).read_bytes() for name in before}

    for name in ("dataset.json", "manifest.arrow", "ledger.jsonl"):
        (data.folder / name).unlink()
    again = reindex(data.folder)
    assert again.fingerprint == data.fingerprint
    assert again.classes == data.classes
    assert (data.folder / "manifest.arrow").read_bytes() == before["manifest.arrow"]


@pytest.mark.parametrize("container", ["tar", "arrow"])
@pytest.mark.parametrize("frame", [(), (4,), (2, 3)])
def test_frames_of_any_shape_come_back(tmp_path: Path, container: str, frame: tuple[int, ...]) -> None:
    """Scalars, vectors and matrices."""
    write_corpus(tmp_path)
    for number, path in enumerate(sorted((tmp_path / "features").iterdir())):
        np.save(path, np.random.default_rng(number).normal(size=(2 + number % 3, *frame)).astype(np.float16))
    data = build(tmp_path, format=container)
    manifest = (data.folder / "manifest.arrow").read_bytes()

    reindex(data.folder)

    assert (data.folder / "manifest.arrow").read_bytes() == manifest


@pytest.mark.parametrize("ledger", [True, False])
def test_a_missing_shard_is_an_error(tmp_path: Path, ledger: bool) -> None:
    """The ledger names it; without one, the gap in the numbers does."""
    write_corpus(tmp_path, classes=6, width=256, frames=300)
    data = build(tmp_path, shard_mb=1)
    (data.folder / "train-00001.tar").unlink()
    if not ledger:
        (data.folder / "ledger.jsonl").unlink()

    with pytest.raises(DataError, match=r"train-00001(\.tar)? is missing; .*run the build again"):
        reindex(data.folder)


def test_a_shard_too_many_is_an_error(tmp_path: Path) -> None:
    """It would put samples in twice."""
    data = build(write_corpus(tmp_path))
    (data.folder / "train-00001.tar").write_bytes((data.folder / "train-00000.tar").read_bytes())

    with pytest.raises(DataError, match=r"train-00001\.tar is not in the ledger"):
        reindex(data.folder)


@pytest.mark.parametrize("container", ["tar", "arrow"])
def test_a_damaged_shard_is_not_taken_for_what_was_written(tmp_path: Path, container: str) -> None:
    """Neither one that a flipped bit has changed, nor one that is cut."""
    data = build(write_corpus(tmp_path), format=container)
    path = data.folder / f"train-00000.{container}"
    whole = path.read_bytes()
    place = int(data.offsets[0])

    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(DataError, match="not what was written; delete damaged shards and run the build again"):
        reindex(data.folder)
    path.write_bytes(whole[: place + 9])
    with pytest.raises(DataError, match="not a whole shard"):
        reindex(data.folder)


def test_a_class_of_which_no_sample_is_left_keeps_its_label(tmp_path: Path) -> None:
    """Its name is in dataset.json alone; without that, the others' labels would still need it."""
    write_corpus(tmp_path, classes=3, items=1, samples=2)
    data = build(spoil(tmp_path, "001-0-0", "001-0-1"), max_rejects=2)
    assert data.classes == ("000", "001", "002")

    (data.folder / "manifest.arrow").unlink()
    assert reindex(data.folder).classes == data.classes
    (data.folder / "dataset.json").unlink()
    with pytest.raises(DataError, match="no sample says the name of label 1"):
        reindex(data.folder)


def test_a_raw_dataset_has_no_shards_to_tell(tmp_path: Path) -> None:
    """Its feature files say nothing of classes."""
    data = build(write_corpus(tmp_path), format="raw")

    with pytest.raises(DataError, match="a raw dataset has none: build it again"):
        reindex(data.folder)
