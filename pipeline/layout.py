"""Which sample goes to which shard. Pure: the same set of rows gives the same layout in any order.

Class-major: a class sits in as few shards as possible, so that dealing shards deals classes. A label
is the class's position in text order; classes that come later follow those that have a label.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from typing import Final

import xxhash

from pipeline.features import Feature, Form, Reading
from pipeline.index import Row
from pipeline.split import rank
from shards.sample import PAGE
from shards.schema import VERSION, Container

SHARD_NAME: Final = re.compile(r"(\w+)-(\d{5,})\.(tar|arrow)")

_Sample = tuple[Row, Feature]


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One shard to be: its samples in order, what it will weigh, and a digest of all that goes in.

    nbytes    an estimate from payload sizes, for packing and progress
    """

    name: str
    split: str
    rows: tuple[Row, ...]
    features: tuple[Feature, ...]
    labels: tuple[int, ...]
    nbytes: int
    digest: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """All shards in row order; `row` of the manifest counts through them."""

    classes: tuple[str, ...]
    shards: tuple[Shard, ...]

    @property
    def nbytes(self) -> int:
        """What all shards will weigh, about."""
        return sum(shard.nbytes for shard in self.shards)


def lay_out(
    rows: Sequence[Row],
    features: Sequence[Feature],
    splits: Sequence[str],
    *,
    form: Form,
    shard_bytes: int,
    reading: Reading,
    container: Container = "tar",
    classes: Sequence[str] = (),
    numbers: Mapping[str, int] | None = None,
) -> Layout:
    """Pack `rows`, with their `features` and `splits`, into shards of about `shard_bytes`.

    container        ends the shards' names; those of "raw" are portions of work that become no file
    form, reading    part of every shard's digest: they decide what goes in
    classes          those that have a label already
    numbers          the number of each split's first shard, 0 if there is none
    """
    placed = sorted(zip(splits, rows, features, strict=True), key=lambda p: (rank(p[0]), p[1][:3]))
    classes = (*classes, *sorted({row.class_name for row in rows}.difference(classes)))
    label_of = {name: label for label, name in enumerate(classes)}
    salt = f"{VERSION} {form} {reading}"
    shards: list[Shard] = []
    for split, of_split in groupby(placed, key=lambda p: p[0]):
        samples = ((row, feature) for _, row, feature in of_split)
        of_class = [tuple(group) for _, group in groupby(samples, key=lambda s: s[0].class_name)]
        for number, packed in enumerate(_pack(of_class, shard_bytes), start=numbers[split] if numbers else 0):
            labels = tuple(label_of[row.class_name] for row, _ in packed)
            shards.append(
                Shard(
                    name=f"{split}-{number:05d}.{container}",
                    split=split,
                    rows=tuple(row for row, _ in packed),
                    features=tuple(feature for _, feature in packed),
                    labels=labels,
                    nbytes=sum(map(_weight, packed)),
                    digest=_digest(salt, packed, labels),
                )
            )
    return Layout(classes=classes, shards=tuple(shards))


def _pack(classes: Iterable[tuple[_Sample, ...]], target: int) -> list[tuple[_Sample, ...]]:
    """Fill shards class by class; a class that does not fit in what is left begins the next shard."""
    shards: list[tuple[_Sample, ...]] = []
    filling: list[_Sample] = []
    filled = 0
    for samples in classes:
        size = sum(map(_weight, samples))
        if filling and filled + size > target:
            shards.append(tuple(filling))
            filling, filled = [], 0
        if size > target:
            shards.extend(_equal_parts(samples, ceil(size / target)))
        else:
            filling.extend(samples)
            filled += size
    return [*shards, tuple(filling)] if filling else shards


def _equal_parts(samples: tuple[_Sample, ...], parts: int) -> list[tuple[_Sample, ...]]:
    """Cut a large class into about equal shards of its own."""
    total = sum(map(_weight, samples))
    cut: dict[int, list[_Sample]] = {}  # in ascending order, and not one entry more than there are samples
    before = 0
    for sample in samples:
        middle = before + _weight(sample) / 2
        cut.setdefault(min(parts - 1, int(middle * parts / total)), []).append(sample)
        before += _weight(sample)
    return [tuple(part) for part in cut.values()]


# What the tar adds to a payload: five blocks of headers and small members, then up to the boundary.
_ADDED: Final = PAGE + PAGE // 2


def _weight(sample: _Sample) -> int:
    return sample[1].nbytes + _ADDED


def _digest(salt: str, samples: Sequence[_Sample], labels: Sequence[int]) -> str:
    """xxh3-128 of all that decides the shard's bytes, as far as a listing tells."""
    digest = xxhash.xxh3_128(salt.encode())
    for (row, feature), label in zip(samples, labels, strict=True):
        # Names end in a zero byte, which no label may hold, so no two rows run into one another.
        words = (row.id, row.class_name, row.item, row.path, str(label), str(feature.size), str(feature.mtime_ns), "")
        digest.update("\0".join(words).encode())
    return digest.hexdigest()
