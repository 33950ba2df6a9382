"""Evaluation counts every sample once, whatever the number of ranks."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from shards import Crop, EvaluationSampler, Manifest
from shards.loader import Loader
from shards.reader import Reader
from tests.support.datasets import write_dataset
from tests.support.ranks import run_ranks
from train.evaluate import Evaluation, evaluate, share_buffers
from train.objective import Objective
from train.world import Place


class Linear(nn.Module):
    """Logits from the mean frame, with dropout that evaluation must switch off."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(8, 4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        return self.layer(self.dropout(features.square().sum(1) / lengths[:, None]))


def evaluated(place: Place, folder: Path) -> Evaluation:
    data = Manifest.open(folder)
    sampler = EvaluationSampler(data.split("val"), batch_size=5, world=place.world)
    loader = Loader(data, sampler, crop=Crop(frames=12, where="even", count=3))
    return evaluate(Objective(Linear()), loader, place.device)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_any_number_of_ranks_gives_the_numbers_of_a_plain_loop(tmp_path: Path, ranks: int) -> None:
    """28 samples over 1, 2 and 3 ranks in batches of 5: the same count, accuracy and loss as sample by sample."""
    data = write_dataset(tmp_path, items=7, per_item=1)
    model = Linear().eval()
    right, surprise = 0, 0.0
    with Reader(data) as reader, torch.inference_mode():
        for row in data.split("val").rows.tolist():
            sample = torch.from_numpy(reader.read(row))
            starts = [(len(sample) - 12) * number // 2 for number in range(3)]
            crops = torch.stack([sample[start : start + 12] for start in starts])
            chances = model(crops, torch.full((3,), 12)).double().softmax(1).mean(0)
            right += int(chances.argmax() == data.labels[row])
            surprise -= float(chances[data.labels[row]].log())

    results = run_ranks(evaluated, ranks, tmp_path)

    for result in results:
        assert result.samples == 28
        assert result.top1 == right / 28
        assert result.loss == pytest.approx(surprise / 28, rel=1e-6)


def test_the_model_returns_to_training(tmp_path: Path) -> None:
    """Evaluation leaves the mode it found."""
    data = write_dataset(tmp_path)
    [training] = run_ranks(_mode_after, 1, data.folder)

    assert training


def _mode_after(place: Place, folder: Path) -> bool:
    data = Manifest.open(folder)
    loader = Loader(data, EvaluationSampler(data.split("val"), batch_size=5), crop=Crop(frames=12))
    objective = Objective(Linear())
    evaluate(objective, loader, place.device)
    return objective.training


def test_buffers_are_shared_before_they_are_evaluated() -> None:
    """Every rank has rank 0's running statistics after `share_buffers`."""
    assert run_ranks(_shared_mean, 2) == [0.0, 0.0]


def _shared_mean(place: Place) -> float:
    norm = nn.BatchNorm1d(3)
    norm.running_mean.fill_(float(place.world.rank))  # type: ignore[union-attr]
    share_buffers(norm)
    return float(norm.running_mean.sum())  # type: ignore[union-attr]
