"""The benchmark of every rank at the same time, each in a process of its own."""

import multiprocessing as mp
import queue
import threading
from multiprocessing.synchronize import Barrier
from typing import Any, Final

from shards.errors import DataError
from shards.manifest import Manifest
from shards.measure import BenchConfig, RankResult, measure_rank
from shards.world import World

_START_SECONDS: Final = 120.0  # spawning imports torch; a rank that takes longer has died


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
        results.put(measure_rank(config, World(rank, config.ranks), lambda: barrier.wait(_START_SECONDS)))
    except threading.BrokenBarrierError:
        return  # another rank has failed and said so
    except Exception as error:  # noqa: BLE001 - said by the parent
        results.put(f"rank {rank}: {type(error).__name__}: {error}")
        barrier.abort()
