"""Which frames a crop takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards import ConfigError, Crop

lengths = st.lists(st.integers(1, 50), min_size=1, max_size=20).map(np.array)


@given(lengths=lengths, frames=st.integers(1, 30), key=st.integers(0, 99), where=st.sampled_from(["random", "centre"]))
def test_a_crop_lies_inside_its_sample(lengths: np.ndarray, frames: int, key: int, where: str) -> None:
    """Every crop has `frames` frames, or all of a shorter sample, and ends where the sample does or before."""
    first, counts = Crop(frames=frames, where=where).spans(lengths, key=key)  # type: ignore[arg-type]

    assert counts.tolist() == np.minimum(lengths, frames).tolist()
    assert (first >= 0).all()
    assert (first + counts <= lengths).all()


def test_random_crops_reach_every_start_alike() -> None:
    """A crop of 3 of 5 frames begins at 0, 1 or 2, each about equally often."""
    first, _ = Crop(frames=3).spans(np.full(3000, 5), key=1)

    counts = np.bincount(first, minlength=3)

    assert len(counts) == 3
    assert np.abs(counts - 1000).max() < 120


def test_a_random_crop_is_a_function_of_key_and_slot() -> None:
    """Slots 4..7 of a batch get what slots 4..7 of a larger batch get: no thread or neighbour matters."""
    crop, sizes = Crop(frames=10), np.full(8, 1000)

    whole, _ = crop.spans(sizes, key=3)
    part, _ = crop.spans(sizes[4:], key=3, slot=4)

    assert part.tolist() == whole[4:].tolist()
    assert crop.spans(sizes, key=4)[0].tolist() != whole.tolist()


def test_even_crops_go_from_the_first_frame_to_the_last() -> None:
    """Three crops of 4 in 10 frames begin at 0, 3 and 6; in 3 frames all are the whole sample."""
    first, counts = Crop(frames=4, where="even", count=3).spans(np.array([10, 3]), key=0)

    assert first.tolist() == [0, 3, 6, 0, 0, 0]
    assert counts.tolist() == [4, 4, 4, 3, 3, 3]


def test_one_even_crop_is_the_centre() -> None:
    """A single crop stands in the middle."""
    assert Crop(frames=4, where="even").spans(np.array([10]), key=0)[0].tolist() == [3]


def test_whole_takes_everything() -> None:
    """All frames of each sample; the batch is as long as its longest."""
    crop = Crop(frames=None, where="whole")

    first, counts = crop.spans(np.array([3, 9]), key=0)

    assert (first.tolist(), counts.tolist(), crop.longest(counts)) == ([0, 0], [3, 9], 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": None}, "takes None"),
        ({"frames": 5, "where": "whole"}, "takes None"),
        ({"frames": 0}, "at least 1"),
        ({"frames": 5, "count": 2}, "only"),
        ({"frames": 5, "where": "even", "count": 0}, "0 crops"),
    ],
)
def test_crops_that_make_no_sense_are_refused(options: dict[str, object], message: str) -> None:
    """Refused at construction, with the value."""
    with pytest.raises(ConfigError, match=message):
        Crop(**options)  # type: ignore[arg-type]
