"""How much memory there is to take."""

from pathlib import Path
from typing import Final

from shards.errors import ConfigError

_CGROUP: Final = Path("/sys/fs/cgroup")


def available_bytes() -> int:
    """Memory that can be had without swapping, on this machine and in this container (cgroup v2)."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    free = next(int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:")
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        cache = next(
            int(line.split()[1])
            for line in (_CGROUP / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        )
    except (OSError, StopIteration):
        return free
    return free if limit == "max" else min(free, int(limit) - int(used) + cache)


def memory_left(*, slots: int, slot_bytes: int, ranks: int) -> int:
    """Free memory when every rank has its batch buffers; raises ConfigError if they do not fit."""
    total, free = slots * slot_bytes * ranks, available_bytes()
    if total > free:
        raise ConfigError(
            f"{slots} batch buffers (prefetch + 1) of {slot_bytes / 1e6:,.1f} MB on each of {ranks} ranks are "
            f"{total / 1e9:,.2f} GB, but {free / 1e9:,.2f} GB of memory are free: take a shorter crop, a smaller "
            "batch_size or a smaller prefetch"
        )
    return free - total
