"""What limits a loader, what the ranks would need, and what would help most: one paragraph, out of the measurements."""

from typing import Final

from shards.measure import BenchConfig, RankResult
from shards.schema import DatasetInfo, storage_dtype

_AT_CEILING: Final = 0.85  # of bare reads: the rest is noise
_BUSY: Final = 0.85  # of all cores
_WAITS: Final = 0.02  # share of time
_WORTH: Final = 1.1  # a gain that is worth naming


def diagnose(config: BenchConfig, results: list[RankResult], info: DatasetInfo, cores: int) -> str:
    """The paragraph.

    cores    of the machine that was measured
    """
    rate = sum(r.gb_per_second for r in results)
    busy = sum(r.gb_per_second * r.cpu_seconds_per_gb for r in results) / cores
    ratio = sum(r.ratio for r in results) / len(results)
    wait = max(r.data_wait for r in results)
    facts = (
        f"{len(results)} rank(s) together take {rate:.2f} GB/s, {ratio:.2f} of what bare {results[0].io} reads give "
        f"with as many threads, with {busy:.0%} of {cores} cores busy; {wait:.0%} of the time a step waits for data."
    )
    given = config.step is not None or config.step_ms > 0
    needs = _needs(config, results) if given else "Give --step-ms or --step to compare with what a training needs."
    if given and wait < _WAITS:
        return f"What limits: the step. {facts} {needs} Nothing about loading would make it faster."
    limit = "CPU" if busy > _BUSY else "storage" if ratio > _AT_CEILING else "this loader, which is below bare reads"
    return f"What limits: {limit}. {facts} {needs} {_advice(config, results, info)}"


def _needs(config: BenchConfig, results: list[RankResult]) -> str:
    """What a training of these steps would ask of the storage."""
    step = max(r.step_ms for r in results)
    need = max(r.batch_mb for r in results) / step
    bare = sum(r.ceiling_gb_per_second for r in results)
    ranks = config.ranks
    return (
        f"A step of {step:.1f} ms needs {need:.2f} GB/s a rank, {need * ranks:.2f} for {ranks}; the most that was read "
        f"is {bare:.2f}, enough for {int(bare / need)} such rank(s)."
    )


def _advice(config: BenchConfig, results: list[RankResult], info: DatasetInfo) -> str:
    """Changes by what they would gain: bytes saved at the same rate, or measured with bare reads."""
    size = storage_dtype(info.dtype).itemsize
    gains = {f"crops of {config.frames // 2:,} frames, half as long": 2.0}
    if size > 2:
        gains[f"float16 shards instead of {info.dtype} (build --dtype float16)"] = size / 2
    measured = {
        f"{2 * config.threads} threads instead of {config.threads}": [r.threads_gain for r in results],
        "direct reads (--io direct)": [r.direct_gain for r in results],
    }
    for name, values in measured.items():
        known = [value for value in values if value is not None]
        if known:
            gains[name] = sum(known) / len(known)
    worth = sorted(((gain, name) for name, gain in gains.items() if gain >= _WORTH), reverse=True)
    rest = [name for name, gain in gains.items() if gain < _WORTH]
    best = ", ".join(f"{name}: {gain:.1f} x" for gain, name in worth)
    return f"What would help most: {best}." + (f" No gain: {', '.join(rest)}." if rest else "")
