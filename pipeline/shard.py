"""Write one shard: a pure function of its plan and the files, run in a process of its own."""

import os
import threading
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

from pipeline.direct import DirectWriter
from pipeline.features import FeatureFolder, Reading
from pipeline.layout import Shard
from pipeline.rejects import Reject
from pipeline.values import NO_LOSS, CastLoss
from shards.atomic import atomic_file
from shards.errors import DataError
from shards.tar import Sample, Stored, TarWriter


@dataclass(frozen=True, kw_only=True)
class Task:
    """All that a process needs to write a shard."""

    folder: Path
    features: Path
    sheet: str
    reading: Reading
    shard: Shard


@dataclass(frozen=True, kw_only=True)
class Written:
    """What became of a task: the shard's size and samples, or the files that were not as they must be.

    loss    what casting to the storage type has cost; zero if nothing was cast
    """

    nbytes: int = 0
    stored: tuple[Stored, ...] = ()
    loss: CastLoss = NO_LOSS
    faults: tuple[Reject, ...] = ()


class _AbandonedError(Exception):
    """Leaves `atomic_file` so that nothing takes the shard's name."""


# What a worker shares with the process that started it: bytes read so far, and whether to stop.
_shared: Final[dict[str, Any]] = {}


def start_worker(read: "Synchronized[int]", stop: Event) -> None:
    """Run once in each worker: keep the shared counters, and die with the parent."""
    _shared.update(read=read, stop=stop)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """Without this, workers of a killed build would wait for work for ever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def write_shard(task: Task) -> Written:
    """Write `task.shard`; if any file is at fault, check the others too and leave no shard.

    Raises OSError if the disk refuses (full, say), and leaves no shard then either.
    """
    stored: list[Stored] = []
    faults: list[Reject] = []
    files = FeatureFolder(task.features, task.reading)
    try:
        with atomic_file(task.folder / task.shard.name) as file:
            with DirectWriter(file) as sink:
                _fill(TarWriter(sink), files, task, stored, faults)
            nbytes = os.fstat(file.fileno()).st_size
    except _AbandonedError:
        return Written(faults=tuple(faults))
    return Written(nbytes=nbytes, stored=tuple(stored), loss=files.loss)


def _fill(writer: TarWriter, files: FeatureFolder, task: Task, stored: list[Stored], faults: list[Reject]) -> None:
    for row, feature, label in zip(task.shard.rows, task.shard.features, task.shard.labels, strict=True):
        _heed_stop()
        try:
            array = files.read(feature)
        except DataError as error:
            faults.append(Reject(task.sheet, row.row, row.id, f"{task.features / row.path}: {error}"))
            continue
        if not faults:
            sample = Sample(
                array=array, label=label, class_name=row.class_name, item=row.item, id=row.id, source=row.path
            )
            stored.append(writer.add(sample))
        _count(feature.size)
    if faults:
        raise _AbandonedError
    writer.close()


def _heed_stop() -> None:
    if _shared and _shared["stop"].is_set():
        raise _AbandonedError


def _count(nbytes: int) -> None:
    if _shared:
        read: Synchronized[int] = _shared["read"]
        with read.get_lock():
            read.value += nbytes
