"""An epoch that one world begins and others go on with: nothing is lost, nothing is used for another's sake."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards import BalancedSampler, World
from tests.support.datasets import manifest_of
from tests.support.elastic import Leg, MakeSampler, assert_restores


def sampler_of(
    sizes: list[int],
    k: int,
    weighting: float = 0.0,
    seed: int = 0,
    window: int | None = None,
    bucket: int | None = None,
) -> tuple[MakeSampler, np.ndarray]:
    """How a rank makes its sampler of classes of these sizes, and the label of each row."""
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rows = range(len(labels))
    data = manifest_of(labels.tolist(), shards=[row // 9 for row in rows], frames=[10 + row * 37 % 50 for row in rows])
    selection = data.split("train")

    def make(world: World, classes: int) -> BalancedSampler:
        return BalancedSampler(
            selection,
            batch_size=classes * k,
            samples_per_class=k,
            world=world,
            seed=seed,
            class_weighting=weighting,
            window=window,
            bucket=bucket,
        )

    return make, labels


@pytest.mark.parametrize("weighting", [0.0, 1.0])
@pytest.mark.parametrize("ranks", range(1, 9))
def test_any_world_goes_on_from_every_state_of_any_other(ranks: int, weighting: float) -> None:
    """Worlds of 1 to 8 ranks: at every step of the epoch, each of the others takes it to its end."""
    make, labels = sampler_of([3, 9, 4, 6, 12, 5, 7, 2, 8, 10, 6, 4], 2, weighting)
    steps = len(make(World(0, ranks), 2))

    for cut in range(steps + 1):
        for other in range(1, 9):
            legs = [Leg(ranks=ranks, classes=2, steps=cut), Leg(ranks=other, classes=2, steps=None)]
            assert_restores(make, legs, labels=labels, k=2)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_sequence_of_worlds_and_batches_ends_the_same_epoch(data: st.DataObject) -> None:
    """Ranks, batch size and cuts drawn freely, several times in one epoch; any sizes of classes."""
    sizes = data.draw(st.lists(st.integers(1, 14), min_size=2, max_size=12))
    k = data.draw(st.integers(1, 3))
    make, labels = sampler_of(
        sizes,
        k,
        data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        data.draw(st.integers(0, 99)),
        data.draw(st.none() | st.integers(1, 3)),
        data.draw(st.none() | st.integers(1, 3)),
    )
    legs = [
        Leg(
            ranks=data.draw(st.integers(1, 8)),
            classes=data.draw(st.integers(1, len(sizes))),
            steps=data.draw(st.integers(0, 6)),
        )
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    legs.append(Leg(ranks=data.draw(st.integers(1, 8)), classes=data.draw(st.integers(1, len(sizes))), steps=None))

    assert_restores(make, legs, labels=labels, k=k, epoch=data.draw(st.integers(0, 3)))


def test_the_next_epoch_is_that_of_the_new_world() -> None:
    """After a resumed epoch, the following one is what the new world would have begun by itself."""
    make, _ = sampler_of([6] * 8, 2)
    resumed = make(World(0, 4), 2)
    resumed.load_state_dict(make(World(1, 2), 2).state_dict(3))
    list(resumed)

    assert resumed.epoch == 1
    assert resumed.plan(1).tolist() == make(World(0, 4), 2).plan(1).tolist()


def test_going_back_to_the_first_world_is_a_third_segment() -> None:
    """2, then 1, then 2 ranks again: the state names all three and a restart from it gives the same batches."""
    make, _ = sampler_of([6] * 8, 2)
    second = make(World(0, 1), 2)
    second.load_state_dict(make(World(0, 2), 2).state_dict(2))
    third = make(World(1, 2), 2)
    third.load_state_dict(second.state_dict(4))
    state = third.state_dict(5)
    again = make(World(1, 2), 2)
    again.load_state_dict(state)

    assert state["segments"] == [[2, 4, 2], [1, 4, 2], [2, 4, 1]]
    assert [again.batch(step).tolist() for step in range(5, len(again))] == [
        third.batch(step).tolist() for step in range(5, len(third))
    ]
