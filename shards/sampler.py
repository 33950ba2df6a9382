"""Which samples each rank sees, step by step: a table, and a pure function of what it is made from."""

from collections.abc import Iterator
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray

from shards.deal import Ints, deal, deal_weights, keyed, mix, permutation, shuffled
from shards.errors import ConfigError
from shards.groups import Groups, GroupStreams
from shards.manifest import Selection
from shards.world import World

Disjoint = Literal["auto", "class", "sample"]

_FRACTION: Final = 20  # quotas are whole numbers of 2**-20 groups, so every machine rounds them alike


@final
class BalancedSampler:
    """Batches of P distinct classes, K samples each; the ranks' classes are disjoint in every epoch.

    batch_size           B = P * K, samples in one rank's batch
    samples_per_class    K; a class with fewer samples repeats them
    class_weighting      a in [0, 1]: a class of m groups gets groups in proportion to m ** a.
                         0: every class equally often; 1: every sample once an epoch
    disjoint             "class": every class is on one rank an epoch. "sample": the groups of every
                         class go to all ranks. "auto": the first that can fill batches
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
    ) -> None:
        self.selection = selection
        self.batch_size = batch_size
        self.world = world or World()
        self.seed = seed
        self.epoch = 0
        self.step = 0  # where the next iteration begins; not 0 only after load_state_dict
        self._options = {
            "batch_size": batch_size,
            "samples_per_class": samples_per_class,
            "class_weighting": class_weighting,
        }
        if samples_per_class < 1 or batch_size % samples_per_class or batch_size < samples_per_class:
            raise ConfigError(
                f"batch_size {batch_size} is not a multiple of samples_per_class {samples_per_class}: "
                f"a batch is classes times samples; take {max(1, batch_size // max(1, samples_per_class))} times "
                f"{samples_per_class} = "
                f"{max(1, batch_size // max(1, samples_per_class)) * samples_per_class}"
            )
        if not 0 <= class_weighting <= 1:
            raise ConfigError(f"class_weighting {class_weighting}: from 0 (classes alike) to 1 (samples alike)")
        self.classes_per_batch = batch_size // samples_per_class
        self._streams = GroupStreams(selection, samples_per_class, keyed(seed, 0))
        self.disjoint = self._fitting(disjoint)
        self._quota = self._quotas(class_weighting)
        self._phase = (mix(keyed(seed, 1), self._streams.labels.astype(np.int64)) >> np.uint64(64 - _FRACTION)).astype(
            np.int64
        )
        self._planned: tuple[int, Ints] | None = None
        self.repeats = 0  # groups that top up this rank in the epoch planned last

    def __len__(self) -> int:
        """Steps of the current epoch: the same on every rank."""
        return len(self.plan(self.epoch))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the rows of each batch of this epoch, then advance to the next epoch."""
        first, self.step = self.step, 0
        plan = self.plan(self.epoch)
        for batch in plan[first:]:
            yield batch.tolist()
        self.set_epoch(self.epoch + 1)

    def batch(self, step: int) -> Ints:
        """Rows of one batch of the current epoch, (B,) int64."""
        return self.plan(self.epoch)[step]

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of `epoch`; the epoch that is current already keeps a resumed position."""
        if epoch != self.epoch:
            self.epoch, self.step = epoch, 0

    def plan(self, epoch: int) -> Ints:
        """This rank's epoch: (steps, B) int64 rows, each step P runs of K rows of one class."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = epoch, self._make_plan(epoch)
        return self._planned[1]

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """State after `step` batches of this epoch, for `load_state_dict` of a sampler made alike."""
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "segments": [[self.world.size, self.step if step is None else step]],
            "options": dict(self._options),
            "data": self.selection.data.fingerprint,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the saved position; refuses the state of other data, options, seed or world size."""
        [[size, step]] = state["segments"]
        here = {"data": self.selection.data.fingerprint, "seed": self.seed, "world size": self.world.size}
        saved = {"data": state["data"], "seed": state["seed"], "world size": size}
        differ = [
            f"{name} was {value!r}, is {(here | self._options)[name]!r}"
            for name, value in (saved | state["options"]).items()
            if value != (here | self._options)[name]
        ]
        if differ:
            raise ConfigError(
                f"the saved position is of another order of samples: {'; '.join(differ)}. "
                "Resume with what the run was started with, or begin a new run"
            )
        self.epoch, self.step = state["epoch"], step

    def groups_per_epoch(self) -> NDArray[np.float64]:
        """How many groups of each class an epoch takes, on average over epochs, in label order."""
        return self._quota / 2**_FRACTION

    def describe(self) -> list[str]:
        """What a person should know of this sampling, in sentences with numbers."""
        sizes, k = self._streams.sizes, self._streams.samples_per_class
        steps, places = len(self), len(self) * self.classes_per_batch
        order = (
            f"{len(sizes):,} classes, {sizes.sum():,} samples ({sizes.min()} to {sizes.max()} a class); "
            f"{self.world.size} x {self.classes_per_batch} classes x {k} samples a step, {steps:,} steps an epoch, "
            f"ranks disjoint by {self.disjoint}"
        )
        lines = [order, f"{self.repeats:,} of this rank's {places:,} groups top it up ({self.repeats / places:.2%})"]
        small = int((sizes < k).sum())
        if small:
            lines.append(f"{small:,} classes have fewer than {k} samples: their samples repeat within a batch")
        filled = int((self._streams.groups_per_deal * k - sizes).sum())
        if filled:
            lines.append(f"{filled:,} of {filled + sizes.sum():,} places in one round of all classes are filled twice")
        return lines

    def _fitting(self, disjoint: Disjoint) -> Literal["class", "sample"]:
        """The mode that can fill every batch with distinct classes; refuses what cannot."""
        classes, p, world = len(self._streams.sizes), self.classes_per_batch, self.world.size
        if classes < p:
            raise ConfigError(
                f"{classes} classes in split {self.selection.name!r}, but a batch needs {p} distinct ones "
                f"(batch_size / samples_per_class): lower batch_size to {classes} x samples_per_class or less"
            )
        if disjoint == "sample" or (disjoint == "auto" and classes // world < p):
            return "sample"
        if classes // world < p:
            raise ConfigError(
                f"{classes} classes over {world} ranks leave {classes // world} to a rank, but a batch needs {p}: "
                'use disjoint="sample" (ranks share classes, never groups) or smaller batches'
            )
        return "class"

    def _quotas(self, weighting: float) -> Ints:
        """Groups of each class an epoch, in units of 2**-20.

        A class can be in a step once (on one rank, or on each in mode "sample"), so its quota is at
        most the number of steps; what is cut there goes to the other classes by weight.
        """
        groups = self._streams.groups_per_deal
        total = float(groups.sum())
        weights = groups.astype(np.float64) ** weighting
        ranks = self.world.size
        limit = total / (self.classes_per_batch * (ranks if self.disjoint == "class" else 1))
        quota = total * weights / weights.sum()
        while (over := quota > limit * (1 + 1e-12)).any():
            quota[over] = limit
            free = quota < limit
            rest = total - quota[~free].sum()
            quota[free] = rest * weights[free] / weights[free].sum()
        if self.disjoint == "sample":
            quota = np.maximum(quota, ranks)  # every rank needs every class
        return np.rint(quota * 2**_FRACTION).astype(np.int64)

    def _window(self, epoch: int) -> tuple[Ints, Ints]:
        """Where this epoch's groups begin in the stream of each class, and how many they are."""
        begin = (epoch * self._quota + self._phase) >> _FRACTION
        end = ((epoch + 1) * self._quota + self._phase) >> _FRACTION
        return begin, end - begin

    def _make_plan(self, epoch: int) -> Ints:
        first, count = self._window(epoch)
        key = keyed(self.seed, 2, epoch)
        if self.disjoint == "class":
            owner = deal_weights(count, self.world.size, key=key)
            loads = np.bincount(owner, count, minlength=self.world.size).astype(np.int64)
            mine = np.flatnonzero(owner == self.world.rank)
            groups = self._streams.take(mine, first[mine], count[mine])
            most = int(count.max())
        else:
            groups = self._streams.take(np.arange(len(count)), first, count)
            owner = deal(groups.code, self.world.size, key=key)
            loads = np.bincount(owner, minlength=self.world.size)
            mine = np.flatnonzero(owner == self.world.rank)
            groups = Groups(code=groups.code[mine], rows=groups.rows[mine])
            most = -(-int(count.max()) // self.world.size)
        steps = max(-(-int(loads.max()) // self.classes_per_batch), most)
        return self._steps(groups, steps, keyed(self.seed, 3, epoch, self.world.rank))

    def _steps(self, groups: Groups, steps: int, key: int) -> Ints:
        """Deal a rank's groups to `steps` batches of distinct classes; a short rank repeats groups of its own."""
        code, rows = groups.code, groups.rows
        extra = _top_up(code, steps, steps * self.classes_per_batch - len(code), keyed(key, 0))
        self.repeats = len(extra)
        chosen = np.concatenate([np.arange(len(code)), extra])
        # Classes are laid out in a random order, or the same ones would never meet in a step.
        suit = permutation(int(code.max()) + 1, keyed(key, 1))[code[chosen]]
        order = chosen[shuffled(suit, mix(keyed(key, 2), chosen))]
        step = deal(np.sort(suit), steps, key=keyed(key, 3))
        seated = order[shuffled(step, mix(keyed(key, 4), np.arange(len(step))))]
        return rows[seated].reshape(steps, self.batch_size)


def _top_up(code: Ints, steps: int, short: int, key: int) -> Ints:
    """Choose `short` groups to repeat, spread over the classes, so that none has more than `steps` groups."""
    chosen: list[Ints] = []
    have = np.bincount(code)
    again = np.zeros_like(have)
    by_class = shuffled(code, mix(key, np.arange(len(code))))
    first = np.cumsum(have) - have
    turn = 0
    while short > 0:
        room = np.flatnonzero((have > 0) & (have + again < steps))
        lucky = room[permutation(len(room), keyed(key, turn))][:short]
        chosen.append(by_class[first[lucky] + again[lucky] % have[lucky]])
        again[lucky] += 1
        short -= len(lucky)
        turn += 1
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
