"""Padding changes no answer, and every parameter is used."""

import pytest
import torch
from torch import nn

from shards import ConfigError
from train.models import CNN, Conformer


def made(kind: type[nn.Module], **options: object) -> nn.Module:
    torch.manual_seed(0)
    return kind(frame_shape=(16,), classes=5, **options)


@pytest.mark.parametrize("kind", [CNN, Conformer])
@pytest.mark.parametrize("length", [1, 5, 33, 60])
def test_padding_does_not_change_the_answer(kind: type[nn.Module], length: int) -> None:
    """A sample alone, and the same beside a longer one, padded with zeros or even NaN, has the same logits."""
    model = made(kind).eval()
    sample = torch.randn(1, length, 16)
    padded = torch.full((2, 60, 16), torch.nan)
    padded[0, :length] = sample
    padded[1] = torch.randn(60, 16)

    alone = model(sample, torch.tensor([length]))
    beside = model(padded, torch.tensor([length, 60]))

    torch.testing.assert_close(beside[:1], alone, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [CNN, Conformer])
def test_every_parameter_has_a_gradient(kind: type[nn.Module]) -> None:
    """DDP waits for all of them."""
    model = made(kind)
    model(torch.randn(4, 40, 16), torch.full((4,), 40)).sum().backward()

    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize("kind", [CNN, Conformer])
def test_gain_and_tilt_do_not_change_the_answer(kind: type[nn.Module]) -> None:
    """A constant added to each bin (in the log: gain, equalisation) is taken off again."""
    model = made(kind).eval()
    sample, lengths = torch.randn(2, 40, 16), torch.full((2,), 40)

    torch.testing.assert_close(model(sample + torch.randn(16), lengths), model(sample, lengths), atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("kind", [CNN, Conformer])
@pytest.mark.parametrize("bins", [1, 7, 128])
def test_any_number_of_bins_fits(kind: type[nn.Module], bins: int) -> None:
    """Halving an odd width rounds up, in the layers as in the sizes."""
    model = kind(frame_shape=(bins,), classes=3)

    assert model(torch.randn(2, 9, bins), torch.tensor([9, 4])).shape == (2, 3)


@pytest.mark.parametrize("kind", [CNN, Conformer])
def test_frames_of_two_dimensions_are_refused(kind: type[nn.Module]) -> None:
    """The message says what shape was found."""
    with pytest.raises(ConfigError, match=r"\(4, 4\)"):
        kind(frame_shape=(4, 4), classes=3)


def test_conformer_sizes_that_do_not_fit_are_refused() -> None:
    """Odd heads or an even kernel."""
    with pytest.raises(ConfigError, match="kernel 4"):
        made(Conformer, kernel=4)
    with pytest.raises(ConfigError, match="heads 5"):
        made(Conformer, heads=5)
