"""How fast each rank's loader is, beside what the same reads cost when nothing else is done.

Both sides read the same byte ranges with the same number of threads into memory of the same kind,
in turns within one run: only their ratio means anything on a machine that is shared.
"""

import multiprocessing as mp
import os
import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Final, Literal, final

import numpy as np

from shards.ceiling import Ceiling, Turn
from shards.crop import Crop
from shards.deal import Ints
from shards.errors import ConfigError, DataError
from shards.loader import Loader
from shards.manifest import Manifest
from shards.sampler import BalancedSampler
from shards.world import World

_START_SECONDS: Final = 120.0  # spawning imports torch; a rank that takes longer has died


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
    prefetch: int = 4
    """batches read ahead"""
    steps: int = 20
    """batches of each rank in one round"""
    rounds: int = 5
    """how often loader and ceiling take turns"""
    cold: bool = False
    """drop the shards from the page cache before every turn"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where batches go; on cuda rank r uses device r"""
    seed: int = 0
    """order of the samples"""

    def __post_init__(self) -> None:
        for name in ("ranks", "steps", "rounds", "frames"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} {getattr(self, name)}: must be at least 1")


@final
@dataclass(frozen=True, kw_only=True)
class RankResult:
    """What one rank measured; rates are medians over the rounds.

    GB is 10**9 bytes. `ratio` is loader over ceiling, the median of the rounds' ratios.
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


def run_bench(config: BenchConfig) -> list[RankResult]:
    """Measure every rank at the same time, each in a process of its own; results in rank order."""
    Manifest.open(config.shards).split(config.split)  # refuse here, not in every process
    context = mp.get_context("spawn")
    barrier = context.Barrier(config.ranks)
    results: mp.Queue[RankResult | str] = context.Queue()
    processes = [
        context.Process(target=_rank_main, args=(config, rank, barrier, results)) for rank in range(config.ranks)
    ]
    for process in processes:
        process.start()
    try:
        found = [_next_result(results, processes) for _ in processes]
    finally:
        for process in processes:
            process.join(timeout=5)
            process.kill()
    return sorted(found, key=lambda result: result.rank)


def _next_result(results: "mp.Queue[RankResult | str]", processes: list[Any]) -> RankResult:
    while True:
        try:
            result = results.get(timeout=1)
        except queue.Empty:
            if any(process.exitcode for process in processes):
                raise DataError("a bench process died without a word: out of memory, or killed") from None
            continue
        if isinstance(result, str):
            raise DataError(result)
        return result


def _rank_main(config: BenchConfig, rank: int, barrier: Barrier, results: "mp.Queue[RankResult | str]") -> None:
    try:
        results.put(_measure(config, World(rank, config.ranks), barrier))
    except threading.BrokenBarrierError:
        return  # another rank has failed and said so
    except Exception as error:  # noqa: BLE001 - said by the parent
        results.put(f"rank {rank}: {type(error).__name__}: {error}")
        barrier.abort()


def _measure(config: BenchConfig, world: World, barrier: Barrier) -> RankResult:
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
    )
    ceiling = Ceiling(
        [read for step in range(config.steps) for read in loader.byte_ranges(step)],
        threads=config.threads,
        places=(config.prefetch + 1) * config.batch_size,
    )
    sides = (lambda: _run_loader(loader)), ceiling.run
    for side in sides:
        side()  # first use of threads, memory and, unless cold, the page cache
    turns: list[tuple[Turn, Turn]] = []
    for _ in range(config.rounds):
        turn: list[Turn] = []
        for side in sides:
            if config.cold:
                barrier.wait(_START_SECONDS)
                _drop_from_cache(data)
            barrier.wait(_START_SECONDS)
            turn.append(side())
        turns.append((turn[0], turn[1]))
    ceiling.close()
    return _result(world.rank, turns)


def _result(rank: int, turns: list[tuple[Turn, Turn]]) -> RankResult:
    loader, ceiling = zip(*turns, strict=True)
    latencies = np.concatenate([turn.latencies for turn in loader]) * 1e3
    return RankResult(
        rank=rank,
        samples_per_second=_median(turn.samples / turn.seconds for turn in loader),
        gb_per_second=_median(turn.rate for turn in loader) / 1e9,
        p50_ms=float(np.percentile(latencies, 50)),
        p99_ms=float(np.percentile(latencies, 99)),
        cpu_seconds_per_gb=_median(turn.cpu_seconds / turn.nbytes for turn in loader) * 1e9,
        ceiling_gb_per_second=_median(turn.rate for turn in ceiling) / 1e9,
        ceiling_cpu_seconds_per_gb=_median(turn.cpu_seconds / turn.nbytes for turn in ceiling) * 1e9,
        ratio=_median(ours.rate / bare.rate for ours, bare in turns),
    )


def _median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def _run_loader(loader: Loader) -> Turn:
    before, latencies, samples = loader.bytes_read, list[float](), 0
    began, cpu = time.perf_counter(), time.process_time()
    last = began
    for batch in loader:
        batch.features.flatten()[0].item()  # on CUDA this waits until the batch has arrived
        now = time.perf_counter()
        latencies.append(now - last)
        samples += len(batch.labels)
        last = now
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Turn(
        seconds=seconds, cpu_seconds=cpu, nbytes=loader.bytes_read - before, samples=samples, latencies=latencies
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
