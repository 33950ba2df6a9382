"""`python -m shards ls` and `show` say what is there, in the numbers of the manifest."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shards import BalancedSampler, World
from shards.quality import PlanQuality
from tests.support.datasets import manifest_of, write_dataset


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "shards", *options], capture_output=True, text=True, check=False)


def test_ls_lists_every_shard(tmp_path: Path) -> None:
    """With split, samples, classes and size."""
    data = write_dataset(tmp_path, classes=4)

    done = run("ls", "--shards", str(tmp_path))

    assert done.returncode == 0, done.stderr
    for split in ("train", "val"):
        [line] = [line for line in done.stdout.splitlines() if f"{split}-00000.tar" in line]
        assert [cell.strip() for cell in line.split("│")][2:5] == [split, str(len(data.split(split))), "4"]


@pytest.mark.parametrize("by", ["row", "id"])
def test_show_prints_a_sample(tmp_path: Path, by: str) -> None:
    """By its position or by its id: every column of the manifest."""
    data = write_dataset(tmp_path, classes=4)

    done = run("show", "--shards", str(tmp_path), f"--{by}", "7" if by == "row" else data.id(7))

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("row 7\n")
    for text in (f"id       {data.id(7)}", f"offset   {data.offsets[7]}", f"checksum {int(data.checksums[7]):016x}"):
        assert text in done.stdout


def test_show_plan_describes_the_order_of_an_epoch(tmp_path: Path) -> None:
    """With the options of the sampler; a window is compared with an order without one."""
    write_dataset(tmp_path, classes=8)
    small = ["--batch-size", "4", "--samples-per-class", "2", "--ranks", "2", "--window", "1", "--bucket", "2"]

    done = run("show", "--shards", str(tmp_path), "--plan", *small)

    assert done.returncode == 0, done.stderr
    for text in ("2 x 2 classes x 2 samples", "without a window", "twentieth", "in a row: 1 of 1", "padding"):
        assert text in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to show"),
        (["--row", "10000"], "no row 10000; rows go from 0 to"),
        (["--id", "nobody"], "no sample has the id 'nobody'"),
    ],
)
def test_what_cannot_be_shown_is_one_message(tmp_path: Path, options: list[str], message: str) -> None:
    """Exit code 2, no traceback, and what there is."""
    write_dataset(tmp_path)

    done = run("show", "--shards", str(tmp_path), *options)

    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_pairs_in_one_shard_are_counted_over_classes() -> None:
    """Against counting them one by one."""
    labels = np.repeat(np.arange(12), 6)
    selection = manifest_of(labels.tolist(), shards=(labels // 3).tolist()).split("train")
    sampler = BalancedSampler(selection, batch_size=8, samples_per_class=2, world=World())

    quality = PlanQuality.of(sampler, sampler)

    pairs = same = 0
    for step in selection.data.shards[sampler.plan(0)][:, ::2].tolist():
        for one in range(4):
            for other in range(one):
                pairs += 1
                same += step[one] == step[other]
    assert quality.same_shard == pytest.approx(same / pairs)
    assert quality.shards_of_rank == 4
