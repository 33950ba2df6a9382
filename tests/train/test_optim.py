"""Learning rates: from the global batch, and over the run."""

import math

import pytest
import torch
from torch import nn

from train.optim import Course, Schedule, adamw, scaled_lr


@pytest.mark.parametrize(("scaling", "expected"), [("none", 1e-3), ("sqrt", 2e-3), ("linear", 4e-3)])
def test_the_rate_grows_with_the_global_batch(scaling: str, expected: float) -> None:
    """Four times the batch: the same, twice or four times the rate."""
    assert scaled_lr(1e-3, scaling, global_batch=128, base_batch=32) == pytest.approx(expected)  # type: ignore[arg-type]


def test_vectors_are_not_decayed() -> None:
    """Norms and biases keep their size; frozen parameters are left out."""
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1))
    module[2].weight.requires_grad_(False)

    groups = adamw(module, lr=1e-3, weight_decay=0.1).param_groups

    assert [(len(group["params"]), group["weight_decay"]) for group in groups] == [(1, 0.1), (4, 0.0)]


def course_of(course: Course, *, losses: list[float], warmup: int = 0, steps: int = 2) -> list[float]:
    """The rate of every step when each epoch has `steps` steps and ends with one of `losses`."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    total = steps * len(losses)
    schedule = Schedule(optimizer, course, warmup_steps=warmup, total_steps=total, patience=1, factor=0.5)
    rates = []
    for loss in losses:
        for _ in range(steps):
            rates.append(schedule.lr)
            optimizer.step()
            schedule.end_step()
        schedule.end_epoch(loss)
    return rates


def test_plateau_falls_after_epochs_without_a_better_loss() -> None:
    """Patience 1: the second epoch in a row that is no better halves the rate, once."""
    assert course_of("plateau", losses=[3, 2, 2, 2, 2]) == [1, 1, 1, 1, 1, 1, 1, 1, 0.5, 0.5]


def test_warm_up_rises_linearly_and_plateau_goes_on_from_there() -> None:
    """Three steps of warm-up, then the whole rate."""
    assert course_of("plateau", losses=[3, 2, 1], warmup=3) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])


def test_cosine_ends_near_zero() -> None:
    """From the whole rate down half a cosine over all steps."""
    rates = course_of("cosine", losses=[1] * 5)

    assert rates == pytest.approx([(1 + math.cos(math.pi * step / 10)) / 2 for step in range(10)])


def test_constant_stays() -> None:
    """No loss changes it."""
    assert course_of("constant", losses=[1, 2, 3]) == [1] * 6


@pytest.mark.parametrize("course", ["plateau", "cosine", "constant"])
def test_a_restored_schedule_goes_on_exactly(course: Course) -> None:
    """Saved and loaded after any epoch, in the middle of the warm-up too, it gives the rates of an unbroken run."""
    losses = [3.0, 2, 2, 2, 2, 1]
    whole = course_of(course, losses=losses, warmup=3)
    for cut in range(len(losses)):
        rates = []
        made = [_made(course), _made(course)]
        for epoch, loss in enumerate(losses):
            if epoch == cut:
                made[1][0].load_state_dict(made[0][0].state_dict())
                made[1][1].load_state_dict(made[0][1].state_dict())
            optimizer, schedule = made[epoch >= cut]
            for _ in range(2):
                rates.append(schedule.lr)
                optimizer.step()
                schedule.end_step()
            schedule.end_epoch(loss)
        assert rates == whole


def _made(course: Course) -> tuple[torch.optim.Optimizer, Schedule]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    return optimizer, Schedule(optimizer, course, warmup_steps=3, total_steps=12, patience=1, factor=0.5)
