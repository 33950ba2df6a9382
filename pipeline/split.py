"""Which split a sample belongs to. Pure: a keyed hash decides, not the order of the rows.

by item    within each class, some items are held out: the model meets every class in training, and
           is tested on items it has never met (default)
by class   some classes are held out whole, for models that compare rather than name
A `split` column of the index wins over both.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import xxhash

from pipeline.index import Row
from shards.errors import ConfigError, DataError

TRAIN: Final = "train"
ORDER: Final = (TRAIN, "val", "test")  # others follow, in text order
_NAME: Final = re.compile(r"[A-Za-z0-9_]+")  # a split's name begins the names of its shards


def rank(split: str) -> tuple[int, str]:
    """The place of a split among others, to sort by."""
    return (ORDER.index(split) if split in ORDER else len(ORDER)), split


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """How samples are dealt to train, val and test."""

    by: Literal["item", "class"] = "item"
    """What is held out: items of every class, or whole classes. A split column in the index wins over it."""
    val: float = 0.1
    """Share for validation, 0 for none; of each class's items at least one, if it has two."""
    test: float = 0.0
    """Share for a test set, 0 for none."""
    seed: int = 0
    """Another seed holds out others."""

    def __post_init__(self) -> None:
        if not (0 <= self.val < 1 and 0 <= self.test < 1 and self.val + self.test < 1):
            raise ConfigError(f"val {self.val} and test {self.test} must be shares from 0 that leave some for training")


def assign(
    rows: Sequence[Row], options: SplitOptions, before: Mapping[str, Mapping[str, str]] | None = None
) -> tuple[list[str], list[str]]:
    """The split of every row, and notes for people. Depends on the set of rows, not on their order.

    before    the splits of items, by class, that are decided already; new ones fill the shares up
    """
    before = before or {}
    if rows and rows[0].split is not None:
        return _from_column(rows)
    items: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        items[row.class_name].add(row.item)
    if options.by == "class":
        fixed = {name: next(iter(of_class.values())) for name, of_class in before.items()}
        held = _held_out(items, ("",), options, fixed)
        return [held.get(row.class_name, TRAIN) for row in rows], []
    held_items = {name: _held_out(of_class, (name,), options, before.get(name, {})) for name, of_class in items.items()}
    single = sorted(name for name, of_class in items.items() if len(of_class | before.get(name, {}).keys()) == 1)
    notes: list[str] = []
    if single and options.val + options.test > 0:
        shown = ", ".join(map(repr, single[:5])) + (", ..." if len(single) > 5 else "")
        notes.append(f"{len(single):,} classes have one item only and stay in training whole: {shown}")
    return [held_items[row.class_name].get(row.item, TRAIN) for row in rows], notes


def _held_out(
    names: Iterable[str], inside: tuple[str, ...], options: SplitOptions, fixed: Mapping[str, str]
) -> dict[str, str]:
    """Which of `names` are held out, and for what; at least one stays in training. `fixed` ones stay where they are.

    Validation takes the lowest hashes and test the highest, so that changing one share moves nobody
    of the other.
    """
    everything = {*names, *fixed}
    spare = len(everything) - 1
    val = min(_count(options.val, len(everything)), spare)
    test = min(_count(options.test, len(everything)), spare - val)
    there = Counter(fixed.values())
    ranked = sorted(everything - fixed.keys(), key=lambda name: _hash(options.seed, *inside, name))
    val = min(max(0, val - there["val"]), len(ranked))
    test = min(max(0, test - there["test"]), len(ranked) - val)
    return {**fixed, **dict.fromkeys(ranked[:val], "val"), **dict.fromkeys(ranked[len(ranked) - test :], "test")}


def _count(share: float, of: int) -> int:
    return max(1, round(share * of)) if share > 0 else 0


def _hash(seed: int, *words: str) -> int:
    return xxhash.xxh3_64_intdigest("\0".join((str(seed), *words)).encode())


def _from_column(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    splits = [row.split or "" for row in rows]
    wrong = [row for row in rows if not _NAME.fullmatch(row.split or "")]
    if wrong:
        raise DataError(
            f"row {wrong[0].row}: split {wrong[0].split!r} ({len(wrong):,} rows like it); "
            "a split is a word of letters, digits and _, such as train, val or test"
        )
    where: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for row, split in zip(rows, splits, strict=True):
        where[row.class_name, row.item].add(split)
    shared = sorted(key for key, found in where.items() if len(found) > 1)
    if not shared:
        return splits, []
    class_name, item = shared[0]
    return splits, [f"the split column puts {len(shared):,} items into several splits, first {class_name!r}/{item!r}"]
