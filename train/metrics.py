"""What a run measures of itself: per-rank rates, a line of JSON a log interval, TensorBoard beside it."""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, final

import torch
from torch.utils.tensorboard import SummaryWriter

from shards.loader import Loader
from train.checkpoint import gather

METRICS_FILE: Final = "metrics.jsonl"


@final
@dataclass(frozen=True, kw_only=True)
class Rate:
    """What one rank did since the last reading.

    data_wait        share of time that it waited for its loader
    gb_per_second    bytes asked of the kernel
    substituted      samples that took the place of damaged ones, since the run was started
    """

    samples_per_second: float
    data_wait: float
    gb_per_second: float
    substituted: int


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    """Mean loss over all ranks since the last reading, and the rate of each rank."""

    loss: float
    ranks: list[Rate]

    @property
    def samples_per_second(self) -> float:
        """All ranks together."""
        return sum(rank.samples_per_second for rank in self.ranks)

    @property
    def data_wait(self) -> float:
        """The longest of the ranks' shares: the one the others wait for."""
        return max(rank.data_wait for rank in self.ranks)


@final
class Meter:
    """Counts what this rank does between readings; a reading is one all-gather."""

    def __init__(self, loader: Loader, device: torch.device) -> None:
        self._loader = loader
        self._device = device
        self._loss = torch.zeros(2, dtype=torch.float64, device=device)  # sum, and the samples it is over
        self.restart()

    def restart(self) -> None:
        """Begin to count now."""
        self._loss.zero_()
        self.start_clock()

    def start_clock(self) -> None:
        """Begin to count time now; the loss of the interval so far stays."""
        self._samples = 0
        self._began = time.perf_counter()
        self._waited, self._bytes = self._loader.wait_seconds, self._loader.bytes_read

    def add(self, loss: torch.Tensor, samples: int) -> None:
        """Count one batch with its mean loss; does not wait for the device."""
        self._loss += torch.stack([loss.detach().double() * samples, torch.full_like(self._loss[0], samples)])
        self._samples += samples

    def state(self) -> list[float]:
        """Loss sum and samples since the last reading."""
        return self._loss.tolist()

    def load_state(self, state: list[float]) -> None:
        """Go on adding to the loss of an interrupted interval; its time is not ours."""
        self._loss.copy_(torch.tensor(state, dtype=torch.float64))

    def read(self) -> Reading:
        """What all ranks did since `restart`, which this is too."""
        loss, counted = self._loss.tolist()  # waits for the device, so that the time is the work's
        seconds = time.perf_counter() - self._began
        waited, nbytes = self._loader.wait_seconds - self._waited, self._loader.bytes_read - self._bytes
        substituted = 0 if self._loader.substitutes is None else self._loader.substitutes.count
        own = [loss, counted, self._samples, seconds, waited, nbytes, substituted]
        own = torch.tensor(own, dtype=torch.float64, device=self._device)
        every = torch.stack(gather(own)).tolist()
        self.restart()
        return Reading(
            loss=sum(row[0] for row in every) / max(1, sum(row[1] for row in every)),
            ranks=[
                Rate(
                    samples_per_second=samples / spent,
                    data_wait=waiting / spent,
                    gb_per_second=read / spent / 1e9,
                    substituted=int(bad),
                )
                for _, _, samples, spent, waiting, read, bad in every
            ],
        )


@final
class RunLog:
    """metrics.jsonl and TensorBoard in the run folder, written by rank 0 alone."""

    def __init__(self, run: Path, *, first: bool, step: int, position: int) -> None:
        """Go on after `step`, when the file was `position` bytes long: what a killed run wrote later is cut off."""
        self._file = None
        self._board = None
        if first:
            run.mkdir(parents=True, exist_ok=True)
            self._file = (run / METRICS_FILE).open("ab")
            os.truncate(self._file.fileno(), min(position, self.position))
            self._board = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1)

    @property
    def position(self) -> int:
        """Bytes written so far, by the run and its earlier starts."""
        return os.fstat(self._file.fileno()).st_size if self._file is not None else 0

    def write(self, step: int, kind: str, values: dict[str, Any]) -> None:
        """One line of JSON, and every number of it as a scalar `kind/name`."""
        if self._file is None or self._board is None:
            return
        self._file.write(json.dumps({"step": step, "kind": kind} | values).encode() + b"\n")
        self._file.flush()
        ranks = {
            f"rank {rank}/{name}": value
            for rank, rates in enumerate(values.get("ranks", ()))
            for name, value in rates.items()
        }
        for name, value in (values | ranks).items():
            if isinstance(value, int | float):
                self._board.add_scalar(f"{kind}/{name}", value, step)

    def write_reading(self, step: int, epoch: int, reading: Reading, lr: float) -> None:
        """A line of the training in progress."""
        ranks = [asdict(rank) for rank in reading.ranks]
        rates = {"samples_per_second": reading.samples_per_second, "data_wait": reading.data_wait}
        self.write(step, "train", {"epoch": epoch, "loss": reading.loss, "lr": lr, **rates, "ranks": ranks})

    def close(self) -> None:
        """Write what is pending."""
        if self._file is not None and self._board is not None:
            self._file.close()
            self._board.close()
