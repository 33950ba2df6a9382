"""What DDP wraps: a module whose forward is the loss, so that gradients are averaged whatever the model calls it."""

import inspect
from collections.abc import Callable
from typing import Any, final

from torch import Tensor, nn
from torch.nn import functional

from shards import ConfigError


@final
class Objective(nn.Module):
    """`forward(features, lengths, labels)` is the loss of a batch, a scalar.

    A model with `compute_loss(features, labels)`, whatever it calls its labels, computes its own loss;
    any other one gives logits from `forward(features)`, and the loss is cross entropy. Either may have
    a `lengths` argument and then is given the (B,) frames that are data. Features are widened to float32 here, on the
    device: they travel in the type they are stored in.
    """

    def __init__(self, model: nn.Module, *, label_smoothing: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        compute_loss = getattr(model, "compute_loss", None)
        self.computes_loss = compute_loss is not None
        self._loss_takes_lengths = compute_loss is not None and _takes(compute_loss, "lengths")
        self._loss_takes_labels = compute_loss is not None and _takes(compute_loss, "labels")
        self._forward_takes_lengths = _takes(model.forward, "lengths")

    def forward(self, features: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        """Mean loss of (B, T, *frame_shape) features, (B,) lengths and (B,) int64 labels."""
        if self.computes_loss:
            return self._own_loss(features, lengths, labels)
        return functional.cross_entropy(self.scores(features, lengths), labels, label_smoothing=self.label_smoothing)

    def scores(self, features: Tensor, lengths: Tensor) -> Tensor:
        """(B, classes) logits of the model, for evaluation."""
        extra = {"lengths": lengths} if self._forward_takes_lengths else {}
        logits: Any = self.model(features.float(), **extra)
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise ConfigError(
                f"{type(self.model).__name__}.forward gave {_shape(logits)}: (batch, classes) logits are needed"
            )
        return logits

    def _own_loss(self, features: Tensor, lengths: Tensor, labels: Tensor) -> Tensor:
        extra = {"lengths": lengths} if self._loss_takes_lengths else {}
        compute_loss: Callable[..., Any] = self.model.compute_loss  # pyright: ignore[reportAssignmentType]
        if self._loss_takes_labels:
            loss = compute_loss(features.float(), labels=labels, **extra)
        else:
            loss = compute_loss(features.float(), labels, **extra)
        if not isinstance(loss, Tensor) or loss.ndim:
            raise ConfigError(f"{type(self.model).__name__}.compute_loss gave {_shape(loss)}: a scalar loss is needed")
        return loss


def _takes(method: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(method).parameters


def _shape(found: object) -> str:
    return f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
