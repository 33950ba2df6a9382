"""A build into a folder that has been built into before."""

import os
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pipeline.ledger import locked
from pipeline.verify import VerifyConfig, verify_shards
from shards import ConfigError, Manifest
from tests.pipeline.corpus import build, contents, write_corpus, write_workbook


def test_a_second_run_writes_no_shard(tmp_path: Path) -> None:
    """Whole shards are left alone, down to their times."""
    build(write_corpus(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "shards").glob("*.tar")}

    build(tmp_path)

    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "shards").glob("*.tar")}


def test_a_finished_dataset_is_changed_only_on_request(tmp_path: Path) -> None:
    """The refusal says what differs; --overwrite rebuilds what changed and removes what is no longer listed."""
    write_corpus(tmp_path, classes=4, frames=40_000)
    build(tmp_path, shard_mb=4)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "shards").glob("*.tar")}
    rows = [(f"{c:03d}", f"item {i}", f"{c:03d}-{i}-{s}") for c in range(3) for i in range(3) for s in range(2)]
    write_workbook(tmp_path / "index.xlsx", rows)

    with pytest.raises(
        ConfigError, match=r"holds a finished dataset .*rows_kept 24 -> 18.* give --append to add samples, --overwrite"
    ):
        build(tmp_path, shard_mb=4)
    assert len(Manifest.open(tmp_path / "shards")) == 24

    manifest = build(tmp_path, shard_mb=4, overwrite=True)

    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "shards").glob("*.tar")}
    assert len(manifest) == 18
    assert sorted(after) == sorted(manifest.shard_names)
    assert set(after) < set(before)
    assert after["train-00000.tar"] == before["train-00000.tar"]
    assert not verify_shards(VerifyConfig(shards=tmp_path / "shards"), Console(quiet=True))


def test_an_edited_feature_file_rebuilds_its_shard(tmp_path: Path) -> None:
    """Its size or time is part of the shard's digest."""
    write_corpus(tmp_path)
    build(tmp_path)
    path = tmp_path / "features" / "001-1-1.npy"
    np.save(path, np.load(path) + 1)

    with pytest.raises(ConfigError, match="files or labels differ"):
        build(tmp_path)
    manifest = build(tmp_path, overwrite=True)

    row = manifest.table.column("id").to_pylist().index("001-1-1")
    data = manifest.shard_path(row).read_bytes()[manifest.offsets[row] :][: manifest.nbytes[row]]
    assert data == np.load(path).tobytes()


def test_a_second_build_into_the_same_folder_is_refused_while_one_runs(tmp_path: Path) -> None:
    """Two writers would remove each other's files."""
    write_corpus(tmp_path)
    with locked(tmp_path / "shards"), pytest.raises(ConfigError, match="another build is writing here"):
        build(tmp_path)


def test_a_ledger_line_that_a_crash_cut_short_counts_as_absent(tmp_path: Path) -> None:
    """Its shard is written again, the same; so is one whose file has another size."""
    write_corpus(tmp_path)
    build(tmp_path)
    before = contents(tmp_path / "shards")
    ledger = tmp_path / "shards" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-20])
    for name in ("dataset.json", "manifest.arrow"):
        (tmp_path / "shards" / name).unlink()
    os.truncate(tmp_path / "shards" / "train-00000.tar", 4096)

    build(tmp_path)

    assert contents(tmp_path / "shards") == before
    assert len(ledger.read_bytes().splitlines()) == 2
