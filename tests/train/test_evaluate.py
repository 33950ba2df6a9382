"""Evaluation counts every sample once, whatever the number of ranks."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from shards import ConfigError, Crop, EvaluationSampler, Manifest
from shards.loader import Loader
from shards.reader import Reader
from tests.support.datasets import write_dataset
from tests.support.ranks import run_ranks
from train.evaluate import Evaluation, check_scores, evaluate, share_buffers
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


class LossOnly(nn.Module):
    """A model that has its own loss, and no forward."""

    def compute_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return features.mean() + labels.sum()


class Flat(nn.Module):
    """A model whose forward gives no logits, and that has no loss."""

    def forward(self, features: Tensor) -> Tensor:
        return features


def test_scores_are_tried_before_the_first_step(tmp_path: Path) -> None:
    """One score a class is accepted in any storage type; another number is refused, with both."""
    few, many = (
        write_dataset(tmp_path / str(classes), classes=classes, items=1, dtype="bfloat16") for classes in (4, 6)
    )
    objective = Objective(Linear()).train()

    assert check_scores(objective, few, frames=12, device=torch.device("cpu")) is None
    assert objective.training
    with pytest.raises(ConfigError, match="gives 4 scores, but the data has 6 classes"):
        check_scores(objective, many, frames=12, device=torch.device("cpu"))


def test_a_model_of_losses_alone_is_trained_but_not_evaluated(tmp_path: Path) -> None:
    """The reason is returned; without a loss of its own the model is refused."""
    data = write_dataset(tmp_path, items=1)

    reason = check_scores(Objective(LossOnly()), data, frames=12, device=torch.device("cpu"))

    assert reason is not None
    assert reason.startswith("LossOnly has a loss but no (batch, classes) logits")
    with pytest.raises(ConfigError, match=r"Flat.forward gave shape \(2, 12, 8\)"):
        check_scores(Objective(Flat()), data, frames=12, device=torch.device("cpu"))
