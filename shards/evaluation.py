"""Every sample once: the sampler of an evaluation."""

from collections.abc import Iterator
from typing import Any, final

from shards.deal import Ints
from shards.manifest import Selection
from shards.world import World


@final
class EvaluationSampler:
    """Every row of a selection once: rank r of W has rows r, r + W, ... in batches of `batch_size`.

    Ranks may differ by one batch and the last batch may be short: nothing is padded or dropped, so
    no collective may stand inside a loop over it.
    """

    def __init__(self, selection: Selection, *, batch_size: int, world: World | None = None) -> None:
        self.selection = selection
        self.batch_size = batch_size
        self.seed = self.epoch = self.step = 0
        self.world = world or World()
        self._rows = selection.rows[self.world.rank :: self.world.size]

    def __len__(self) -> int:
        return (len(self._rows) + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        return (self.batch(step).tolist() for step in range(len(self)))

    def batch(self, step: int) -> Ints:
        """Rows of one batch, int64, `batch_size` or fewer."""
        return self._rows[step * self.batch_size : (step + 1) * self.batch_size]

    def set_epoch(self, epoch: int) -> None:
        """Change nothing: every epoch of an evaluation is the same."""

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """State after `step` batches."""
        return {"segments": [[self.world.size, self.step if step is None else step]]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next iteration where `state` was taken."""
        [[_, self.step]] = state["segments"]
