"""Laws of dealing, and the golden values that orders on disk depend on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.deal import deal, deal_tables, deal_weights, keyed, mix, permutation, shuffled, spans, within

suit_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=8)


@given(sizes=suit_sizes, piles=st.integers(1, 12), key=st.integers(0, 2**64 - 1))
def test_piles_are_even_in_cards_and_in_every_suit(sizes: list[int], piles: int, key: int) -> None:
    """Every pile has the same number of cards, and of each suit, within one."""
    suits = np.repeat(np.arange(len(sizes)), sizes)

    pile = deal(suits, piles, key=key)

    for cards in (pile, *(pile[suits == suit] for suit in range(len(sizes)))):
        counts = np.bincount(cards, minlength=piles)
        assert len(counts) == piles
        assert counts.max() - counts.min() <= 1


@given(tables=st.lists(st.tuples(suit_sizes, st.integers(1, 9)), min_size=1, max_size=5), key=st.integers(0, 2**32))
def test_many_tables_are_dealt_as_each_one_alone(tables: list[tuple[list[int], int]], key: int) -> None:
    """What lies on one table does not change what is dealt at another."""
    suits = [np.repeat(np.arange(len(sizes)), sizes) for sizes, _ in tables]
    first_suit = np.cumsum([0] + [len(sizes) for sizes, _ in tables])
    keys = mix(key, np.arange(len(tables)))

    together = deal_tables(
        np.concatenate([own + first for own, first in zip(suits, first_suit[:-1], strict=True)]),
        np.array([len(own) for own in suits]),
        np.array([piles for _, piles in tables]),
        key=keys,
    )

    assert np.bincount(together).sum() == sum(len(own) for own in suits)
    ends = np.cumsum([len(own) for own in suits])
    for own, (_, piles), end in zip(suits, tables, ends, strict=True):
        dealt = together[end - len(own) : end]
        for suit in np.unique(own):
            counts = np.bincount(dealt[own == suit], minlength=piles)
            assert counts.max() - counts.min() <= 1


@given(weights=st.lists(st.integers(0, 50), min_size=1, max_size=40), piles=st.integers(1, 8))
def test_weights_are_dealt_evenly(weights: list[int], piles: int) -> None:
    """Piles have equally many cards, within one, and their weights differ by at most the heaviest card."""
    weight = np.array(weights)

    pile = deal_weights(weight, piles, key=7)

    counts = np.bincount(pile, minlength=piles)
    loads = np.bincount(pile, weight, minlength=piles)
    assert counts.max() - counts.min() <= 1
    assert loads.max() - loads.min() <= weight.max()


@given(groups=st.lists(st.integers(0, 5), max_size=50), key=st.integers(0, 2**32))
def test_shuffled_sorts_by_group_and_loses_nothing(groups: list[int], key: int) -> None:
    """The order is a permutation under which groups ascend."""
    group = np.array(groups, np.int64)

    order = shuffled(group, mix(key, np.arange(len(group))))

    assert sorted(order.tolist()) == list(range(len(group)))
    assert (np.diff(group[order]) >= 0).all()


def test_shuffled_takes_every_order_alike() -> None:
    """Each of the 24 orders of four cards comes about equally often (chi-square, 24,000 draws)."""
    orders = np.array([permutation(4, key) for key in range(24_000)])

    counts = np.unique(orders, axis=0, return_counts=True)[1]

    assert len(counts) == 24
    assert ((counts - 1000.0) ** 2 / 1000).sum() < 50  # 23 degrees of freedom: 1 in 1,000 is above 49.7


def test_piles_are_taken_alike_by_every_card() -> None:
    """No card has a favourite pile: each of 6 cards meets each of 3 piles in a third of 3,000 deals."""
    suits = np.array([0, 0, 1, 1, 1, 2])
    piles = np.array([deal(suits, 3, key=key) for key in range(3000)])

    counts = np.array([np.bincount(column, minlength=3) for column in piles.T])

    assert np.abs(counts - 1000).max() < 120  # 4.6 standard deviations


def test_within_and_spans_lay_runs_end_to_end() -> None:
    """`within` restarts in each run, `spans` starts each at its own number; empty runs leave no trace."""
    counts = np.array([2, 0, 3])

    assert within(counts).tolist() == [0, 1, 0, 1, 2]
    assert spans(np.array([10, 20, 30]), counts).tolist() == [10, 11, 30, 31, 32]


def test_random_bits_are_these() -> None:
    """Golden values: every plan of every dataset depends on them, so they change only with the format version."""
    assert keyed(42) == 0x7DC930B302278A8
    assert permutation(8, 42).tolist() == [4, 1, 6, 2, 3, 0, 7, 5]


def test_words_of_a_key_are_not_interchangeable() -> None:
    """(1, 2) and (2, 1), or (1,) and (1, 0), are different keys."""
    assert len({keyed(1, 2), keyed(2, 1), keyed(1), keyed(1, 0), keyed(0, 1)}) == 5


@pytest.mark.parametrize("piles", [1, 3])
def test_no_cards_are_dealt_to_no_pile(piles: int) -> None:
    """An empty deal is empty."""
    assert deal(np.zeros(0, np.int64), piles, key=1).tolist() == []


@given(words=st.lists(st.integers(-(2**63), 2**64 - 1), max_size=5))
def test_a_key_is_its_words_mixed_one_after_the_other(words: list[int]) -> None:
    """In Python's numbers as in numpy's."""
    key = 0
    for word in words:
        key = int(mix(key, np.uint64(word % 2**64))[0])

    assert keyed(*words) == key
