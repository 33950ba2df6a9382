"""The objective calls the user's model as it is, and always from its own forward."""

import pytest
import torch
from torch import Tensor, nn

from shards import ConfigError
from train.objective import Objective

FEATURES, LENGTHS, LABELS = torch.randn(3, 5, 4), torch.tensor([5, 4, 3]), torch.tensor([0, 1, 1])


class Logits(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.sum((1, 2))[:, None] * torch.tensor([1.0, -1.0])


class LogitsOfLengths(nn.Module):
    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        return torch.stack([lengths.float(), -lengths.float()], 1)


class OwnLoss(Logits):
    def compute_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return features.mean() + labels.sum()


class OwnLossOfLengths(Logits):
    def compute_loss(self, features: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        return lengths.sum() + labels.sum()


def test_a_model_of_logits_gets_cross_entropy() -> None:
    """With label smoothing if asked for."""
    expected = nn.functional.cross_entropy(Logits()(FEATURES), LABELS, label_smoothing=0.1)

    assert torch.equal(Objective(Logits(), label_smoothing=0.1)(FEATURES, LENGTHS, LABELS), expected)


def test_lengths_go_to_those_who_ask() -> None:
    """By the name of the argument, in forward and in compute_loss."""
    assert Objective(LogitsOfLengths()).scores(FEATURES, LENGTHS)[:, 0].tolist() == [5, 4, 3]
    assert Objective(OwnLossOfLengths())(FEATURES, LENGTHS, LABELS) == 14


def test_a_models_own_loss_is_used() -> None:
    """compute_loss wins over cross entropy."""
    assert torch.equal(Objective(OwnLoss())(FEATURES, LENGTHS, LABELS), FEATURES.mean() + 2)


class OwnLossOfTargets(Logits):
    def compute_loss(self, features: Tensor, targets: Tensor) -> Tensor:
        return features.mean() + targets.sum()


class LossInDict(Logits):
    def compute_loss(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": features.mean()}


class LossPerSample(Logits):
    def compute_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return features.mean((1, 2))


def test_labels_may_have_any_name() -> None:
    """The second argument gets them if none is called `labels`."""
    assert torch.equal(Objective(OwnLossOfTargets())(FEATURES, LENGTHS, LABELS), FEATURES.mean() + 2)


@pytest.mark.parametrize(("model", "found"), [(LossInDict, "dict"), (LossPerSample, r"shape \(3,\)")])
def test_a_loss_that_is_no_scalar_is_refused(model: type[nn.Module], found: str) -> None:
    """The message says what compute_loss gave."""
    with pytest.raises(ConfigError, match=rf"{model.__name__}.compute_loss gave {found}: a scalar loss is needed"):
        Objective(model())(FEATURES, LENGTHS, LABELS)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_features_are_widened_to_float32(dtype: torch.dtype) -> None:
    """Whatever they are stored as, the model sees float32."""
    objective = Objective(Logits())

    assert objective.scores(FEATURES.to(dtype), LENGTHS).dtype == torch.float32


def test_what_is_not_logits_is_refused() -> None:
    """The message names the model and the shape found."""
    with pytest.raises(ConfigError, match=r"Flatten.forward gave shape \(3, 5, 4\)"):
        Objective(nn.Flatten(2)).scores(FEATURES, LENGTHS)
