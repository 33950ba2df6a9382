"""How good the model is on a split: every sample exactly once, on all ranks together."""

from dataclasses import dataclass
from typing import final

import torch
import torch.distributed as dist
from torch import nn

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
                right = (chances.argmax(1) == labels).sum()
                surprise = -chances.gather(1, labels[:, None]).clamp_min(1e-300).log().sum()
                sums += torch.stack([torch.full_like(surprise, len(labels)), right.double(), surprise])
    finally:
        objective.train(was_training)
    dist.all_reduce(sums)
    samples, right, surprise = sums.tolist()
    return Evaluation(samples=int(samples), top1=right / samples, loss=surprise / samples)


def share_buffers(module: nn.Module) -> None:
    """Give every rank the buffers of rank 0, as DDP does before each forward.

    Running statistics of BatchNorm differ between ranks after a step; what is evaluated and saved
    must be one model.
    """
    for buffer in module.buffers():
        dist.broadcast(buffer, 0)
