"""The benchmark runs every rank for real and says what it measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shards import DataError
from shards.bench import BenchConfig, run_bench
from shards.commandline import spelled
from tests.support.datasets import write_dataset


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shards", "bench", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_two_ranks_give_two_rows_and_json(tmp_path: Path) -> None:
    """One row a rank with its ceiling, their sum, and the same figures as JSON."""
    write_dataset(tmp_path / "data", classes=8)
    small = ["--batch-size", "4", "--samples-per-class", "2", "--frames", "10", "--steps", "3", "--rounds", "2"]

    done = run("--shards", str(tmp_path / "data"), "--ranks", "2", *small, "--json", str(tmp_path / "out.json"))

    assert done.returncode == 0, done.stderr
    figures = json.loads((tmp_path / "out.json").read_text())
    assert [rank["rank"] for rank in figures["ranks"]] == [0, 1]
    for rank in figures["ranks"]:
        assert rank["samples_per_second"] > 0
        assert rank["p50_ms"] <= rank["p99_ms"]
        assert rank["ratio"] > 0
    for heading in ("samples/s", "GB/s", "p99 ms", "CPU-s/GB", "ceiling GB/s", "warm page cache"):
        assert heading in done.stdout


def test_a_rank_that_fails_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    """Options that no rank can satisfy come back as one error, from the rank that met it."""
    write_dataset(tmp_path, classes=2)

    with pytest.raises(DataError, match=r"rank [01]: ConfigError: 2 classes in split 'train'"):
        run_bench(BenchConfig(shards=tmp_path, ranks=2, batch_size=64, samples_per_class=4))


def test_a_missing_dataset_is_one_message(tmp_path: Path) -> None:
    """No traceback, exit code 2, and what to do."""
    done = run("--shards", str(tmp_path))

    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "make shards" in done.stderr
    assert "Traceback" not in done.stderr


def test_cold_runs_read_the_same_bytes(tmp_path: Path) -> None:
    """Dropping the page cache changes the time, never the work."""
    write_dataset(tmp_path, classes=4)

    [result] = run_bench(
        BenchConfig(shards=tmp_path, batch_size=4, samples_per_class=2, frames=10, steps=2, rounds=1, cold=True)
    )

    assert result.gb_per_second > 0


def test_options_may_be_spelled_with_dashes_and_flags_stand_alone() -> None:
    """`--batch-size 4 --cold` is what people type; values with dashes stay as they are."""
    typed = ["bench", "--batch-size", "4", "--cold", "--shards=a--b-c", "--samples_per_class=2", "--help"]

    assert spelled(typed) == [
        "bench",
        "--batch_size",
        "4",
        "--cold=true",
        "--shards=a--b-c",
        "--samples_per_class=2",
        "--help",
    ]
