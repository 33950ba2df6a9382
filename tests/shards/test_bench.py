"""The benchmark runs every rank for real and says what it measured."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shards import ConfigError, DataError
from shards.bench import run_bench
from shards.commandline import spelled
from shards.curves import draw_curves
from shards.diagnosis import diagnose
from shards.measure import BenchConfig, RankResult
from shards.schema import DatasetInfo
from shards.transfer import Batch
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
    for heading in ("samples/s", "GB/s", "bytes read", "p99 ms", "CPU-s/GB", "ceiling GB/s", "warm page cache"):
        assert heading in done.stdout
    assert "What limits:" in done.stdout


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


def test_direct_reads_ask_for_little_more_than_the_crops(tmp_path: Path) -> None:
    """What was asked of the kernel is counted and shown, beside what the crops hold."""
    write_dataset(tmp_path, classes=4, frames=(600, 600), frame_shape=(100,))
    options = {"batch_size": 4, "samples_per_class": 2, "frames": 500, "steps": 2, "rounds": 1}

    [direct] = run_bench(BenchConfig(shards=tmp_path, io="direct", **options))  # type: ignore[arg-type]
    [buffered] = run_bench(BenchConfig(shards=tmp_path, io="buffered", **options))  # type: ignore[arg-type]

    assert (direct.io, buffered.io) == ("direct", "buffered")
    assert buffered.bytes_read_share == 1
    assert 1 < direct.bytes_read_share < 1 + 2 * 4096 / (500 * 400)
    assert buffered.direct_gain is not None
    assert direct.direct_gain is None


def a_step(batch: Batch) -> float:
    """A training step, as a person would name it to bench."""
    return float(batch.features.sum())


def test_a_step_of_ones_own_is_measured(tmp_path: Path) -> None:
    """Each batch goes to the function, and its time is the step's."""
    write_dataset(tmp_path, classes=4)
    step = f"{__name__}:a_step"

    [result] = run_bench(
        BenchConfig(shards=tmp_path, batch_size=4, samples_per_class=2, frames=10, steps=2, rounds=1, step=step)
    )

    assert result.step_ms > 0


def test_a_picture_shows_loader_and_bare_reads(tmp_path: Path) -> None:
    """`--plot` writes a PNG."""
    write_dataset(tmp_path / "data", classes=4)

    draw_curves(
        BenchConfig(shards=tmp_path / "data", batch_size=4, samples_per_class=2, frames=10, steps=1, rounds=1),
        tmp_path / "curves.png",
    )

    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def measured(**changes: float | str | None) -> RankResult:
    """A rank at 2 GB/s that waits for its storage."""
    values: dict[str, Any] = {
        "rank": 0, "samples_per_second": 400.0, "gb_per_second": 2.0, "p50_ms": 80.0, "p99_ms": 90.0,
        "cpu_seconds_per_gb": 0.1, "ceiling_gb_per_second": 2.0, "ceiling_cpu_seconds_per_gb": 0.1, "ratio": 1.0,
        "io": "buffered", "bytes_read_share": 1.0, "batch_mb": 160.0, "data_wait": 0.9, "step_ms": 20.0,
        "direct_gain": 1.5, "threads_gain": 1.2,
    }  # fmt: skip
    return RankResult(**values | changes)


INFO = DatasetInfo(dtype="float32", frame_shape=(128,), classes=("a",), options={})


@pytest.mark.parametrize(
    ("config", "result", "sentences"),
    [
        (
            {"step_ms": 20.0},
            {},
            [
                "What limits: storage.",
                "A step of 20.0 ms needs 8.00 GB/s a rank, 8.00 for 1; the most that was read is 2.00, enough for 0",
                (
                    "What would help most: float16 shards instead of float32 (build --dtype float16): 2.0 x, "
                    "crops of 5,000 frames, half as long: 2.0 x, direct reads (--io direct): 1.5 x, "
                    "8 threads instead of 4: 1.2 x."
                ),
            ],
        ),
        ({}, {"cpu_seconds_per_gb": 0.98}, ["What limits: CPU.", "Give --step-ms or --step"]),
        ({}, {"ratio": 0.5}, ["What limits: this loader, which is below bare reads."]),
        ({"step_ms": 200.0}, {"data_wait": 0.0}, ["What limits: the step.", "Nothing about loading would make it"]),
        ({}, {"threads_gain": 1.0, "direct_gain": None}, ["No gain: 8 threads instead of 4."]),
    ],
)
def test_the_diagnosis_names_the_limit_and_the_best_change(
    config: dict[str, Any], result: dict[str, Any], sentences: list[str]
) -> None:
    """Computed from the figures of the run, with nothing that was not measured."""
    text = diagnose(BenchConfig(shards=Path("data"), **config), [measured(**result)], INFO, cores=2)

    for sentence in sentences:
        assert sentence in text


def test_a_step_without_a_function_is_refused(tmp_path: Path) -> None:
    """Before any process is started."""
    with pytest.raises(ConfigError, match="give module:function"):
        BenchConfig(shards=tmp_path, step="mine")
