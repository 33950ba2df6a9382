"""How good the model is on a split: every sample exactly once, on all ranks together."""

from dataclasses import dataclass
from typing import final

import torch
import torch.distributed as dist
from torch import nn

from shards import ConfigError, Manifest
from shards.loader import Loader
from train.objective import Objective


@final
@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Over `samples` samples: share of right answers, and mean negative log-likelihood of the label."""

    samples: int
    top1: float
    loss: float


def evaluate(objective: Objective, loader: Loader, device: torch.device) -> Evaluation:
    """Evaluate the bare module on this rank's share and add up the shares of all ranks.

    The crops of a sample stand side by side in the batch; their probabilities are averaged.
    There is no collective inside the loop, so ranks may have unequal shares. One reduction at the end.
    """
    sums = torch.zeros(3, dtype=torch.float64, device=device)  # samples, right answers, -log p(label)
    crops = loader.crop.count
    was_training = objective.training
    objective.eval()
    try:
        with torch.inference_mode():
            for batch in loader:
                logits = objective.scores(batch.features, batch.lengths).double()
                chances = logits.softmax(1).view(-1, crops, logits.shape[1]).mean(1)
                labels = batch.labels[::crops]
                del batch  # its memory is read into while these are counted
                right = (chances.argmax(1) == labels).sum()
                surprise = -chances.gather(1, labels[:, None]).clamp_min(1e-300).log().sum()
                sums += torch.stack([torch.full_like(surprise, len(labels)), right.double(), surprise])
    finally:
        objective.train(was_training)
    dist.all_reduce(sums)
    samples, right, surprise = sums.tolist()
    return Evaluation(samples=int(samples), top1=right / samples, loss=surprise / samples)


def check_scores(objective: Objective, data: Manifest, *, frames: int, device: torch.device) -> str | None:
    """Ask the bare module for the scores of two silent crops, before hours of training rather than after.

    Returns why there is nothing to evaluate, for a model that computes its own loss and has no
    scores; any other model without one score a class is refused.
    """
    shape = (2, min(frames, int(data.frames.max())), *data.info.frame_shape)
    features = torch.zeros(shape, dtype=getattr(torch, data.info.dtype), device=device)
    was_training = objective.training
    objective.eval()
    try:
        with torch.inference_mode():
            scores = objective.scores(features, torch.full((2,), shape[1], device=device))
    except (ConfigError, NotImplementedError, TypeError) as error:
        if not objective.computes_loss:
            raise
        return f"{type(objective.model).__name__} has a loss but no (batch, classes) logits ({error})"
    finally:
        objective.train(was_training)
    if scores.shape[1] != len(data.classes):
        raise ConfigError(
            f"{type(objective.model).__name__}.forward gives {scores.shape[1]} scores, but the data has "
            f"{len(data.classes)} classes: the constructor can ask for `classes`, or set it with --model-options"
        )
    return None


def share_buffers(module: nn.Module) -> None:
    """Give every rank the buffers of rank 0, as DDP does before each forward.

    Running statistics of BatchNorm differ between ranks after a step; what is evaluated and saved
    must be one model.
    """
    for buffer in module.buffers():
        dist.broadcast(buffer, 0)
