"""The run's own figures: rates of every rank, and a log that no interruption doubles."""

import json
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from shards import Crop, EvaluationSampler, Manifest
from shards.loader import Loader
from tests.support.datasets import write_dataset
from tests.support.ranks import run_ranks
from train.metrics import METRICS_FILE, Meter, Rate, Reading, RunLog
from train.world import Place


def read(place: Place, folder: Path) -> Reading:
    """Rank r adds r + 1 batches of loss r and of 4 samples."""
    data = Manifest.open(folder)
    loader = Loader(data, EvaluationSampler(data.split("val"), batch_size=4, world=place.world), crop=Crop(frames=8))
    meter = Meter(loader, place.device)
    for _ in zip(range(place.world.rank + 1), loader, strict=False):
        meter.add(torch.tensor(float(place.world.rank)), 4)
    return meter.read()


def test_a_reading_has_the_mean_loss_and_every_rank(tmp_path: Path) -> None:
    """Loss 0 over 4 samples and loss 1 over 8: two thirds, the same on both ranks; rates rank by rank."""
    write_dataset(tmp_path)

    first, second = run_ranks(read, 2, tmp_path)

    assert first == second
    assert first.loss == pytest.approx(2 / 3)
    assert len(first.ranks) == 2
    assert all(0 <= rank.data_wait <= 1 and rank.gb_per_second > 0 for rank in first.ranks)
    assert first.samples_per_second == sum(rank.samples_per_second for rank in first.ranks)


def test_lines_after_the_checkpoint_are_cut_off(tmp_path: Path) -> None:
    """A run killed at step 7 and going on from step 4 has each step once; a torn last line is dropped."""
    log = RunLog(tmp_path, first=True, step=0, position=0)
    position = 0
    for step in range(1, 8):
        log.write(step, "train", {"loss": 1.0})
        position = log.position if step == 4 else position
    log.close()
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write('{"step": 8, "ki')

    log = RunLog(tmp_path, first=True, step=4, position=position)
    log.write(5, "train", {"loss": 2.0})
    log.close()

    lines = [json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 2.0)]


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    """Rank 0 alone has a log."""
    log = RunLog(tmp_path, first=False, step=0, position=0)
    log.write(1, "train", {"loss": 1.0})
    log.close()

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_lost_lines_is_gone_on_with(tmp_path: Path) -> None:
    """A log that is shorter than the checkpoint says is not filled up with zeros."""
    log = RunLog(tmp_path, first=True, step=4, position=1000)
    log.write(5, "train", {"loss": 2.0})
    log.close()

    assert json.loads((tmp_path / METRICS_FILE).read_text())["step"] == 5


def test_an_interrupted_interval_has_the_loss_of_a_whole_one(tmp_path: Path) -> None:
    """Two batches, saved and restored between them: the mean of both, to the last bit."""
    [(whole, broken)] = run_ranks(interrupted, 1, write_dataset(tmp_path).folder)

    assert broken.loss == whole.loss
    assert broken.samples_per_second > 0


def interrupted(place: Place, folder: Path) -> tuple[Reading, Reading]:
    data = Manifest.open(folder)
    loader = Loader(data, EvaluationSampler(data.split("val"), batch_size=4), crop=Crop(frames=8))
    whole, before, after = (Meter(loader, place.device) for _ in range(3))
    for meter in (whole, before):
        meter.add(torch.tensor(0.1), 3)  # a sum that float32 cannot hold
    after.load_state(before.state())
    for meter in (whole, after):
        meter.add(torch.tensor(0.7), 5)
    return whole.read(), after.read()


def test_tensorboard_has_the_rates_of_every_rank(tmp_path: Path) -> None:
    """Samples/s and data wait rank by rank, beside the loss of all."""
    rates = [
        Rate(samples_per_second=10.0 * (rank + 1), data_wait=0.5, gb_per_second=1.0, substituted=0) for rank in range(2)
    ]
    log = RunLog(tmp_path, first=True, step=0, position=0)
    log.write_reading(3, 0, Reading(loss=2.0, ranks=rates), lr=0.1)
    log.close()

    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    last = {name: board.Scalars(name)[-1] for name in board.Tags()["scalars"]}

    assert {name: last[name].value for name in ("train/loss", "train/samples_per_second")} == {
        "train/loss": 2.0,
        "train/samples_per_second": 30.0,
    }
    assert [last[f"train/rank {rank}/samples_per_second"].value for rank in range(2)] == [10.0, 20.0]
    assert last["train/rank 1/data_wait"].step == 3
