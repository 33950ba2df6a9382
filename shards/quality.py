"""How well an epoch is mixed, and what its order asks of the storage, as numbers to compare orders by."""

from dataclasses import dataclass
from typing import Final, Self, final

import numpy as np

from shards.sampler import BalancedSampler

_PARTS: Final = 20  # of an epoch: its first, middle and last twentieth are looked at
_STEPS: Final = 100  # in a row, in which shards in play are counted
_LOOKS: Final = 50  # stretches of so many steps that are counted, evenly spaced


@final
@dataclass(frozen=True, kw_only=True)
class PlanQuality:
    """Of one rank's epoch.

    same_shard         share of pairs of samples of different classes in a batch that lie in one shard
    same_shard_free    the same for an order without windows
    classes            distinct classes in the first, middle and last twentieth of the epoch
    shards             distinct shards in 100 steps in a row: the median, and all of this rank's
    padding            share of a batch of whole samples that is padding
    repeats            groups that fill a place once more
    """

    steps: int
    same_shard: float
    same_shard_free: float
    classes: tuple[int, int, int]
    shards: int
    shards_of_rank: int
    padding: float
    repeats: int

    @classmethod
    def of(cls, sampler: BalancedSampler, free: BalancedSampler) -> Self:
        """Of a sampler's current epoch, beside that of one without a window."""
        plan = sampler.plan(sampler.epoch)
        data = sampler.selection.data
        shards, labels = data.shards[plan], data.labels[plan]
        part = max(1, len(plan) // _PARTS)
        stretch = min(_STEPS, len(plan))
        begins = np.linspace(0, len(plan) - stretch, _LOOKS).astype(int)
        middle = (len(plan) - part) // 2
        first, mid, last = (len(np.unique(labels[at : at + part])) for at in (0, middle, len(plan) - part))
        return cls(
            steps=len(plan),
            same_shard=_same_shard(sampler),
            same_shard_free=_same_shard(free),
            classes=(first, mid, last),
            shards=int(np.median([len(np.unique(shards[at : at + stretch])) for at in begins])),
            shards_of_rank=len(np.unique(shards)),
            padding=float(sampler.padding),
            repeats=sampler.repeats,
        )

    def lines(self) -> list[str]:
        """In words."""
        first, middle, last = self.classes
        free = self.same_shard_free
        return [
            f"{self.steps:,} steps; {self.repeats:,} groups top them up",
            f"pairs of a batch in one shard, classes apart: {self.same_shard:.2%}; {free:.2%} without a window",
            f"classes in the first, middle and last twentieth of the epoch: {first:,}, {middle:,}, {last:,}",
            f"shards in {_STEPS} steps in a row: {self.shards:,} of {self.shards_of_rank:,}",
            f"whole samples in these batches: {self.padding:.1%} padding",
        ]


def _same_shard(sampler: BalancedSampler) -> float:
    """Share of pairs of groups (of different classes, therefore) in a step whose first samples are in one shard."""
    plan = sampler.plan(sampler.epoch)
    shards = sampler.selection.data.shards[plan.reshape(len(plan), sampler.classes_per_batch, -1)[:, :, 0]]
    places = shards.shape[1]
    if places == 1 or not len(shards):
        return 0.0
    ordered = np.sort(shards, axis=1)
    run = np.ones(len(ordered), np.int64)
    pairs = 0
    for place in range(1, places):
        run = np.where(ordered[:, place] == ordered[:, place - 1], run + 1, 1)
        pairs += int((run - 1).sum())
    return pairs / (len(shards) * places * (places - 1) / 2)
