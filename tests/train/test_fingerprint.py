"""The fingerprint sees every bit, and the first tensor to differ is named on every rank."""

import pytest
import torch
from torch import nn

from tests.support.ranks import run_ranks
from train.fingerprint import DriftError, check_ranks, fingerprint
from train.world import Place

CPU = torch.device("cpu")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def changed_on_rank_1(place: Place, name: str, how: str) -> str:
    """Change one tensor on rank 1 alone; returns what `check_ranks` says on this rank."""
    module = network()
    if place.world.rank == 1:
        with torch.no_grad():
            tensors = dict(module.named_parameters()) | dict(module.named_buffers())
            for key, tensor in tensors.items():
                if name in (key, "all") and how == "ulp" and tensor.is_floating_point():
                    tensor.copy_(torch.nextafter(tensor, torch.tensor(torch.inf)))
                elif name == key and how == "swap":
                    tensor[[0, 1]] = tensor[[1, 0]]
    try:
        check_ranks(module, place.device, when="step 2", buffers=True)
    except DriftError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("name", "how", "expected"),
    [
        ("nothing", "ulp", ""),
        ("2.weight", "ulp", r"1 of 9 tensors differ, the first is 2.weight. Only a part differs"),
        ("0.weight", "swap", r"1 of 9 tensors differ, the first is 0.weight"),
        ("1.running_mean", "ulp", r"1 of 9 tensors differ, the first is 1.running_mean"),
        ("all", "ulp", r"8 of 9 tensors differ, the first is 0.weight. Most of the model differs"),
    ],
)
def test_the_first_tensor_to_differ_is_named(name: str, how: str, expected: str) -> None:
    """One unit in the last place, or two rows swapped, on one rank: all ranks say the same, with step and cause."""
    said = run_ranks(changed_on_rank_1, 2, name, how)

    assert said[0] == said[1]
    assert expected in said[0]
    assert said[0].startswith("step 2: the ranks hold different weights") or not expected


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
def test_every_element_counts(dtype: torch.dtype) -> None:
    """Changing any single element changes the number, in every type a model may hold."""
    tensor = torch.arange(20).remainder(2).to(dtype)
    before = fingerprint([tensor], CPU)

    for position in range(20):
        other = tensor.clone()
        other[position] = 1 - other[position].int()
        assert fingerprint([other], CPU) != before


def test_negative_zero_is_not_zero() -> None:
    """Equal by value, different by bits."""
    assert fingerprint([torch.tensor([0.0])], CPU) != fingerprint([torch.tensor([-0.0])], CPU)


def test_strides_do_not_matter() -> None:
    """A transposed copy of the same values in the same order has the same number."""
    tensor = torch.randn(3, 4)

    assert fingerprint([tensor], CPU) == fingerprint([tensor.t().contiguous().t()], CPU)
