"""Every generator that a model may draw from goes on where it was, and differs between ranks."""

import io
import random

import numpy as np
import pytest
import torch

from shards import World
from train.randomness import random_state, seed_rank, set_random_state

CPU = torch.device("cpu")


def draws() -> list[float]:
    """Numbers of all global generators; gauss keeps half a pair for the next call."""
    return [
        *torch.rand(3).tolist(),
        *torch.randn(3).tolist(),
        random.random(),
        random.gauss(),
        float(np.random.rand()),  # noqa: NPY002 - the global generator is what is tested
        float(np.random.randn()),  # noqa: NPY002 - as above
    ]


@pytest.mark.parametrize("before", range(4))
def test_a_restored_state_gives_the_draws_of_an_unbroken_run(before: int) -> None:
    """After any number of draws, through a file that is read without pickled code."""
    seed_rank(3, World(1, 2))
    for _ in range(before):
        draws()
    file = io.BytesIO()
    torch.save(random_state(CPU), file)
    expected = [draws() for _ in range(3)]
    file.seek(0)

    set_random_state(torch.load(file, weights_only=True), CPU)

    assert [draws() for _ in range(3)] == expected


def test_ranks_and_seeds_draw_differently() -> None:
    """Or all ranks would augment alike; the same rank and seed draw the same."""
    drawn = []
    for seed, rank in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 0)):
        seed_rank(seed, World(rank, 2))
        drawn.append(tuple(draws()))

    assert len({*drawn}) == 4
    assert drawn[0] == drawn[-1]
    assert all(len({numbers[place] for numbers in drawn}) == 4 for place in (0, 3, 6, 7, 8, 9)), "each generator"
