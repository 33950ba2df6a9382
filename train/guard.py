"""DistributedDataParallel that refuses a backward whose gradients would stay on this rank.

DDP averages gradients only in a backward that follows a call of *its own* forward: that call arms
the reducer, and nothing else does. A loss computed by `ddp.module.compute_loss(x)`, or a second
backward after one forward, trains every rank on its own data, without an error. Here each
parameter notes the forward its gradient belongs to, and a gradient that belongs to none is refused.
"""

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, final

from torch import Tensor, is_grad_enabled, nn
from torch.nn.parallel import DistributedDataParallel


class LocalGradientError(RuntimeError):
    """Gradients were about to stay on one rank; the message says whose call was around DDP."""


@final
class GuardedDDP(DistributedDataParallel):
    """DDP, with every backward checked on the first step as on the last."""

    def __init__(self, module: nn.Module, **options: Any) -> None:
        super().__init__(module, **options)
        self._watch = _Watch(module)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Call DDP's forward, which arms the averaging of gradients."""
        with self._watch.forward():
            return super().forward(*inputs, **options)

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Accumulate gradients on this rank: forward *and* backward stand inside, as torch asks."""
        with super().no_sync(), self._watch.no_sync():
            yield

    def check_gradients(self) -> None:
        """After a backward, before the optimiser's step: refuse it if a parameter has no gradient.

        DDP waits for every parameter; with one missing the averaging never ends, and torch says so only
        at the next forward, when the ranks have drifted apart already.
        """
        missing = [name for name, value in self.module.named_parameters() if value.requires_grad and value.grad is None]
        if missing and not self.find_unused_parameters:
            raise LocalGradientError(
                f"{len(missing)} parameters have no gradient, the first is {missing[0]}: DDP waits for all of them, so "
                "gradients stay on this rank and the ranks would drift apart. Use them in the loss, or freeze them "
                "with requires_grad_(False) before the model is wrapped"
            )


@final
class _Watch:
    """What is known of forwards and gradients; holds no DDP, so that no cycle keeps a process group alive."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._forwards = 0  # calls of DDP.forward that a backward may follow
        self._inside = False
        self._in_no_sync = False
        self._local = False  # the last forward was called in no_sync: nothing is armed
        self._bypassed: str | None = None  # the call that went around since the last forward, by name
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(_Seen(self, name))
        for child in module.modules():
            child.register_forward_pre_hook(self._note_bypass)

    @contextmanager
    def forward(self) -> Generator[None]:
        """A forward of DDP: calls of the model are in order now."""
        if is_grad_enabled():
            self._forwards += 1
            self._local, self._bypassed = self._in_no_sync, None
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    @contextmanager
    def no_sync(self) -> Generator[None]:
        """Gradients stay here on purpose, for now."""
        before, self._in_no_sync = self._in_no_sync, True
        try:
            yield
        finally:
            self._in_no_sync = before

    def check(self, name: str, seen: int) -> int:
        """Accept a gradient of parameter `name` that belongs to a newer forward than `seen`; returns that forward."""
        if seen == self._forwards or (self._local and not self._in_no_sync):
            raise LocalGradientError(self._explanation(name))
        return self._forwards

    def _explanation(self, name: str) -> str:
        if self._local and not self._in_no_sync:
            return (
                f"forward inside no_sync, backward() outside of it (first met at {name}): its gradients stay on this "
                "rank and the ranks would drift apart. Put both inside, and both outside on the last batch of a step"
            )
        if self._forwards and not self._bypassed:
            return (
                f"second backward() after one call of DDP.forward (first met at {name}): its gradients stay on this "
                "rank and the ranks would drift apart. Add the losses up and call backward() once"
            )
        model = type(getattr(self._module, "model", self._module)).__name__
        culprit = f"{self._bypassed} was called" if self._bypassed else f"the loss of {model} was computed"
        return (
            f"{culprit} outside DDP.forward (first met at {name}): its gradients stay on this rank and the ranks "
            "would drift apart. Call the wrapped module itself, ddp(...), with a forward that computes the loss, as "
            "that of train.objective.Objective does: ddp(features, lengths, labels)"
        )

    def _note_bypass(self, module: nn.Module, _inputs: tuple[Any, ...]) -> None:
        if not self._inside and is_grad_enabled() and self._bypassed is None:
            self._bypassed = _caller(self._module, module)


@final
class _Seen:
    """Called when a parameter's gradient is complete; knows the last forward it belonged to."""

    def __init__(self, watch: _Watch, name: str) -> None:
        self._watch = watch
        self._name = name
        self._seen = 0

    def __call__(self, _parameter: Tensor) -> None:
        self._seen = self._watch.check(self._name, self._seen)


def _caller(root: nn.Module, module: nn.Module) -> str:
    """The outermost method of the user's model on the stack, as Class.method."""
    models = {id(child) for child in root.modules()}
    found = f"{type(module).__name__}.forward"
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if id(owner) in models and not frame.f_code.co_qualname.startswith("Module."):
            found = f"{type(owner).__name__}.{frame.f_code.co_name}"
        frame = frame.f_back
    return found
