"""DDP averages gradients, and a backward whose gradients would stay on one rank is refused by name."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from tests.support.ranks import run_ranks
from train.fingerprint import drift
from train.guard import GuardedDDP, LocalGradientError
from train.objective import Objective
from train.world import Place, joined


class Small(nn.Module):
    """A user's model: logits from `forward`, its own `compute_loss`, and a weight used without a submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, features: Tensor) -> Tensor:
        return self.layer(features.mean(1)) * self.scale

    def compute_loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self(features), labels)

    def bare_loss(self) -> Tensor:
        return (self.scale * self.layer.weight.sum()).sum()


def batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(6, 5, 4, generator=generator)
    return features, torch.full((6,), 5), torch.randint(3, (6,), generator=generator)


@pytest.fixture
def ddp() -> Iterator[GuardedDDP]:
    with joined(device="cpu", cpu_threads=1):
        torch.manual_seed(0)
        yield GuardedDDP(Objective(Small()))


def train_apart(place: Place, around: bool) -> tuple[bool, str, Tensor]:
    """Three steps on data of this rank alone; returns (ranks equal, error, weights)."""
    torch.manual_seed(place.world.rank)  # DDP gives every rank the weights of rank 0
    ddp = GuardedDDP(Objective(Small()))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    error = ""
    for step in range(3):
        features, lengths, labels = batch(10 * step + place.world.rank)
        try:
            loss = ddp.module.model.compute_loss(features, labels) if around else ddp(features, lengths, labels)
            loss.backward()
        except LocalGradientError as refused:
            error = str(refused)
            break
        optimizer.step()
        optimizer.zero_grad()
    return drift(ddp.module, place.device, buffers=True) is None, error, ddp.module.model.layer.weight.detach()


def test_ranks_stay_equal_on_different_data() -> None:
    """Through DDP.forward: bitwise equal weights on both ranks, and the weights have moved."""
    (equal, error, first), (_, _, second) = run_ranks(train_apart, 2, False)

    assert equal
    assert error == ""
    assert torch.equal(first, second)


def test_a_model_called_around_ddp_is_refused_on_the_first_step_by_name() -> None:
    """On every rank, before any weight has changed, with the method that was called."""
    results = run_ranks(train_apart, 2, True)

    for equal, error, _ in results:
        assert equal
        assert "Small.compute_loss was called outside DDP.forward" in error
        assert "ddp(features, lengths, labels)" in error


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("Small.compute_loss", lambda ddp, f, n, y: ddp.module.model.compute_loss(f, y)),
        ("Small.forward", lambda ddp, f, n, y: ddp.module.model(f).sum()),
        ("Objective.forward", lambda ddp, f, n, y: ddp.module(f, n, y)),
        ("Linear.forward", lambda ddp, f, n, y: ddp.module.model.layer(f).sum()),
        ("the loss of Small", lambda ddp, f, n, y: ddp.module.model.bare_loss()),
    ],
)
def test_every_way_around_is_refused(ddp: GuardedDDP, name: str, loss: object) -> None:
    """A method, forward, the wrapped module itself, a layer, or a weight used bare: a plain backward() raises."""
    with pytest.raises(LocalGradientError, match=rf"^{name} was (called|computed) outside DDP.forward"):
        loss(ddp, *batch(0)).backward()  # type: ignore[operator]


def test_going_around_later_is_refused_too(ddp: GuardedDDP) -> None:
    """Good steps before do not make a bypass pass."""
    for step in range(3):
        ddp(*batch(step)).backward()
    features, _, labels = batch(3)

    with pytest.raises(LocalGradientError, match=r"Small.compute_loss was called"):
        ddp.module.model.compute_loss(features, labels).backward()


def test_a_second_backward_after_one_forward_is_refused(ddp: GuardedDDP) -> None:
    """Two losses, two backwards: DDP averages the first alone. The message says to add them up."""
    loss = ddp(*batch(0))
    loss.backward(retain_graph=True)

    with pytest.raises(LocalGradientError, match=r"second backward\(\).*Add the losses up"):
        loss.backward()


def test_a_bare_call_that_is_not_trained_on_takes_no_blame(ddp: GuardedDDP) -> None:
    """A look at the logits with gradients on, then a second backward: the second backward is what is named."""
    ddp.module.model(batch(0)[0])
    loss = ddp(*batch(0))
    loss.backward(retain_graph=True)

    with pytest.raises(LocalGradientError, match=r"^second backward\(\)"):
        loss.backward()


def test_a_backward_outside_no_sync_of_a_forward_inside_is_refused(ddp: GuardedDDP) -> None:
    """The wrong half in `no_sync`: nothing would be averaged."""
    with ddp.no_sync():
        loss = ddp(*batch(0))

    with pytest.raises(LocalGradientError, match=r"^forward inside no_sync, backward\(\) outside"):
        loss.backward()


def test_a_models_own_method_is_named_without_an_objective_too() -> None:
    """A user's own loop that wraps the bare network."""
    with joined(device="cpu", cpu_threads=1):
        ddp = GuardedDDP(Small())
        with pytest.raises(LocalGradientError, match=r"^Small.compute_loss was called"):
            ddp.module.compute_loss(batch(0)[0], batch(0)[2]).backward()


def test_a_parameter_without_gradient_is_named_before_the_step(ddp: GuardedDDP) -> None:
    """DDP waits for it and averages nothing; a frozen one is not missed."""
    ddp(*batch(0)).backward()
    ddp.check_gradients()
    ddp.module.model.scale.grad = None

    with pytest.raises(LocalGradientError, match=r"^1 parameters have no gradient, the first is model.scale"):
        ddp.check_gradients()
    ddp.module.model.scale.requires_grad_(False)
    ddp.check_gradients()


def test_accumulation_inside_no_sync_is_allowed(ddp: GuardedDDP) -> None:
    """Forward and backward inside `no_sync`, then a synchronised one: the documented way."""
    with ddp.no_sync():
        ddp(*batch(0)).backward()
    ddp(*batch(1)).backward()

    assert ddp.module.model.layer.weight.grad is not None


def test_evaluation_is_not_a_bypass(ddp: GuardedDDP) -> None:
    """The bare module under no_grad or inference_mode is what evaluation uses."""
    with torch.inference_mode():
        ddp.module.model(batch(0)[0])
    with torch.no_grad():
        ddp.module.model(batch(0)[0])

    ddp(*batch(0)).backward()
