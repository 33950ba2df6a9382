"""Orders that go shard by shard, or length by length: what they gain, and that they lose no law."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards import BalancedSampler, ConfigError, Selection, World
from shards.window import deal_in_windows
from tests.support.datasets import manifest_of


def selection(classes: int = 120, samples: int = 12, per_shard: int = 4) -> Selection:
    """Classes of equal size, `per_shard` of them in a shard; lengths depend on class and sample."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), samples)
    frames = (rng.integers(200, 1000, classes)[labels] * rng.uniform(0.5, 1.5, len(labels))).astype(int)
    return manifest_of(labels.tolist(), shards=(labels // per_shard).tolist(), frames=frames.tolist()).split("train")


def samplers(ranks: int = 2, **options: object) -> list[BalancedSampler]:
    return [
        BalancedSampler(selection(), batch_size=16, samples_per_class=2, world=World(rank, ranks), **options)  # type: ignore[arg-type]
        for rank in range(ranks)
    ]


def shards_in_play(sampler: BalancedSampler, steps: int = 10) -> int:
    """Most shards that any `steps` steps in a row read from."""
    shards = sampler.selection.data.shards[sampler.plan(0)]
    return max(len(np.unique(shards[begin : begin + steps])) for begin in range(len(shards) - steps))


@settings(max_examples=300, deadline=None)
@given(
    counts=st.lists(st.integers(0, 12), min_size=1, max_size=10),
    places=st.integers(1, 5),
    units=st.integers(1, 6),
    spread=st.integers(1, 10),
    key=st.integers(0, 2**64 - 1),
)
def test_steps_are_full_and_have_distinct_classes(
    counts: list[int], places: int, units: int, spread: int, key: int
) -> None:
    """For any classes that fit the steps at all, in any units."""
    counts = [count for count in counts if count] or [1]
    while sum(counts) % places or max(counts) > sum(counts) // places:
        counts.append(1)
    code = np.repeat(np.arange(len(counts)), counts)
    shape = len(code) // places, places
    visit = np.arange(len(counts)) * 7 % spread

    step = deal_in_windows(code, visit, shape, units=units, key=key)

    assert np.bincount(step, minlength=shape[0]).tolist() == [places] * shape[0]
    assert all(len(set(code[step == number].tolist())) == places for number in range(shape[0]))


def test_a_window_keeps_few_shards_in_play() -> None:
    """With window=4, ten steps in a row read from few of a rank's 15 shards; without, from all."""
    free, windowed = samplers()[0], samplers(window=4)[0]

    assert shards_in_play(free) >= 15
    assert shards_in_play(windowed) <= 9


def test_a_window_reads_each_shard_in_one_stretch() -> None:
    """Most shards are done within the steps of two windows, not over the whole epoch."""
    sampler = samplers(window=4)[0]
    shards = sampler.selection.data.shards[sampler.plan(0)]
    lengths = [np.ptp(np.flatnonzero((shards == shard).any(axis=1))) for shard in np.unique(shards)]

    assert np.median(lengths) < len(shards) / 3


def test_a_window_deals_shards_to_ranks() -> None:
    """No shard is read by two ranks, so caches need not hold it twice."""
    first, second = (
        set(np.unique(sampler.selection.data.shards[sampler.plan(0)]).tolist()) for sampler in samplers(window=2)
    )

    assert not first & second
    assert len(first | second) == 30


def test_windows_differ_by_epoch() -> None:
    """Shards are dealt and visited anew."""
    sampler = samplers(window=2)[0]
    shards = sampler.selection.data.shards

    assert set(shards[sampler.plan(0)].ravel()) != set(shards[sampler.plan(1)].ravel())


def test_buckets_pad_less() -> None:
    """Whole samples of like length: half of the padding of a free order, and as many samples."""
    free, bucketed = samplers()[0], samplers(bucket=2)[0]

    assert bucketed.padding < free.padding / 2
    assert bucketed.plan(0).size == free.plan(0).size
    assert any("of a batch is padding" in line for line in bucketed.describe())


def test_with_buckets_all_ranks_have_long_steps_at_the_same_time() -> None:
    """The rank with the longest batch is what all wait for: the sum of these is near that of one rank's."""
    ranks = samplers(bucket=2)
    frames = np.array([sampler.selection.data.frames[sampler.plan(0)].max(axis=1) for sampler in ranks])

    assert frames.max(axis=0).sum() < 1.1 * frames.mean(axis=0).sum()
    assert not (np.diff(frames[0]) > 0).all(), "but not in order of length"


def test_buckets_do_not_fix_the_company_of_a_sample() -> None:
    """Over epochs a sample is grouped with others near it in length, and classes meet others."""
    sampler = samplers(ranks=1, bucket=2)[0]
    partners = {
        int(other)
        for epoch in range(20)
        for group in sampler.plan(epoch).reshape(-1, 2)
        if 5 in group
        for other in group
        if other != 5
    }

    assert len(partners) >= 2


@pytest.mark.parametrize("option", ["window", "bucket"])
def test_less_than_one_is_refused(option: str) -> None:
    """Zero shards in play, or no samples to draw from."""
    with pytest.raises(ConfigError, match=r"at least 1, or None"):
        samplers(**{option: 0})


def test_too_few_shards_for_the_ranks_share_classes() -> None:
    """Where shards dealt whole might leave a rank with too few classes, ranks share them, and `class` is refused."""
    assert samplers(ranks=8, window=2)[0].disjoint == "class"
    assert samplers(ranks=16, window=2)[0].disjoint == "sample"
    with pytest.raises(ConfigError, match="120 classes over 16 ranks leave 4 to a rank, but a batch needs 8"):
        samplers(ranks=16, window=2, disjoint="class")
