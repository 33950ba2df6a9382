"""Laws of the samplers over small worlds, and the golden orders that running experiments depend on."""

from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards import BalancedSampler, ConfigError, EvaluationSampler, World
from shards.groups import GroupStreams
from tests.support.datasets import manifest_of


@dataclass(frozen=True, kw_only=True)
class Small:
    """One small world: samples of each class, and how they are asked for."""

    sizes: tuple[int, ...]
    classes_per_batch: int
    samples_per_class: int
    ranks: int
    weighting: float
    seed: int
    window: int | None = None
    bucket: int | None = None

    def samplers(self) -> list[BalancedSampler]:
        """One sampler a rank, as each process would make its own."""
        labels = np.repeat(np.arange(len(self.sizes)), self.sizes).tolist()
        rows = range(len(labels))
        data = manifest_of(
            labels,
            [row // 2 for row in rows],
            shards=[row // 9 for row in rows],  # a class may begin in the middle of one, and end in the next
            frames=[10 + row * 37 % 50 for row in rows],
        )
        return [
            BalancedSampler(
                data.split("train"),
                batch_size=self.classes_per_batch * self.samples_per_class,
                samples_per_class=self.samples_per_class,
                world=World(rank, self.ranks),
                seed=self.seed,
                class_weighting=self.weighting,
                window=self.window,
                bucket=self.bucket,
            )
            for rank in range(self.ranks)
        ]

    @property
    def labels(self) -> np.ndarray:
        """Label of each row."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


@st.composite
def small_worlds(draw: st.DrawFn) -> Small:
    """Up to 12 classes of up to 14 samples, 3 ranks, and every option that can fill a batch."""
    sizes = tuple(draw(st.lists(st.integers(1, 14), min_size=1, max_size=12)))
    return Small(
        sizes=sizes,
        classes_per_batch=draw(st.integers(1, len(sizes))),
        samples_per_class=draw(st.integers(1, 5)),
        ranks=draw(st.integers(1, 3)),
        weighting=draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        seed=draw(st.integers(0, 1000)),
        window=draw(st.none() | st.integers(1, 4)),
        bucket=draw(st.none() | st.integers(1, 4)),
    )


def every_small_world() -> list[Small]:
    """Worlds chosen to be awkward: one class, a giant among dwarfs, fewer samples than K, uneven ranks."""
    sizes = [(1,), (5,), (1, 1), (9, 1), (3, 3, 3), (20, 1, 1, 1), (2, 3, 4, 5, 6), (7,) * 7, tuple(range(1, 11))]
    return [
        Small(sizes=s, classes_per_batch=p, samples_per_class=k, ranks=w, weighting=a, seed=1)
        for s, k, w, a in product(sizes, (1, 2, 4), (1, 2, 3), (0.0, 1.0))
        for p in {1, (len(s) + 1) // 2, len(s)}
    ] + [
        Small(sizes=s, classes_per_batch=p, samples_per_class=2, ranks=w, weighting=a, seed=1, window=n, bucket=b)
        for s, w, a, n, b in product(sizes, (1, 2), (0.0, 1.0), (None, 1, 2), (None, 1, 3))
        for p in {1, (len(s) + 1) // 2, len(s)}
    ]


def assert_laws(small: Small, epochs: int = 3) -> None:
    """Every law of a batch and of an epoch, on all ranks of one world."""
    samplers = small.samplers()
    labels, k, p = small.labels, small.samples_per_class, small.classes_per_batch
    for epoch in range(epochs):
        plans = [sampler.plan(epoch) for sampler in samplers]
        assert len({plan.shape for plan in plans}) == 1, "all ranks take the same number of steps"
        for sampler, plan in zip(samplers, plans, strict=True):
            sampler.set_epoch(epoch)
            assert len(sampler) == len(plan) == sum(1 for _ in sampler)
            drawn = labels[plan].reshape(-1, p, k)
            assert (drawn == drawn[:, :, :1]).all(), "K samples of each class stand together"
            assert all(len(set(step)) == p for step in drawn[:, :, 0].tolist()), "classes of a step are distinct"
            for group in plan.reshape(-1, k).tolist():
                size = small.sizes[labels[group[0]]]
                assert len(set(group)) == min(k, size), "a group repeats a sample only if its class is too small"
        classes = [set(labels[plan].ravel().tolist()) for plan in plans]
        if samplers[0].disjoint == "class":
            assert sum(len(own) for own in classes) == len(set.union(*classes)), "ranks share no class"


@settings(max_examples=300, deadline=None)
@given(small=small_worlds())
def test_every_batch_and_epoch_keeps_the_laws(small: Small) -> None:
    """Distinct classes in a step, K of each, equal steps on all ranks, exact len, disjoint classes."""
    assert_laws(small)


def test_the_laws_hold_in_every_awkward_world() -> None:
    """The same laws, exhaustively over worlds that are likely to break them."""
    for small in every_small_world():
        assert_laws(small, epochs=2)


@settings(max_examples=100, deadline=None)
@given(small=small_worlds())
def test_every_sample_comes_round(small: Small) -> None:
    """Within as many epochs as the largest class needs, all ranks together have used every sample."""
    samplers = small.samplers()
    streams = GroupStreams(samplers[0].selection, small.samples_per_class, 0)
    taken = samplers[0].groups_per_epoch()
    epochs = int(np.ceil(streams.groups_per_deal / taken).max()) + 1

    seen = {row for sampler in samplers for epoch in range(epochs) for row in sampler.plan(epoch).ravel().tolist()}

    assert seen == set(range(len(small.labels)))


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(1, 14), min_size=4, max_size=12), seed=st.integers(0, 99), ranks=st.integers(1, 2))
def test_weighting_one_uses_every_sample_every_epoch(sizes: list[int], seed: int, ranks: int) -> None:
    """class_weighting=1 is an epoch in the common sense, unless one class is too large for the steps."""
    small = Small(sizes=tuple(sizes), classes_per_batch=1, samples_per_class=2, ranks=ranks, weighting=1.0, seed=seed)
    samplers = small.samplers()
    groups = -(-np.array(sizes) // 2)
    if groups.max() > groups.sum() / ranks:
        return

    for epoch in range(2):
        seen = {row for sampler in samplers for row in sampler.plan(epoch).ravel().tolist()}
        assert seen == set(range(sum(sizes)))


def test_weighting_zero_takes_every_class_equally_often() -> None:
    """Over an epoch, classes of 4 and of 400 samples come equally often, within one group and the top-up."""
    sampler = Small(
        sizes=(4, 400, 40, 44, 8, 80), classes_per_batch=2, samples_per_class=4, ranks=1, weighting=0.0, seed=0
    ).samplers()[0]

    counts = np.bincount(sampler.selection.labels[sampler.plan(0)][:, ::4].ravel())

    assert counts.max() - counts.min() <= 1 + sampler.repeats


def test_items_of_a_class_stay_apart_while_they_can() -> None:
    """Six items of two samples dealt to three groups of four: no group has two of an item."""
    data = manifest_of([0] * 12, [row // 2 for row in range(12)])
    streams = GroupStreams(data.split("train"), 4, key=5)

    groups = streams.take(np.array([0]), np.array([0]), np.array([30]))

    assert groups.rows.shape == (30, 4)
    assert all(len(set(group)) == 4 for group in (groups.rows // 2).tolist())


def test_each_deal_of_a_class_has_every_sample_once() -> None:
    """Five samples in groups of two: three groups hold all five, and one of them once more."""
    streams = GroupStreams(manifest_of([0] * 5).split("train"), 2, key=5)

    for deal in range(20):
        rows = streams.take(np.array([0]), np.array([3 * deal]), np.array([3])).rows
        assert set(rows.ravel().tolist()) == set(range(5))
        assert sorted(Counter(rows.ravel().tolist()).values()) == [1, 1, 1, 1, 2]


@given(first=st.integers(0, 40), count=st.integers(1, 30))
def test_a_window_of_a_stream_does_not_depend_on_how_it_is_taken(first: int, count: int) -> None:
    """Groups 0..70 taken at once, or any window of them, are the same groups."""
    streams = GroupStreams(manifest_of([0] * 5 + [1] * 9).split("train"), 2, key=5)
    both = np.array([0, 1])
    whole = streams.take(both, np.array([0, 0]), np.array([70, 70]))

    window = streams.take(both, np.array([first, first]), np.array([count, count]))

    for code in both:
        expected = whole.rows[whole.code == code][first : first + count]
        assert window.rows[window.code == code].tolist() == expected.tolist()


def test_epochs_seeds_and_ranks_differ() -> None:
    """No two of epoch 0, epoch 1, another seed and another rank give the same order."""
    small = Small(sizes=(6,) * 8, classes_per_batch=2, samples_per_class=2, ranks=2, weighting=0.0, seed=0)
    first, second = small.samplers()
    other = Small(sizes=(6,) * 8, classes_per_batch=2, samples_per_class=2, ranks=2, weighting=0.0, seed=1)

    plans = [first.plan(0), first.plan(1), second.plan(0), other.samplers()[0].plan(0)]

    assert len({plan.tobytes() for plan in plans}) == 4


def test_classes_meet_all_others_over_epochs() -> None:
    """With 6 classes, 2 in a batch, every pair of classes shares a batch within 30 epochs."""
    small = Small(sizes=(4,) * 6, classes_per_batch=2, samples_per_class=2, ranks=1, weighting=0.0, seed=0)
    sampler = small.samplers()[0]

    pairs = {frozenset(step) for epoch in range(30) for step in small.labels[sampler.plan(epoch)][:, ::2].tolist()}

    assert len(pairs) == 15


def test_the_plan_of_an_epoch_does_not_depend_on_those_before() -> None:
    """Asked for epoch 5 at once or after 0..4, a sampler gives the same batches."""
    small = Small(sizes=(3, 5, 7, 9), classes_per_batch=2, samples_per_class=2, ranks=1, weighting=0.5, seed=3)
    walked, jumped = small.samplers()[0], small.samplers()[0]
    for _ in range(5):
        list(walked)

    assert walked.epoch == 5
    assert walked.plan(5).tolist() == jumped.plan(5).tolist()


def test_resumes_at_every_step() -> None:
    """A state taken after any batch gives exactly the batches that had not been drawn."""
    small = Small(sizes=(3, 5, 7, 9), classes_per_batch=2, samples_per_class=2, ranks=1, weighting=0.0, seed=3)
    whole = list(small.samplers()[0])

    for step in range(len(whole) + 1):
        resumed = small.samplers()[0]
        resumed.load_state_dict(small.samplers()[0].state_dict(step))
        assert list(resumed) == whole[step:]
        assert list(resumed) == small.samplers()[0].plan(1).tolist()


def test_set_epoch_keeps_the_resumed_position_of_that_epoch_only() -> None:
    """`set_epoch` with the resumed epoch is what a training loop says, and must not start it over."""
    small = Small(sizes=(3, 5, 7, 9), classes_per_batch=2, samples_per_class=2, ranks=1, weighting=0.0, seed=3)
    sampler = small.samplers()[0]
    sampler.load_state_dict(sampler.state_dict(2))

    sampler.set_epoch(0)
    assert sampler.step == 2
    sampler.set_epoch(1)
    assert sampler.step == 0


def test_a_state_of_another_order_is_refused() -> None:
    """Seed, samples per class, weighting and data must be those of the saved run; the message names what differs."""
    labels = [label for label in range(6) for _ in range(4)]
    data = manifest_of(labels).split("train")
    saved = BalancedSampler(data, batch_size=4, samples_per_class=2, seed=1).state_dict(1)

    other = BalancedSampler(data, batch_size=4, samples_per_class=1, class_weighting=0.5, seed=2)

    with pytest.raises(ConfigError, match=r"seed was 1, is 2; samples_per_class was 2, is 1; class_weighting was 0.0"):
        other.load_state_dict(saved)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 10, "samples_per_class": 4}, r"not a multiple.*take 2 times 4 = 8"),
        ({"batch_size": 0, "samples_per_class": 4}, r"not a multiple"),
        ({"batch_size": 64, "samples_per_class": 4}, r"6 classes in split 'train', but a batch needs 16"),
        ({"batch_size": 16, "samples_per_class": 4, "disjoint": "class"}, r"6 classes over 2 ranks leave 3.*needs 4"),
        ({"batch_size": 8, "samples_per_class": 4, "class_weighting": 1.5}, r"class_weighting 1.5"),
    ],
)
def test_what_cannot_be_sampled_is_refused_at_construction(options: dict[str, object], message: str) -> None:
    """Too few classes, K that does not divide the batch, unknown weighting: refused with the numbers."""
    data = manifest_of([label for label in range(6) for _ in range(4)]).split("train")

    with pytest.raises(ConfigError, match=message):
        BalancedSampler(data, world=World(0, 2), **options)  # type: ignore[arg-type]


def test_auto_shares_classes_only_where_ranks_cannot_have_their_own() -> None:
    """Ten classes, batches of 4: two ranks have classes of their own, four ranks share them but no group."""
    small = Small(sizes=(8,) * 10, classes_per_batch=4, samples_per_class=2, ranks=2, weighting=1.0, seed=0)
    assert small.samplers()[0].disjoint == "class"

    shared = Small(sizes=(8,) * 10, classes_per_batch=4, samples_per_class=2, ranks=4, weighting=1.0, seed=0)
    samplers = shared.samplers()
    rows = [set(sampler.plan(0).ravel().tolist()) for sampler in samplers]

    assert samplers[0].disjoint == "sample"
    assert sum(len(own) for own in rows) == len(set.union(*rows)) == 80


def test_describe_counts_what_repeats() -> None:
    """The log says how many groups top up a rank and how many classes are smaller than K."""
    small = Small(sizes=(1, 2, 9, 9, 9), classes_per_batch=2, samples_per_class=4, ranks=1, weighting=0.0, seed=0)

    text = "\n".join(small.samplers()[0].describe())

    assert "5 classes, 30 samples (1 to 9 a class)" in text
    assert "2 classes have fewer than 4 samples" in text
    assert "14 of 44 places in one round of all classes are filled twice" in text


def test_this_order_is_fixed() -> None:
    """Golden order of seed 42: checkpoints of running experiments resume into it."""
    small = Small(sizes=(3, 4, 5), classes_per_batch=2, samples_per_class=2, ranks=1, weighting=0.0, seed=42)

    assert small.samplers()[0].plan(0).tolist() == [[6, 5, 7, 9], [10, 8, 2, 1], [0, 2, 3, 4]]


@given(count=st.integers(1, 40), ranks=st.integers(1, 5), batch=st.integers(1, 7))
def test_evaluation_has_every_row_once(count: int, ranks: int, batch: int) -> None:
    """All ranks together have each row exactly once, in order; only a last batch is short."""
    selection = manifest_of([0] * count).split("train")
    samplers = [EvaluationSampler(selection, batch_size=batch, world=World(rank, ranks)) for rank in range(ranks)]

    batches = [list(sampler) for sampler in samplers]

    assert sorted(row for own in batches for rows in own for row in rows) == list(range(count))
    for rank, own in enumerate(batches):
        assert len(own) == len(samplers[rank])
        assert [row for rows in own for row in rows] == list(range(rank, count, ranks))
        assert all(len(rows) == batch for rows in own[:-1])
