"""Are all ranks the same, bit for bit? And if not, which tensor was the first to differ."""

from dataclasses import dataclass
from typing import Final, final

import torch
import torch.distributed as dist
from torch import Tensor, nn

CHECKED_STEPS: Final = frozenset({1, 2, 10})  # and the end of every epoch

_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class DriftError(RuntimeError):
    """The ranks hold different weights; the message names the first tensor and the likely cause."""


@final
@dataclass(frozen=True, kw_only=True)
class Drift:
    """Tensors that are not the same on all ranks: the first in the module's order, and how many of `total`."""

    first: str
    count: int
    total: int


def fingerprint(tensors: list[Tensor], device: torch.device) -> Tensor:
    """(n,) int64: of each tensor, the sum of its raw bits, each element weighted by its position, modulo 2**64.

    Integers, so the order of summation does not matter and every bit counts: -0.0 is not 0.0, and
    two elements that have changed places are noticed.
    """
    sums = [_bit_sum(tensor.detach()) for tensor in tensors]
    return torch.stack(sums).to(device) if sums else torch.zeros(0, dtype=torch.int64, device=device)


def drift(module: nn.Module, device: torch.device, *, buffers: bool) -> Drift | None:
    """Compare parameters (and `buffers`) over all ranks: one all-gather of a number a tensor."""
    named = [*module.named_parameters(), *(module.named_buffers() if buffers else ())]
    own = fingerprint([tensor for _, tensor in named], device)
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    differs = (torch.stack(every) != own).any(0).tolist()
    names = [name for (name, _), different in zip(named, differs, strict=True) if different]
    return Drift(first=names[0], count=len(names), total=len(named)) if names else None


def check_ranks(module: nn.Module, device: torch.device, *, when: str, buffers: bool = False) -> None:
    """Raise DriftError on every rank if any tensor differs between ranks."""
    found = drift(module, device, buffers=buffers)
    if found is not None:
        raise DriftError(
            f"{when}: the ranks hold different weights; {found.count} of {found.total} tensors differ, the first is "
            f"{found.first}. {_likely_cause(found)}"
        )


def _likely_cause(found: Drift) -> str:
    if found.count * 2 > found.total:
        return (
            "Most of the model differs: gradients were not averaged (a loss computed around DDP.forward, a second "
            "backward), a rank skipped a step or has another learning rate, the ranks began from different weights, or "
            "weights were loaded on some ranks only"
        )
    return (
        "Only a part differs: it was added, replaced or unfrozen after DDP was built, is changed by one rank alone, "
        "or is a buffer that each rank updates from its own data"
    )


def _bit_sum(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    bits = real.contiguous().view(-1).view(_BITS[real.element_size()]).to(torch.int64)
    # Odd weights are invertible modulo 2**64: no change of a single element can vanish.
    return (bits * (2 * torch.arange(bits.numel(), device=bits.device) + 1)).sum()
