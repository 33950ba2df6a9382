"""Who is held out: laws over small worlds."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.index import Row
from pipeline.split import SplitOptions, assign
from shards.errors import ConfigError, DataError


def rows_of(*samples: tuple[str, str], split: str | None = None) -> list[Row]:
    return [
        Row(class_name, item, f"{number}", split, f"{number}.npy", number + 2, "index")
        for number, (class_name, item) in enumerate(samples)
    ]


samples = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("123456789")), min_size=1, max_size=60)
shares = st.tuples(st.sampled_from([0, 0.1, 0.3, 0.5]), st.sampled_from([0, 0.1, 0.4]))
options = st.builds(
    lambda by, share, seed: SplitOptions(by=by, val=share[0], test=share[1], seed=seed),
    st.sampled_from(["item", "class"]),
    shares,
    st.integers(0, 3),
)


@given(samples, options)
def test_no_item_and_by_class_no_class_is_in_two_splits(drawn: list[tuple[str, str]], how: SplitOptions) -> None:
    """What is held out was never met in training."""
    rows = rows_of(*drawn)
    where = defaultdict(set)
    for row, split in zip(rows, assign(rows, how)[0], strict=True):
        where[row.class_name if how.by == "class" else row[:2]].add(split)

    assert all(len(found) == 1 for found in where.values())


@given(samples, shares, st.integers(0, 3))
def test_by_item_each_class_holds_out_its_share_and_keeps_one_in_training(
    drawn: list[tuple[str, str]], share: tuple[float, float], seed: int
) -> None:
    """round(share * items), at least one if there are two; a single item stays in training."""
    rows = rows_of(*drawn)
    splits, notes = assign(rows, SplitOptions(val=share[0], test=share[1], seed=seed))
    items = defaultdict(lambda: defaultdict(set))
    for row, split in zip(rows, splits, strict=True):
        items[row.class_name][split].add(row.item)
    for found in items.values():
        n = sum(map(len, found.values()))
        val = min(n - 1, max(1, round(share[0] * n)) if share[0] else 0)
        test = min(n - 1 - val, max(1, round(share[1] * n)) if share[1] else 0)
        assert (len(found["val"]), len(found["test"]), len(found["train"])) == (val, test, n - val - test)
    single = [name for name, found in items.items() if sum(map(len, found.values())) == 1]
    assert bool(notes) == (bool(single) and sum(share) > 0)


@given(samples, options, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_decides_nothing(drawn: list[tuple[str, str]], how: SplitOptions, random: object) -> None:
    """The same rows shuffled are split the same."""
    rows = rows_of(*drawn)
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert dict(zip(rows, assign(rows, how)[0], strict=True)) == dict(
        zip(shuffled, assign(shuffled, how)[0], strict=True)
    )


@given(samples, samples, shares)
def test_rows_of_other_classes_move_nobody(
    drawn: list[tuple[str, str]], others: list[tuple[str, str]], share: tuple[float, float]
) -> None:
    """By item, a class's split depends on that class alone."""
    how = SplitOptions(val=share[0], test=share[1])
    alone = assign(rows_of(*drawn), how)[0]
    together = assign(rows_of(*drawn, *((f"other {c}", i) for c, i in others)), how)[0]

    assert alone == together[: len(alone)]


@given(samples, st.sampled_from([0.1, 0.3]), st.sampled_from([0.1, 0.3]), st.sampled_from([0.1, 0.3]))
def test_another_share_for_val_moves_nobody_of_test(
    drawn: list[tuple[str, str]], test: float, one: float, other: float
) -> None:
    """They are taken from opposite ends, so results on test stay comparable (unless training would run out)."""
    drawn += [(name, item) for name in "abcde" for item in "123456789"]
    rows = rows_of(*drawn)
    in_test = [
        {
            row
            for row, split in zip(rows, assign(rows, SplitOptions(val=val, test=test))[0], strict=True)
            if split == "test"
        }
        for val in (one, other)
    ]

    assert in_test[0] == in_test[1]


def test_another_seed_holds_out_others() -> None:
    """And the same seed the same: people compare runs by it."""
    rows = rows_of(*((name, f"{item}") for name in "abcdefgh" for item in range(8)))
    splits = [assign(rows, SplitOptions(val=0.25, seed=seed))[0] for seed in (0, 0, 1)]

    assert splits[0] == splits[1] != splits[2]


def test_seed_0_holds_out_these_items() -> None:
    """Golden: a dataset built again must keep its held-out items, or past results leak into training."""
    rows = rows_of(*((name, f"{item}") for name in ("007", "dog") for item in range(6)))
    splits, _ = assign(rows, SplitOptions(val=0.2, test=0.2))

    golden = {"val": [("007", "0"), ("dog", "3")], "test": [("007", "2"), ("dog", "5")]}
    assert {
        split: [row[:2] for row, s in zip(rows, splits, strict=True) if s == split] for split in ("val", "test")
    } == golden


def test_the_split_column_wins() -> None:
    """Whatever the options say; an item in two splits is noted, not changed."""
    rows = [*rows_of(("a", "1"), split="fold3"), *rows_of(("a", "1"), ("b", "1"), split="train")]
    splits, notes = assign(rows, SplitOptions(val=0.5))

    assert splits == ["fold3", "train", "train"]
    assert notes == ["the split column puts 1 items into several splits, first 'a'/'1'"]


def test_a_split_is_a_word() -> None:
    """Its name begins the names of files."""
    with pytest.raises(DataError, match=r"row 2: split '../up' \(1 rows like it\); a split is a word"):
        assign(rows_of(("a", "1"), split="../up"), SplitOptions())


@pytest.mark.parametrize(("val", "test"), [(-0.1, 0), (1, 0), (0.5, 0.5), (0, 1.5)])
def test_shares_that_leave_nothing_for_training_are_refused(val: float, test: float) -> None:
    """At once, before any file is read."""
    with pytest.raises(ConfigError, match="must be shares from 0 that leave some for training"):
        SplitOptions(val=val, test=test)
