"""What a person sees of a run: a bar on a terminal, plain lines anywhere else."""

import time
from types import TracebackType
from typing import Final, Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from train.metrics import Reading

_LINE_SECONDS: Final = 10.0  # between plain lines


@final
class Display:
    """Rank 0 shows the run; the other ranks have a display that shows nothing."""

    def __init__(self, *, shown: bool) -> None:
        self._console = Console(quiet=not shown, soft_wrap=True, highlight=False)
        self._bar = Progress(
            TextColumn("epoch {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
            console=self._console,
            disable=not (shown and self._console.is_terminal),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, state="")
        self._line_due = time.monotonic() + _LINE_SECONDS

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(text, markup=False)

    def begin_epoch(self, epoch: int, epochs: int, done: int, steps: int) -> None:
        """Start the bar of an epoch."""
        self._bar.reset(self._task, description=f"{epoch + 1}/{epochs}", total=steps, completed=done, state="")

    def step(self) -> None:
        """One step is done."""
        self._bar.advance(self._task)

    def show(self, epoch: int, step: int, reading: Reading, lr: float) -> None:
        """Show loss, rate and speed; on a terminal beside the bar, elsewhere a line now and then."""
        state = (
            f"loss {reading.loss:.3f}  lr {lr:.2e}  {reading.samples_per_second:,.0f} samples/s  "
            f"data wait {reading.data_wait:.0%}"
        )
        self._bar.update(self._task, state=state)
        if self._bar.disable and time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + _LINE_SECONDS
            self.say(f"epoch {epoch + 1} step {step}: {state}")
