"""Read every byte of a dataset and say all that is wrong with it."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.filesize import decimal

from pipeline.extents import differences
from pipeline.layout import SHARD_NAME
from pipeline.progress import progress
from shards.errors import ConfigError, DataError
from shards.manifest import CURE, Manifest, file_checksum, read_dataset_json
from shards.sample import Stored
from shards.schema import MANIFEST_FILE


@dataclass(frozen=True, kw_only=True)
class VerifyConfig:
    """Read every byte of a dataset and print all that is wrong with it."""

    shards: Path = Path("data/shards")
    """Folder of the dataset."""
    jobs: int | None = None
    """Threads, each reading one shard at a time. Default: one a CPU."""

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"jobs {self.jobs}: at least one thread must read")


def verify_shards(config: VerifyConfig, console: Console | None = None) -> list[str]:
    """Print and return all faults, one line each; raises DataError if there is no dataset, or none that can be read."""
    console = console or Console()
    check_manifest(config.shards)
    manifest = Manifest.open(config.shards)
    faults = [fault for found in find_faults(manifest, config.jobs, console).values() for fault in found]
    verdict = f"{len(faults):,} faults; `python -m pipeline repair` cures them" if faults else "all is well"
    console.print(
        f"{len(manifest):,} samples in {len(manifest.shard_names):,} files, "
        f"{decimal(int(manifest.nbytes.sum()))}: {verdict}",
        highlight=False,
        soft_wrap=True,
    )
    return faults


def find_faults(manifest: Manifest, jobs: int | None, console: Console) -> dict[str, list[str]]:
    """Print and return all faults by the name of their file, having read every byte with so many threads."""
    faults = {name: [what] for name, what in _strangers(manifest)}
    lock, done = threading.Lock(), 0

    with progress(console, "verifying", int(manifest.nbytes.sum())) as show:

        def count(nbytes: int) -> None:
            nonlocal done
            with lock:
                done += nbytes
                show(done)

        with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
            files = files_of(manifest)
            for (name, _), found in zip(files, pool.map(partial(_file_faults, manifest, count), files), strict=True):
                if found:
                    faults[name] = found
    for fault in (fault for found in faults.values() for fault in found):
        console.print(f"fault: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
    return faults


def check_manifest(folder: Path) -> None:
    """Raise DataError if a byte of `dataset.json` or of the manifest is not the one that was written.

    Asked before the manifest is opened: Arrow trusts what it maps.
    """
    expected = read_dataset_json(folder)["manifest"]
    path = folder / MANIFEST_FILE
    try:
        found = file_checksum(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {CURE}") from error
    if found != expected:
        raise DataError(f"{path}: damaged: its checksum is {found}, expected {expected}; {CURE}")


def files_of(manifest: Manifest) -> list[tuple[str, NDArray[np.int64]]]:
    """The name of every file of samples, and its rows in the order they lie in it."""
    order = np.lexsort((manifest.offsets, manifest.shards))
    files = np.split(order, np.flatnonzero(np.diff(manifest.shards[order])) + 1)
    return [(manifest.shard_names[manifest.shards[rows[0]]], rows) for rows in files]


def stored_in(manifest: Manifest, rows: NDArray[np.int64]) -> tuple[Stored, ...]:
    """Where these rows lie, as the manifest has it."""
    columns = (manifest.offsets, manifest.nbytes, manifest.frames, manifest.checksums, manifest.arounds)
    values = zip(*(column[rows].tolist() for column in columns), strict=True)
    return tuple(
        Stored(offset=offset, nbytes=nbytes, frames=frames, checksum=checksum, around=around)
        for offset, nbytes, frames, checksum, around in values
    )


def _strangers(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Shards that nobody knows of. Missing ones are found when they are read."""
    known = set(manifest.shard_names)
    for name in sorted(path.name for path in manifest.folder.iterdir() if SHARD_NAME.fullmatch(path.name)):
        if name not in known:
            yield name, f"{name}: the manifest does not list this shard; finish the build that wrote it, or delete it"


def _file_faults(manifest: Manifest, count: Callable[[int], None], file: tuple[str, NDArray[np.int64]]) -> list[str]:
    """What is wrong in one file."""
    name, rows = file
    return [
        f"{name}: {what}"
        if position is None
        else f"{name} row {rows[position]} id {manifest.id(rows[position])!r}: {what}"
        for position, what in differences(manifest.root / name, stored_in(manifest, rows), count)
    ]
