"""Who this process is among the ranks: the only place that reads what torchrun says."""

import gc
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal, final

import torch
import torch.distributed as dist

from shards import ConfigError, DataError, World

Device = Literal["auto", "cpu", "cuda"]


@final
@dataclass(frozen=True, kw_only=True)
class Place:
    """This process's rank, and the device it computes on."""

    world: World
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which speaks and writes for all."""
        return self.world.rank == 0


@contextmanager
def joined(*, device: Device = "auto", cpu_threads: int | None = None, timeout_s: float = 600) -> Generator[Place]:
    """Join the process group that torchrun has set up, or one of a single rank; leave it at the end, also on an error.

    device         "auto": one GPU a rank (nccl) if there are any, else the CPU (gloo)
    cpu_threads    torch threads of each rank on the CPU; by default the cores are shared evenly
    timeout_s      seconds that a collective waits for the other ranks
    """
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    size, local_size = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    with said_once():
        place = Place(world=World(rank, size), device=_device(device, local_rank, local_size))
    if place.device.type == "cuda":
        torch.cuda.set_device(place.device)
    else:
        torch.set_num_threads(cpu_threads or max(1, len(os.sched_getaffinity(0)) // local_size))
    dist.init_process_group(
        "nccl" if place.device.type == "cuda" else "gloo",
        store=None if "RANK" in os.environ else dist.HashStore(),  # pyright: ignore[reportPrivateImportUsage] - documented
        rank=-1 if "RANK" in os.environ else 0,
        world_size=-1 if "RANK" in os.environ else 1,
        timeout=timedelta(seconds=timeout_s),
        # Bound to its device, the group fails at once where it would otherwise guess or hang.
        device_id=place.device if place.device.type == "cuda" else None,
    )
    try:
        yield place
    finally:
        # A DDP module that is still waiting for the garbage collector would take its process group, and
        # gloo's threads with it, to the end of the interpreter: an abort there in one run of five.
        gc.collect()
        dist.destroy_process_group()


@contextmanager
def said_once() -> Generator[None]:
    """For what every rank finds alike before they have joined: rank 0 says it, the others end without a word."""
    if int(os.environ.get("RANK", "0")) == 0:
        yield
        return
    with Path(os.devnull).open("w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):
        try:
            yield
        except (ConfigError, DataError):
            sys.exit(2)


@contextmanager
def agreed(place: Place) -> Generator[None]:
    """Refused by one rank, refused by all: the first that was refused raises, the others end without a word.

    No collective may stand inside, or the ranks that were not refused would wait in it.
    """
    refused = None
    try:
        yield
    except (ConfigError, DataError) as error:
        refused = error
    own = torch.tensor(refused is not None, dtype=torch.int32, device=place.device)
    every = [torch.empty_like(own) for _ in range(place.world.size)]
    dist.all_gather(every, own)
    ranks = [rank for rank, flag in enumerate(every) if flag]
    if refused is not None and ranks[0] == place.world.rank:
        raise refused
    if ranks:
        sys.exit(2)


def _device(wanted: Device, local_rank: int, local_size: int) -> torch.device:
    found = torch.cuda.device_count() if wanted != "cpu" else 0
    if found == 0:
        if wanted == "cuda":
            raise ConfigError("device cuda, but torch sees no GPU: check the driver, or use --device cpu")
        return torch.device("cpu")
    if local_size > found:
        raise ConfigError(
            f"{local_size} ranks on this machine, but torch sees {found} GPU(s): use GPUS={found}, or --device cpu"
        )
    return torch.device("cuda", local_rank)
