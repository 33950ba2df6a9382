"""Optimiser, learning rate for the global batch, and its course over the run."""

import math
from typing import Any, Literal, final

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LinearLR, ReduceLROnPlateau

LRScaling = Literal["sqrt", "linear", "none"]
Course = Literal["plateau", "cosine", "constant"]


def scaled_lr(lr: float, scaling: LRScaling, *, global_batch: int, base_batch: int) -> float:
    """The learning rate of a global batch, from the one that was chosen for `base_batch` samples.

    "linear" after Goyal et al. (2017), for SGD; "sqrt" after Krizhevsky (2014) and Malladi et al.
    (2022), for Adam and its kin.
    """
    ratio = global_batch / base_batch
    return lr * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[scaling]


def adamw(module: nn.Module, *, lr: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; vectors (norms, biases) are not decayed."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.ndim >= 2]
    vectors = [parameter for parameter in parameters if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=lr)


@final
class Schedule:
    """The learning rate, step by step and epoch by epoch.

    course         "plateau": times `factor` after `patience` epochs without a better loss.
                   "cosine": down to zero over `total_steps`. "constant": as it is
    warmup_steps   linear rise at the beginning, for all courses
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        course: Course,
        *,
        warmup_steps: int,
        total_steps: int,
        patience: int,
        factor: float,
    ) -> None:
        self._optimizer = optimizer
        self._plateau = None
        if course == "cosine":
            self._by_step: LambdaLR | LinearLR = LambdaLR(
                optimizer, lambda step: _warm_cosine(step, warmup_steps, total_steps)
            )
            return
        # Both change the rate by factors, so that the one can go on from the other.
        self._by_step = LinearLR(optimizer, start_factor=1 / (warmup_steps + 1), total_iters=warmup_steps)
        if course == "plateau":
            self._plateau = ReduceLROnPlateau(optimizer, factor=factor, patience=patience)

    @property
    def lr(self) -> float:
        """The rate of the next step."""
        return float(self._optimizer.param_groups[0]["lr"])

    def end_step(self) -> None:
        """After every optimiser step."""
        self._by_step.step()

    def end_epoch(self, loss: float) -> None:
        """After every epoch, with the loss of the whole epoch over all ranks: the same number on each."""
        if self._plateau is not None:
            self._plateau.step(loss)

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the rates to come."""
        state: dict[str, Any] = {"by_step": self._by_step.state_dict()}
        state["by_step"].pop("lr_lambdas", None)  # a function, made again from the options
        if self._plateau is not None:
            state["plateau"] = self._plateau.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._by_step.load_state_dict({"lr_lambdas": [None] * len(self._optimizer.param_groups)} | state["by_step"])
        if self._plateau is not None:
            self._plateau.load_state_dict(state["plateau"])


def _warm_cosine(step: int, warmup: int, total: int) -> float:
    if step < warmup:
        return (step + 1) / (warmup + 1)
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return (1 + math.cos(math.pi * progress)) / 2
