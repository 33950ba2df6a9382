"""Which samples each rank sees, step by step: a table, and a pure function of what it is made from."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from shards.deal import Ints, keyed, mix
from shards.epoch import Epoch, Lengths, Mode, Segment
from shards.errors import ConfigError
from shards.groups import GroupStreams
from shards.manifest import Selection
from shards.world import World

Disjoint = Literal["auto", "class", "sample"]

_FRACTION: Final = 20  # quotas are whole numbers of 2**-20 groups, so every machine rounds them alike


@final
@dataclass(frozen=True, kw_only=True)
class _Plan:
    """This rank's rows (steps, B) of what `past` has left of an epoch, and how many groups in them are repeats."""

    epoch: int
    past: tuple[Segment, ...]
    rows: Ints
    repeats: int


@final
class BalancedSampler:
    """Batches of P distinct classes, K samples each; the ranks' classes are disjoint in every epoch.

    batch_size           B = P * K, samples in one rank's batch
    samples_per_class    K; a class with fewer samples repeats them
    class_weighting      a in [0, 1]: a class of m groups gets groups in proportion to m ** a.
                         0: every class equally often; 1: every sample once an epoch
    disjoint             "class": every class is on one rank an epoch. "sample": the groups of every
                         class go to all ranks. "auto": the first that can fill batches
    window               shards that a rank has in play at a time, or somewhat more where batches need it; shards
                         rather than classes are dealt to ranks. For disks that seek, file systems that cache
    bucket               samples of like length come together: groups are drawn among those of `bucket` groups that
                         are neighbours in length, and steps are made of like groups, at the same time on all ranks
    The plan of an epoch depends on (selection, options, seed, epoch, world) and nothing else.
    """

    def __init__(
        self,
        selection: Selection,
        *,
        batch_size: int,
        samples_per_class: int,
        world: World | None = None,
        seed: int = 0,
        class_weighting: float = 0.0,
        disjoint: Disjoint = "auto",
        window: int | None = None,
        bucket: int | None = None,
    ) -> None:
        self.selection = selection
        self.batch_size = batch_size
        self.world = world or World()
        self.seed = seed
        self.epoch = 0
        self.step = 0  # where the next iteration begins; not 0 only after load_state_dict
        self._drawn = 0  # steps that the iteration under way has given, and those before it
        self._options: dict[str, Any] = {
            "samples_per_class": samples_per_class,
            "class_weighting": class_weighting,
            "window": window,
            "bucket": bucket,
        }
        if samples_per_class < 1 or batch_size % samples_per_class or batch_size < samples_per_class:
            raise ConfigError(
                f"batch_size {batch_size} is not a multiple of samples_per_class {samples_per_class}: "
                f"a batch is classes times samples; take {max(1, batch_size // max(1, samples_per_class))} times "
                f"{samples_per_class} = "
                f"{max(1, batch_size // max(1, samples_per_class)) * samples_per_class}"
            )
        if (window is not None and window < 1) or (bucket is not None and bucket < 1):
            raise ConfigError(f"window {window}, bucket {bucket}: at least 1, or None for no such order")
        if not 0 <= class_weighting <= 1:
            raise ConfigError(f"class_weighting {class_weighting}: from 0 (classes alike) to 1 (samples alike)")
        self.classes_per_batch = batch_size // samples_per_class
        self._streams = GroupStreams(selection, samples_per_class, keyed(seed, 0), bucket=bucket)
        self._homes = _homes(selection)
        self._disjoint: Disjoint = disjoint
        self.disjoint: Mode = self._mode(self.world.size, self.classes_per_batch)
        self._refuse_too_few_classes()
        self._quota = self._quotas(self.world.size, self.classes_per_batch)
        self._phase = (mix(keyed(seed, 1), self._streams.labels.astype(np.int64)) >> np.uint64(64 - _FRACTION)).astype(
            np.int64
        )
        self._past: tuple[Segment, ...] = ()  # what other worlds have done of the current epoch
        self._planned: _Plan | None = None

    def __len__(self) -> int:
        """Steps of the current epoch, those of other worlds before this one too: the same on every rank."""
        return self._begin + len(self.plan(self.epoch))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the rows of each batch of this epoch, then advance to the next epoch."""
        first, self.step = self.step, 0
        for step in range(max(first, self._begin), len(self)):
            self._drawn = step + 1
            yield self.batch(step).tolist()
        self.set_epoch(self.epoch + 1)

    def batch(self, step: int) -> Ints:
        """Rows of one batch of the current epoch, (B,) int64."""
        return self.plan(self.epoch)[step - self._begin]

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of `epoch`; the epoch that is current already keeps a resumed position."""
        if epoch != self.epoch:
            self.epoch, self.step, self._drawn, self._past = epoch, 0, 0, ()

    def plan(self, epoch: int) -> Ints:
        """This rank's part of an epoch: (steps, B) int64 rows, each step P runs of K rows of one class."""
        return self._plan(epoch).rows

    @property
    def repeats(self) -> int:
        """Groups that fill a place once more in this rank's part of the current epoch."""
        return self._plan(self.epoch).repeats

    @property
    def padding(self) -> float:
        """Share of a batch of whole samples, padded to its longest, that is padding: over this rank's epoch."""
        frames = self.selection.data.frames[self.plan(self.epoch)]
        return 1 - frames.sum() / max(1, frames.max(axis=1, initial=0).sum() * self.batch_size)

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """State after `step` steps of this epoch (by default those drawn by iterating over this sampler).

        `load_state_dict` of any sampler of the same samples takes it.
        `segments` are [ranks, batch_size, steps] of every world that has had a part in the epoch.
        """
        k = self._options["samples_per_class"]
        done = max(0, (self._drawn if step is None else step) - self._begin)
        now = Segment(ranks=self.world.size, classes=self.classes_per_batch, steps=done)
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "segments": [[s.ranks, s.classes * k, s.steps] for s in (*self._past, now)],
            "options": dict(self._options),
            "data": self.selection.data.fingerprint,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the saved position, in a world of another size and with another batch_size if need be.

        Then what is left of the epoch is dealt anew: every group of the epoch is used once, whichever
        worlds had a part in it. Refuses the state of other data, options or seed.
        """
        here = {"data": self.selection.data.fingerprint, "seed": self.seed} | self._options
        saved = {"data": state["data"], "seed": state["seed"]} | state["options"]
        differ = [
            f"{name} was {value!r}, is {here.get(name)!r}" for name, value in saved.items() if value != here.get(name)
        ]
        if differ:
            raise ConfigError(
                f"the saved position is of another order of samples: {'; '.join(differ)}. "
                "Resume with what the run was started with, or begin a new run"
            )
        k = self._options["samples_per_class"]
        past = [Segment(ranks=ranks, classes=batch // k, steps=steps) for ranks, batch, steps in state["segments"]]
        past = [segment for segment in past if segment.steps]
        done = 0
        if past and (past[-1].ranks, past[-1].classes) == (self.world.size, self.classes_per_batch):
            done = past.pop().steps
        self.epoch, self._past = state["epoch"], tuple(past)
        self.step = self._drawn = self._begin + done

    def groups_per_epoch(self) -> NDArray[np.float64]:
        """How many groups of each class an epoch takes, on average over epochs, in label order."""
        return self._quota / 2**_FRACTION

    def describe(self) -> list[str]:
        """What a person should know of this sampling, in sentences with numbers."""
        sizes, k = self._streams.sizes, self._streams.samples_per_class
        steps = len(self)
        places = (steps - self._begin) * self.classes_per_batch
        order = (
            f"{len(sizes):,} classes, {sizes.sum():,} samples ({sizes.min()} to {sizes.max()} a class); "
            f"{self.world.size} x {self.classes_per_batch} classes x {k} samples a step, {steps:,} steps an epoch, "
            f"ranks disjoint by {self.disjoint}"
        )
        share = self.repeats / max(1, places)
        lines = [order, f"{self.repeats:,} of this rank's {places:,} groups top it up ({share:.2%})"]
        if self._options["bucket"] is not None:
            lines.append(f"whole samples in batches of like length: {self.padding:.1%} of a batch is padding")
        small = int((sizes < k).sum())
        if small:
            lines.append(f"{small:,} classes have fewer than {k} samples: their samples repeat within a batch")
        filled = int((self._streams.groups_per_deal * k - sizes).sum())
        if filled:
            lines.append(f"{filled:,} of {filled + sizes.sum():,} places in one round of all classes are filled twice")
        return lines

    @property
    def _begin(self) -> int:
        """Steps of the current epoch that other worlds have done."""
        return sum(segment.steps for segment in self._past)

    def _plan(self, epoch: int) -> _Plan:
        past = self._past if epoch == self.epoch else ()
        if self._planned is None or (self._planned.epoch, self._planned.past) != (epoch, past):
            self._planned = self._make_plan(epoch, past)
        return self._planned

    def _mode(self, ranks: int, classes: int) -> Mode:
        """How `ranks` ranks share the samples when a batch has `classes` classes."""
        if self._disjoint == "auto":
            return "class" if self._fewest_classes(ranks) >= classes else "sample"
        return self._disjoint

    def _fewest_classes(self, ranks: int) -> int:
        """Classes that a rank has for itself when it gets the poorest part."""
        if self._options["window"] is None:
            return len(self._homes) // ranks
        of_home = np.sort(np.bincount(self._homes))
        return int(of_home[: len(of_home) // ranks].sum())

    def _refuse_too_few_classes(self) -> None:
        classes, p, world = len(self._streams.sizes), self.classes_per_batch, self.world.size
        if classes < p:
            raise ConfigError(
                f"{classes} classes in split {self.selection.name!r}, but a batch needs {p} distinct ones "
                f"(batch_size / samples_per_class): lower batch_size to {classes} x samples_per_class or less"
            )
        fewest = self._fewest_classes(world)
        if self.disjoint == "class" and fewest < p:
            raise ConfigError(
                f"{classes} classes over {world} ranks leave {fewest} to a rank, but a batch needs {p}: "
                'use disjoint="sample" (ranks share classes, never groups) or smaller batches'
            )

    def _quotas(self, ranks: int, classes: int) -> Ints:
        """Groups of each class in an epoch of `ranks` ranks with `classes` classes a batch, in units of 2**-20.

        A class can be in a step once (on one rank, or on each in mode "sample"), so its quota is at
        most the number of steps; what is cut there goes to the other classes by weight.
        """
        groups = self._streams.groups_per_deal
        total = float(groups.sum())
        weights = groups.astype(np.float64) ** self._options["class_weighting"]
        mode = self._mode(ranks, classes)
        limit = total / (classes * (ranks if mode == "class" else 1))
        quota = total * weights / weights.sum()
        while (over := quota > limit * (1 + 1e-12)).any():
            quota[over] = limit
            free = quota < limit
            rest = total - quota[~free].sum()
            quota[free] = rest * weights[free] / weights[free].sum()
        if mode == "sample":
            quota = np.maximum(quota, ranks)  # every rank needs every class
        return np.rint(quota * 2**_FRACTION).astype(np.int64)

    def _taken(self, epoch: int, quota: Ints) -> tuple[Ints, Ints]:
        """Where this epoch's groups begin in the stream of each class, and how many they are."""
        begin = (epoch * quota + self._phase) >> _FRACTION
        end = ((epoch + 1) * quota + self._phase) >> _FRACTION
        return begin, end - begin

    def _make_plan(self, epoch: int, past: tuple[Segment, ...]) -> _Plan:
        classes = self.classes_per_batch
        # The world that began an epoch has chosen its groups.
        quota = self._quotas(past[0].ranks, past[0].classes) if past else self._quota
        first, count = self._taken(epoch, quota)
        lengths = None if self._options["bucket"] is None else self._lengths(first, count)
        window = self._options["window"]
        groups = Epoch(count, seed=self.seed, epoch=epoch, homes=self._homes, window=window, lengths=lengths)
        for segment in past:
            groups.advance(segment, self._mode(segment.ranks, segment.classes))
        hand = groups.hand(self.world, classes, self.disjoint)
        rows = self._streams.rows(hand.groups.reshape(-1), first, count)
        steps = len(hand.groups)
        return _Plan(epoch=epoch, past=past, rows=rows.reshape(steps, self.batch_size), repeats=int(hand.again.sum()))

    def _lengths(self, first: Ints, count: Ints) -> Lengths:
        frames, labels = self.selection.data.frames, self.selection.labels
        mean = np.bincount(labels, frames[self.selection.rows]) / np.maximum(1, np.bincount(labels))
        return Lengths(
            of_classes=mean[self._streams.labels],
            of_groups=lambda groups: frames[self._streams.rows(groups, first, count)].max(axis=1),
        )


def _homes(selection: Selection) -> Ints:
    """Shard of each class's first sample, (C,), numbered from 0."""
    first = np.unique(selection.labels, return_index=True)[1]
    return np.unique(selection.data.shards[selection.rows[first]], return_inverse=True)[1]
