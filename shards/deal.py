"""Dealing cards: the one primitive behind every batch, and the keyed random bits it draws from.

Nothing here keeps state: random bits are a function of (key, counter), so that any epoch can be
dealt without the ones before it, by any rank, in any process.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bits = NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_WORD: Final = 64


def mix(key: Bits | int, counter: Bits | Ints | int) -> Bits:
    """64 random bits for each (key, counter), broadcast together; at least 1-D.

    The output function of SplitMix64 (Steele, Lea, Flood 2014) on `key + (counter + 1) * golden`.
    """
    count = np.atleast_1d(np.asarray(counter).astype(np.uint64))
    z = np.asarray(key, np.uint64) + (count + np.uint64(1)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def keyed(*words: int) -> int:
    """One key out of several words; another order of the words is another key.

    `mix` again and again, in Python's own numbers: numpy takes ten times as long for one at a time.
    """
    key = 0
    for word in words:
        z = (key + (word % 2**_WORD + 1) * int(_GOLDEN)) % 2**_WORD
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**_WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**_WORD
        key = z ^ (z >> 31)
    return key


def shuffled(groups: Ints, bits: Bits) -> Ints:
    """The order that sorts `groups` (none negative) and shuffles within each group by `bits`.

    One sort of one word: the group, as many random bits as fit, then the position, which breaks
    ties the same way on every machine.
    """
    n = len(groups)
    if n == 0:
        return np.zeros(0, np.int64)
    low = (n - 1).bit_length()
    middle = _WORD - low - int(groups.max()).bit_length()
    words = groups.astype(np.uint64) << np.uint64(low + middle) if low + middle < _WORD else np.zeros(n, np.uint64)
    words |= (bits >> np.uint64(_WORD - middle)) << np.uint64(low)
    words |= np.arange(n, dtype=np.uint64)
    words.sort()
    return (words & np.uint64(2**low - 1)).astype(np.int64)


def permutation(n: int, key: int) -> Ints:
    """A random order of range(n)."""
    return shuffled(np.zeros(n, np.int64), mix(key, np.arange(n)))


def starts(counts: Ints) -> Ints:
    """Where each run begins when runs of `counts` elements are laid end to end."""
    return np.cumsum(counts) - counts


def within(counts: Ints) -> Ints:
    """0, 1, ... count - 1 for each of `counts`, end to end."""
    return np.arange(counts.sum()) - np.repeat(starts(counts), counts)


def spans(first: Ints, counts: Ints) -> Ints:
    """first, first + 1, ... for `counts` steps, for each pair, end to end."""
    return np.repeat(first, counts) + within(counts)


def deal(suits: Ints, piles: int, *, key: int) -> Ints:
    """Deal cards over `piles` and return the pile of each card.

    suits    (n,) the suit of each card; equal suits lie side by side
    Every pile gets the same number of cards, within one, and the same number of each suit, within
    one: no pile has two of a suit that has no more cards than there are piles.
    """
    table = np.array([len(suits)]), np.array([piles])
    return deal_tables(suits, *table, key=np.array([key], np.uint64))


def deal_tables(suits: Ints, cards: Ints, piles: Ints, *, key: Bits) -> Ints:
    """`deal` at many tables at once: table t deals its `cards[t]` cards over its `piles[t]` piles.

    suits    (sum(cards),) tables end to end; no suit is at two tables
    key      (tables,) random key of each table
    Cards are dealt in rounds of one card a pile, each round to the piles in an order shuffled anew.
    Whole rounds treat the piles alike, so a suit is even but for the part of a round it begins with
    and the part it ends with: the last part is mended to avoid the piles of the first.
    """
    rounds = -(-cards // piles)
    seats = np.repeat(piles, rounds)  # of each round, all tables end to end
    owner = np.repeat(np.arange(len(seats)), seats)
    round_key = mix(np.repeat(key, rounds), within(rounds))
    order = within(seats)[shuffled(owner, mix(round_key[owner], within(seats)))]

    begin = np.flatnonzero(np.diff(suits, prepend=-1))
    count = np.diff(begin, append=len(suits))
    table = np.repeat(np.arange(len(cards)), cards)[begin]
    place, width = begin - starts(cards)[table], piles[table]
    base = starts(rounds * piles)[table]
    head = np.minimum(-place % width, count)  # cards in a round that began before the suit
    tail = (place + count) % width  # cards in a round that ends after it
    tail_round = (place + count) // width
    mend = np.flatnonzero((head > 0) & (tail > 0) & (tail_round > place // width))
    for turn in np.unique(tail_round[mend]):
        now = mend[tail_round[mend] == turn]
        heads = base[now] + place[now], head[now]
        tails = base[now] + turn * width[now], tail[now]
        _mend(order, heads, tails, width[now])
    return order[spans(starts(rounds * piles), cards)]


def _mend(order: Ints, heads: tuple[Ints, Ints], tails: tuple[Ints, Ints], width: Ints) -> None:
    """Swap seats of `order` so that the tail of each suit avoids the piles of its head.

    heads, tails    (first seat, number of seats) of each suit's part of a round
    width           seats of the round; a tail begins at its round's first seat
    A clashing seat is swapped with a later seat whose pile is not in the head, while there are any.
    """
    (head_at, head), (tail_at, tail) = heads, tails
    base, suit, seat = starts(width), np.repeat(np.arange(len(width)), width), within(width)
    in_head = np.zeros(int(width.sum()), np.bool_)
    in_head[np.repeat(base, head) + order[spans(head_at, head)]] = True
    at = spans(tail_at, width)
    blocked = in_head[base[suit] + order[at]]
    clash = blocked & (seat < tail[suit])
    spare = ~blocked & (seat >= tail[suit])
    swaps = np.minimum(np.bincount(suit[clash], minlength=len(width)), np.bincount(suit[spare], minlength=len(width)))
    one, other = (at[flags][_rank(suit[flags]) < swaps[suit[flags]]] for flags in (clash, spare))
    order[one], order[other] = order[other], order[one]


def _rank(groups: Ints) -> Ints:
    """Position of each element among the equal ones, for ascending `groups`."""
    return within(np.unique_counts(groups).counts)


def deal_weights(weights: Ints, piles: int, *, key: int) -> Ints:
    """Deal cards of unequal weight: as many cards to every pile, within one, and nearly equal weight.

    Rounds as in `deal`, heaviest cards first; in each round the lightest pile gets the heaviest card.
    """
    order = shuffled(int(weights.max()) - weights, mix(key, np.arange(len(weights))))
    pile = np.empty(len(weights), np.int64)
    load = np.zeros(piles, np.int64)
    tie = mix(keyed(key, 1), np.arange(len(weights) + piles))
    for first in range(0, len(order), piles):
        cards = order[first : first + piles]
        lightest = shuffled(load - load.min(), tie[first : first + piles])[: len(cards)]
        pile[cards] = lightest
        load[lightest] += weights[cards]
    return pile
