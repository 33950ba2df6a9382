"""A corpus in numbers: its classes and their sizes, lengths, bytes, splits. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray

SPREAD_HEAD: Final = ("", "least", "median", "most")
_Ints = NDArray[np.int64]


class Spread(NamedTuple):
    """The least, the median and the most of some numbers; all 0 if there are none."""

    least: int
    median: float
    most: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        """Of `values`, in one pass over them and one to find the middle."""
        return cls(int(values.min()), float(np.median(values)), int(values.max())) if len(values) else cls(0, 0.0, 0)

    def cells(self) -> tuple[str, str, str]:
        """As text, for a table."""
        return f"{self.least:,}", f"{self.median:,.1f}".removesuffix(".0"), f"{self.most:,}"


class Part(NamedTuple):
    """One split: how much is in it."""

    name: str
    samples: int
    classes: int
    items: int
    frames: int
    nbytes: int


@final
@dataclass(frozen=True, kw_only=True)
class Summary:
    """Samples as columns of numbers.

    labels    position in `classes`, which is in text order
    items     codes; equal codes in one class are one item
    splits    position in `split_names`, which is in order of first appearance; empty if nothing is split yet
    """

    classes: tuple[str, ...]
    labels: _Ints
    items: _Ints
    split_names: tuple[str, ...]
    splits: _Ints
    frames: _Ints
    nbytes: _Ints

    @classmethod
    def of(
        cls,
        *,
        class_names: Sequence[str],
        items: Sequence[str],
        splits: Sequence[str],
        frames: Sequence[int],
        nbytes: Sequence[int],
    ) -> Self:
        """From columns of equal length, one entry a sample; `splits` may be empty."""
        names, codes = _coded(class_names)
        classes = tuple(sorted(names))
        place = {name: label for label, name in enumerate(classes)}
        label_of = np.array([place[name] for name in names], np.int64)
        split_names, split_codes = _coded(splits)
        return cls(
            classes=classes,
            labels=label_of[codes],
            items=_coded(items)[1],
            split_names=tuple(split_names),
            splits=split_codes,
            frames=np.asarray(frames, np.int64),
            nbytes=np.asarray(nbytes, np.int64),
        )

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def class_sizes(self) -> _Ints:
        """Samples of each class."""
        return np.bincount(self.labels, minlength=len(self.classes))

    @cached_property
    def class_items(self) -> _Ints:
        """Items of each class."""
        return np.bincount(self._item_classes(self.labels, self.items), minlength=len(self.classes))

    @property
    def spreads(self) -> dict[str, Spread]:
        """The sizes that differ from class to class and from sample to sample, by what they are."""
        return {
            "samples (ids) per class": Spread.of(self.class_sizes),
            "items per class": Spread.of(self.class_items),
            "frames per sample": Spread.of(self.frames),
            "bytes per sample": Spread.of(self.nbytes),
        }

    @property
    def parts(self) -> list[Part]:
        """One line a split, in order of first appearance."""
        parts: list[Part] = []
        for code, name in enumerate(self.split_names):
            here = self.splits == code
            labels = self.labels[here]
            parts.append(
                Part(
                    name,
                    samples=len(labels),
                    classes=int(np.count_nonzero(np.bincount(labels))),
                    items=len(self._item_classes(labels, self.items[here])),
                    frames=int(self.frames[here].sum()),
                    nbytes=int(self.nbytes[here].sum()),
                )
            )
        return parts

    @staticmethod
    def _item_classes(labels: _Ints, items: _Ints) -> _Ints:
        """The label of every item: an item's name may come again in another class."""
        width = int(items.max(initial=0)) + 1
        return np.unique(labels * width + items) // width


def _coded(names: Sequence[str]) -> tuple[list[str], _Ints]:
    """The distinct names in order of first appearance, and every name's position in them."""
    codes: dict[str, int] = {}
    positions = [codes.setdefault(name, len(codes)) for name in names]
    return list(codes), np.array(positions, np.int64)
