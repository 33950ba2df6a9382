"""Everything a run needs to go on as if it had never stopped, in one file that is whole or absent."""

from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from shards import DataError
from shards.atomic import atomic_file

LATEST: Final = "latest.pt"
BEST: Final = "best.pt"
VERSION: Final = 2


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write `state` (tensors and plain values); the old file stays until the new one is on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        torch.save({"version": VERSION} | state, file)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint onto the CPU; refuses one that is damaged or that another version has written."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise DataError(
            f"{path}: not a readable checkpoint ({type(error).__name__}: {error}); take another RUN folder, or "
            "remove the file to begin this run again"
        ) from error
    if state.get("version") != VERSION:
        raise DataError(
            f"{path}: a checkpoint of version {state.get('version')}, this program goes on from version {VERSION}: "
            "take another RUN folder, or the headrace that wrote it"
        )
    return state


def gather(own: Tensor) -> list[Tensor]:
    """The tensor of every rank (equal shapes), on the CPU, in rank order."""
    every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(every, own)
    return [tensor.cpu() for tensor in every]


def gather_plain(own: Any) -> list[Any]:
    """The value of every rank, in rank order: tensors on the CPU and plain values, of any size."""
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return every
