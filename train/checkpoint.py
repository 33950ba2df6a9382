"""Everything a run needs to go on as if it had never stopped, in one file that is whole or absent."""

import random
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from shards import DataError, World
from shards.atomic import atomic_file

LATEST: Final = "latest.pt"
BEST: Final = "best.pt"


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors and plain values); the old file stays until the new one is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        torch.save(state, file)


def load_checkpoint(path: Path, *, fingerprint: str, world: World) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; refuses one of other data or another number of ranks."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise DataError(
            f"{path}: not a readable checkpoint ({type(error).__name__}: {error}); take another RUN folder, or "
            "remove the file to begin this run again"
        ) from error
    if state["fingerprint"] != fingerprint:
        raise DataError(
            f"{path}: made with data {state['fingerprint']}, but the shards now are {fingerprint}: a run goes on "
            "with the data it began with; point SHARDS at that, or take another RUN folder"
        )
    if state["world_size"] != world.size:
        raise DataError(
            f"{path}: made by {state['world_size']} ranks, now there are {world.size}: use "
            f"GPUS={state['world_size']}, or take another RUN folder"
        )
    return state


def random_states(device: torch.device) -> list[Tensor]:
    """Random states of every rank, on the CPU: of torch on the CPU, and on CUDA of the device too."""
    own = torch.get_rng_state()
    if device.type == "cuda":
        own = torch.cat([own, torch.cuda.get_rng_state(device)])
    return gather(own.to(device))


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Set what `random_states` gave for this rank."""
    cpu = torch.get_rng_state().numel()
    torch.set_rng_state(state[:cpu])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state[cpu:], device)


def seed_rank(seed: int, world: World) -> None:
    """Seed this rank for dropout and augmentation: ranks must differ here, or they augment alike."""
    torch.manual_seed(seed * 1_000_003 + world.rank)
    random.seed(seed * 1_000_003 + world.rank)


def gather(own: Tensor) -> list[Tensor]:
    """The tensor of every rank (equal shapes), on the CPU, in rank order."""
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    return [tensor.cpu() for tensor in every]
