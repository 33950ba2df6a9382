"""Ranks find out together what is wrong, and one of them says it."""

import sys

import pytest
import torch

from shards import ConfigError
from tests.support.ranks import run_ranks
from train.world import Place, agreed, joined, said_once


def refuse(place: Place, ranks: set[int]) -> None:
    if place.world.rank in ranks:
        raise ConfigError(f"rank {place.world.rank} has no data")


def refused_on(place: Place, ranks: set[int]) -> str:
    """What this rank meets when `ranks` refuse to start."""
    try:
        with agreed(place):
            refuse(place, ranks)
    except ConfigError as error:
        return str(error)
    except SystemExit as silent:
        return f"exit {silent.code}"
    return "goes on"


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (set(), ["goes on", "goes on", "goes on"]),
        ({0, 1, 2}, ["rank 0 has no data", "exit 2", "exit 2"]),
        ({1}, ["exit 2", "rank 1 has no data", "exit 2"]),
        ({1, 2}, ["exit 2", "rank 1 has no data", "exit 2"]),
    ],
)
def test_refused_by_one_is_refused_by_all_and_said_once(ranks: set[int], expected: list[str]) -> None:
    """The first rank that was refused says why; the others end with it instead of waiting for it."""
    assert run_ranks(refused_on, 3, ranks) == expected


@pytest.mark.parametrize("rank", [0, 1])
def test_what_all_ranks_find_is_said_by_rank_0(
    rank: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 0 prints and raises; the others print nothing and leave with status 2."""
    monkeypatch.setenv("RANK", str(rank))

    with pytest.raises(ConfigError if rank == 0 else SystemExit), said_once():
        sys.stdout.write("said")
        raise ConfigError("too many epochs")

    assert capsys.readouterr().out == ("said" if rank == 0 else "")


def test_a_process_without_torchrun_is_one_rank() -> None:
    """A group of one on the CPU, left at the end so that the next can be joined, also after an error."""
    for _ in range(2):
        with pytest.raises(KeyError), joined(device="cpu", cpu_threads=1) as place:
            assert (place.world.rank, place.world.size, place.first) == (0, 1, True)
            assert torch.get_num_threads() == 1
            raise KeyError
    assert not torch.distributed.is_initialized()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a host without a GPU")
def test_cuda_without_a_gpu_is_refused() -> None:
    """With what to use instead."""
    with pytest.raises(ConfigError, match=r"torch sees no GPU.*--device cpu"), joined(device="cuda"):
        pass
