"""The endless stream of groups of each class: K samples at a time, deal after deal.

One *deal* of a class with n samples is ceil(n / K) groups, in which every sample of the class is,
items kept apart while they can be. Deal d of a class is a function of (seed, label, d) alone, so an
epoch takes its window of every stream without knowing who took the ones before.
"""

from dataclasses import dataclass
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from shards.deal import Ints, deal_tables, mix, shuffled, starts, within
from shards.manifest import Selection

_DEALT_AT_ONCE: Final = 2**16  # samples: temporary arrays stay in the CPU cache, and memory is that of the result


@final
@dataclass(frozen=True, kw_only=True)
class Groups:
    """Groups of one epoch: `rows` is (G, K) int64, `code` (G,) the position of each one's class."""

    code: Ints
    rows: Ints


@final
class GroupStreams:
    """The streams of all classes of a selection; a class is named by its `code`, a position in `labels`.

    bucket    groups are made of samples of like length: those of `bucket` groups, sorted by length, are dealt by
              themselves. Items stay apart within these. None: length does not matter
    """

    def __init__(self, selection: Selection, samples_per_class: int, key: int, *, bucket: int | None = None) -> None:
        self.samples_per_class = samples_per_class
        self._bucket = bucket
        order = np.lexsort((selection.items, selection.labels))
        if bucket is not None:
            frames = selection.data.frames[selection.rows]
            order = np.lexsort((selection.rows, frames, selection.labels))
            counts = np.unique_counts(selection.labels).counts
            size = bucket * samples_per_class
            piece = np.minimum(within(counts) // size, np.repeat(np.maximum(counts // size, 1) - 1, counts))
            order = order[np.lexsort((selection.items[order], piece, selection.labels[order]))]
        self._rows = selection.rows[order]
        self._items = selection.items[order]
        self.labels: NDArray[np.int32]
        self.labels, self.sizes = np.unique_counts(selection.labels[order])
        self.sizes = self.sizes.astype(np.int64)
        self.groups_per_deal: Ints = -(-self.sizes // samples_per_class)
        self._first = starts(self.sizes)
        self._keys = mix(key, self.labels.astype(np.int64))

    def rows(self, groups: Ints, first: Ints, count: Ints) -> Ints:
        """(n, K) rows of `groups`, numbers among those of an epoch: `count` of each class, from `first` on.

        Some classes at a time, so that what is dealt and not taken is never much.
        """
        order = np.argsort(groups, kind="stable")
        ordered, begin = groups[order], starts(count)
        code = np.searchsorted(begin, ordered, side="right") - 1
        codes = np.unique(code)
        out = np.empty((len(groups), self.samples_per_class), np.int64)
        dealt = np.cumsum(np.maximum(count * self.samples_per_class, self.sizes)[codes])
        cuts = np.flatnonzero(np.diff(dealt // _DEALT_AT_ONCE)) + 1
        for some in np.split(codes, cuts):
            part = slice(*np.searchsorted(code, [some[0], some[-1] + 1]).tolist()) if len(some) else slice(0)
            lead = begin[some] - starts(count[some])  # how many numbers before those of a class are not taken
            place = ordered[part] - lead[np.searchsorted(some, code[part])]
            out[order[part]] = self.take(some, first[some], count[some]).rows[place]
        return out

    def take(self, codes: Ints, first: Ints, count: Ints) -> Groups:
        """Groups `first` to `first + count` (each count at least 1) of the streams of `codes`."""
        per_deal = self.groups_per_deal[codes]
        deals = (first + count - 1) // per_deal - first // per_deal + 1
        table = np.repeat(np.arange(len(codes)), deals)
        number = (first // per_deal)[table] + within(deals)
        code, piles = codes[table], per_deal[table]
        key = mix(self._keys[code], number)
        part, cards, part_piles, part_key = self._parts(code, key)
        rows, pile_sizes = self._deal(part, cards, part_piles, part_key)
        # Position of each dealt group in its class's stream, and whether the window holds it.
        place = within(piles)
        if self._bucket is not None:  # or each deal would begin with its shortest
            deal_of = np.repeat(np.arange(len(piles)), piles)
            place[shuffled(deal_of, mix(~key[deal_of], place))] = within(piles)
        stream = np.repeat(number * piles, piles) + place
        owner = np.repeat(table, piles)
        wanted = np.flatnonzero((stream >= first[owner]) & (stream < (first + count)[owner]))
        wanted = wanted[np.lexsort((stream[wanted], owner[wanted]))] if self._bucket is not None else wanted
        return Groups(code=codes[owner[wanted]], rows=self._filled(rows, pile_sizes, part_piles, wanted))

    def _parts(self, code: Ints, key: NDArray[np.uint64]) -> tuple[Ints, Ints, Ints, NDArray[np.uint64]]:
        """First sample in `_rows`, cards, piles and key of all that is dealt by itself: whole deals, or buckets."""
        if self._bucket is None:
            return self._first[code], self.sizes[code], self.groups_per_deal[code], key
        size = self._bucket * self.samples_per_class
        parts = np.maximum(self.sizes[code] // size, 1)
        deal_of, number = np.repeat(np.arange(len(code)), parts), within(parts)
        last = number == parts[deal_of] - 1
        cards = np.where(last, self.sizes[code][deal_of] - number * size, size)
        first = self._first[code][deal_of] + number * size
        return first, cards, -(-cards // self.samples_per_class), mix(key[deal_of], number)

    def _deal(self, first: Ints, cards: Ints, piles: Ints, key: NDArray[np.uint64]) -> tuple[Ints, Ints]:
        """Rows of `cards` samples from `first` on, dealt to `piles`, group by group, and the size of each group."""
        table = np.repeat(np.arange(len(cards)), cards)
        place = within(cards)
        at = first[table] + place
        # Items come in a random order, and samples in a random order within their item.
        begins = (place == 0) | (np.diff(self._items[at], prepend=-1) != 0)
        suit = np.cumsum(begins) - 1
        suit_table = table[begins]
        shuffled_suits = shuffled(suit_table, mix(key[suit_table], np.arange(len(suit_table)) - starts_of(suit_table)))
        rank = np.empty_like(shuffled_suits)
        rank[shuffled_suits] = np.arange(len(rank))
        order = shuffled(rank[suit], mix(~key[table], place))
        group = starts(piles)[table] + deal_tables(rank[suit][order], cards, piles, key=key)
        by_group = order[np.argsort(group, kind="stable")]
        return self._rows[at[by_group]], np.bincount(group, minlength=int(piles.sum()))

    def _filled(self, rows: Ints, sizes: Ints, piles: Ints, wanted: Ints) -> Ints:
        """(G, K) rows of the `wanted` groups; a short one is filled from the next group of its deal.

        The next group shares no sample with it. With one group in the deal (a class of at most K
        samples) the next is itself, and its samples repeat.
        """
        table = np.repeat(np.arange(len(piles)), piles)
        deal_first = starts(piles)[table]
        following = deal_first + (np.arange(len(table)) - deal_first + 1) % piles[table]
        first, size, after = starts(sizes)[wanted, None], sizes[wanted, None], following[wanted, None]
        seat = np.arange(self.samples_per_class)[None, :]
        own = first + seat
        filler = starts(sizes)[after] + (seat - size) % sizes[after]
        return rows[np.where(seat < size, own, filler)]


def starts_of(groups: Ints) -> Ints:
    """For ascending `groups`, where the run of each element begins."""
    begins = np.flatnonzero(np.diff(groups, prepend=-1))
    return np.repeat(begins, np.diff(begins, append=len(groups)))
