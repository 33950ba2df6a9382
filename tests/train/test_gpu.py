"""On a CUDA device: nccl, pinned batches, and the whole state of a run."""

from pathlib import Path

import pytest
import torch

from tests.support.datasets import write_dataset
from train.config import TrainConfig
from train.fingerprint import fingerprint
from train.loop import Result, train
from train.progress import Display
from train.randomness import random_state, set_random_state
from train.world import joined

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def trained(data: Path, run: Path, *, epochs: int) -> Result:
    """A small run on the GPU, in this process."""
    config = TrainConfig(
        shards=data, run_folder=run, epochs=epochs, batch_size=8, samples_per_class=2, frames=24, device="cuda"
    )
    with joined(device="cuda") as place, Display(shown=False) as display:
        assert place.device.type == "cuda"
        assert torch.distributed.get_backend() == "nccl"
        return train(config, place, display)


def test_a_run_trains_evaluates_saves_and_goes_on(tmp_path: Path) -> None:
    """One rank under nccl; the second start goes on from the first one's checkpoint."""
    write_dataset(tmp_path / "data", classes=8)

    first = trained(tmp_path / "data", tmp_path / "run", epochs=1)
    second = trained(tmp_path / "data", tmp_path / "run", epochs=3)

    assert first.last is not None
    assert second.last is not None
    assert second.last.samples == 48
    assert second.steps == 3 * first.steps


def test_the_generator_of_the_device_goes_on_too() -> None:
    """Dropout on the GPU draws from its own generator."""
    device = torch.device("cuda", 0)
    state = random_state(device)
    expected = torch.rand(5, device=device)

    set_random_state(state, device)

    assert torch.equal(torch.rand(5, device=device), expected)


def test_the_fingerprint_is_the_same_number_on_both_devices() -> None:
    """Integer sums have no order."""
    tensor = torch.randn(1000, 33)
    cpu = fingerprint([tensor], torch.device("cpu"))

    assert torch.equal(fingerprint([tensor.cuda()], torch.device("cuda")).cpu(), cpu)
