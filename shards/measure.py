"""One rank of a benchmark: its loader, beside what the same reads cost when nothing else is done.

Both sides read the same byte ranges with the same number of threads into memory of the same kind,
in turns within one run: only their ratio means anything on a machine that is shared.
"""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from shards.ceiling import Ceiling, Turn
from shards.crop import Crop
from shards.deal import Ints
from shards.direct import DirectReads
from shards.errors import ConfigError
from shards.loader import Loader
from shards.manifest import Manifest
from shards.sampler import BalancedSampler
from shards.transfer import Batch
from shards.world import World


@final
@dataclass(frozen=True, kw_only=True)
class BenchConfig:
    """What `bench` measures."""

    shards: Path
    """folder of the dataset"""
    ranks: int = 1
    """processes, each a rank with a loader of its own"""
    split: str = "train"
    """which split to read"""
    batch_size: int = 32
    """samples in one rank's batch"""
    samples_per_class: int = 4
    """samples of each class in a batch"""
    frames: int = 10_000
    """frames of each crop, or of the longest sample if that is less; a shorter one is taken whole"""
    threads: int = 4
    """reading threads of each rank, for the loader and for the ceiling"""
    prefetch: int | Literal["auto"] = "auto"
    """batches read ahead; auto: as many as 256 MB hold, from 1 to 16"""
    steps: int = 20
    """batches of each rank in one round"""
    rounds: int = 5
    """how often loader and ceiling take turns"""
    cold: bool = False
    """drop the shards from the page cache before every turn"""
    io: Literal["auto", "buffered", "direct"] = "auto"
    """through the page cache, or past it (O_DIRECT), for loader and ceiling; auto: direct if cold"""
    step_ms: float = 0.0
    """milliseconds of training that each batch is given, asleep, as on a GPU"""
    step: str | None = None
    """function that is called with each batch (module:function), such as a step of your model"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where batches go; on cuda rank r uses device r"""
    seed: int = 0
    """order of the samples"""

    def __post_init__(self) -> None:
        for name in ("ranks", "steps", "rounds", "frames"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} {getattr(self, name)}: must be at least 1")
        if self.step is not None and ":" not in self.step:
            raise ConfigError(f"step {self.step!r}: give module:function, as in my_package.my_file:step")


@final
@dataclass(frozen=True, kw_only=True)
class RankResult:
    """What one rank measured; rates are medians over the rounds.

    GB is 10**9 bytes, of crops; `bytes_read_share` is what was asked of the kernel over these. `ratio` is loader over
    ceiling, the median of the rounds' ratios; `data_wait` the share of time that the step waited for data; `step_ms`
    what was done with a batch beside waiting. `direct_gain` and `threads_gain` are what bare reads gain with
    O_DIRECT, and with twice the threads; None: not measured.
    """

    rank: int
    samples_per_second: float
    gb_per_second: float
    p50_ms: float
    p99_ms: float
    cpu_seconds_per_gb: float
    ceiling_gb_per_second: float
    ceiling_cpu_seconds_per_gb: float
    ratio: float
    io: str
    bytes_read_share: float
    batch_mb: float
    data_wait: float
    step_ms: float
    direct_gain: float | None
    threads_gain: float | None


def measure_rank(config: BenchConfig, world: World, meet: Callable[[], object]) -> RankResult:
    """Measure one rank; all ranks `meet` before each turn."""
    data = Manifest.open(config.shards)
    selection = data.split(config.split)
    sampler = BalancedSampler(
        selection,
        batch_size=config.batch_size,
        samples_per_class=config.samples_per_class,
        world=world,
        seed=config.seed,
    )
    loader = Loader(
        data,
        FirstSteps(sampler, config.steps),
        # Longer than every sample would measure how fast zeros are written.
        crop=Crop(frames=min(config.frames, int(data.frames[selection.rows].max()))),
        device=f"cuda:{world.rank}" if config.device == "cuda" else "cpu",
        threads=config.threads,
        prefetch=config.prefetch,
        io=("direct" if config.cold else "buffered") if config.io == "auto" else config.io,
    )
    reads = [read for step in range(config.steps) for read in loader.byte_ranges(step)]

    def bare(threads: int, *, direct: bool) -> Ceiling:
        return Ceiling(reads, threads=threads, places=loader.slots * config.batch_size, direct=direct)

    direct = loader.io == "direct"
    work, nbytes = _work_of(config), sum(nbytes for _, _, nbytes in reads)
    alone, twice = bare(config.threads, direct=direct), bare(2 * config.threads, direct=direct)
    sides = {"loader": lambda: _run_loader(loader, work, nbytes), "bare": alone.run, "twice the threads": twice.run}
    past = None
    if not direct and DirectReads.possible(data.shard_path(0)):
        past = bare(config.threads, direct=True)
        sides["direct"] = past.run
    for side in sides.values():
        side()  # first use of threads, memory and, unless cold, the page cache
    turns: dict[str, list[Turn]] = {name: [] for name in sides}
    for _ in range(config.rounds):
        for name, side in sides.items():
            if config.cold:
                meet()
                _drop_from_cache(data)
            meet()
            turns[name].append(side())
    for ceiling in (alone, twice, past):
        if ceiling is not None:
            ceiling.close()
    read = loader.bytes_read / (nbytes * (config.rounds + 1))
    return _result(world.rank, loader.io, read, turns)


def _result(rank: int, io: str, read: float, turns: dict[str, list[Turn]]) -> RankResult:
    loader, ceiling = turns["loader"], turns["bare"]
    latencies = np.concatenate([turn.latencies for turn in loader]) * 1e3
    waits = [turn.waited / turn.seconds for turn in loader]

    def gain(name: str) -> float | None:
        if name not in turns:
            return None
        return _median(one.rate / bare.rate for one, bare in zip(turns[name], ceiling, strict=True))

    return RankResult(
        rank=rank,
        samples_per_second=_median(turn.samples / turn.seconds for turn in loader),
        gb_per_second=_median(turn.rate for turn in loader) / 1e9,
        p50_ms=float(np.percentile(latencies, 50)),
        p99_ms=float(np.percentile(latencies, 99)),
        cpu_seconds_per_gb=_median(turn.cpu_seconds / turn.nbytes for turn in loader) * 1e9,
        ceiling_gb_per_second=_median(turn.rate for turn in ceiling) / 1e9,
        ceiling_cpu_seconds_per_gb=_median(turn.cpu_seconds / turn.nbytes for turn in ceiling) * 1e9,
        ratio=_median(ours.rate / bare.rate for ours, bare in zip(loader, ceiling, strict=True)),
        io=io,
        bytes_read_share=read,
        batch_mb=loader[0].nbytes / len(loader[0].latencies) / 1e6,
        data_wait=_median(waits),
        step_ms=_median((turn.seconds - turn.waited) / len(turn.latencies) * 1e3 for turn in loader),
        direct_gain=gain("direct"),
        threads_gain=gain("twice the threads"),
    )


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def _work_of(config: BenchConfig) -> Callable[[Batch], object]:
    """What is done with each batch."""
    if config.step is not None:
        module, _, name = config.step.partition(":")
        return getattr(import_module(module), name)

    def touch(batch: Batch) -> None:
        batch.features.flatten()[0].item()  # on CUDA this waits until the batch has arrived
        if config.step_ms:
            time.sleep(config.step_ms / 1e3)

    return touch


def _run_loader(loader: Loader, work: Callable[[Batch], object], nbytes: int) -> Turn:
    waited, latencies, samples = loader.wait_seconds, list[float](), 0
    began, cpu = time.perf_counter(), time.process_time()
    last = began
    for batch in loader:
        work(batch)
        now = time.perf_counter()
        latencies.append(now - last)
        samples += len(batch.labels)
        last = now
        del batch  # as `train` does: its memory is read into at once
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Turn(
        seconds=seconds,
        cpu_seconds=cpu,
        nbytes=nbytes,
        samples=samples,
        latencies=latencies,
        waited=loader.wait_seconds - waited,
    )


@final
class FirstSteps:
    """A sampler of exactly `steps` batches: the first of epoch 0, over again if the epoch is shorter."""

    def __init__(self, sampler: BalancedSampler, steps: int) -> None:
        self._sampler = sampler
        self._steps = steps
        self.seed, self.world, self.batch_size = sampler.seed, sampler.world, sampler.batch_size
        self.selection = sampler.selection
        self.epoch = self.step = 0

    def __len__(self) -> int:
        return self._steps

    def batch(self, step: int) -> Ints:
        """Rows of one batch."""
        return self._sampler.batch(step % len(self._sampler))

    def set_epoch(self, epoch: int) -> None:
        """Change nothing: every turn reads the same bytes."""

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """There is nothing to resume."""
        return {"step": step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is nothing to resume."""


def _drop_from_cache(data: Manifest) -> None:
    """Ask the kernel to forget the shards; it keeps what is dirty or mapped by others."""
    for name in data.shard_names:
        file = os.open(data.root / name, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
