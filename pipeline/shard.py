"""Write one shard: a pure function of its plan and the files, run in a process of its own."""

import os
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

from pipeline.direct import DirectWriter
from pipeline.features import FeatureFolder, Reading
from pipeline.layout import Shard
from pipeline.rejects import Fault
from pipeline.values import NO_LOSS, CastLoss
from shards.arrow import ArrowWriter
from shards.atomic import atomic_file
from shards.errors import DataError
from shards.raw import RawWriter
from shards.sample import Sample, ShardWriter, Sink, Stored
from shards.tar import TarWriter


@dataclass(frozen=True, kw_only=True)
class Task:
    """All that a process needs to write a shard.

    spare       how many of its samples may be bad and left out; one more, and the shard is not written
    expected    what must come of it, if that is known; anything else is not written
    wanted      a file that is there for as long as somebody waits for the shard; None: the process ends with who waits
    """

    folder: Path
    features: Path
    spare: int
    reading: Reading
    shard: Shard
    expected: tuple[Stored, ...] | None = None
    wanted: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Written:
    """What became of a task: the shard's size and samples, and those that were left out.

    loss    what casting to the storage type has cost; zero if nothing was cast
    A shard that nothing is left of is no file, and has no bytes.
    """

    nbytes: int = 0
    stored: tuple[Stored, ...] = ()
    faults: tuple[Fault, ...] = ()
    loss: CastLoss = NO_LOSS


class _AbandonedError(Exception):
    """Leaves `atomic_file` so that nothing takes the shard's name."""


_WRITERS: Final[Mapping[str, Callable[[Sink], ShardWriter]]] = {".tar": TarWriter, ".arrow": ArrowWriter}

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
    """Write `task.shard` without the samples that are bad; leave no shard if those are more than may be.

    Its name says in which container. Raises OSError if the disk refuses (full, say) and DataError if nobody wants
    the shard any more, and leaves no shard then either.
    """
    faults: list[Fault] = []
    files = FeatureFolder(task.features, task.reading)
    path, nbytes = task.folder / task.shard.name, 0
    try:
        if path.suffix == ".raw":
            stored = _fill(RawWriter(task.features), files, task, faults)
        else:
            with atomic_file(path) as file:
                with DirectWriter(file) as sink:
                    stored = _fill(_WRITERS[path.suffix](sink), files, task, faults)
                nbytes = os.fstat(file.fileno()).st_size
    except _AbandonedError:
        return Written(faults=tuple(faults))
    return Written(nbytes=nbytes, stored=stored, faults=tuple(faults), loss=files.loss)


def _fill(writer: ShardWriter, files: FeatureFolder, task: Task, faults: list[Fault]) -> tuple[Stored, ...]:
    samples = zip(task.shard.rows, task.shard.features, task.shard.labels, strict=True)
    for position, (row, feature, label) in enumerate(samples):
        _heed_stop(task)
        try:
            array = files.read(feature)
        except DataError as error:
            faults.append(Fault(position, f"{task.features / row.path}: {error}"))
            if len(faults) > task.spare:
                raise _AbandonedError from error
            continue
        sample = Sample(array=array, label=label, class_name=row.class_name, item=row.item, id=row.id, source=row.path)
        writer.add(sample)
        _count(feature.size)
    if len(faults) == len(task.shard.rows):
        raise _AbandonedError
    stored = tuple(writer.close())
    _heed_stop(task)
    if task.expected is not None:
        faults += _unexpected(task, stored, task.expected)
        if faults:
            raise _AbandonedError
    return stored


def _unexpected(task: Task, stored: Sequence[Stored], expected: Sequence[Stored]) -> Generator[Fault]:
    """The samples that are not what they should be; none if some are missing, as all others have moved then."""
    if len(stored) == len(expected):
        for position, (found, wanted) in enumerate(zip(stored, expected, strict=True)):
            if found != wanted:
                path = task.features / task.shard.rows[position].path
                what = f"{found.frames:,} frames, checksum {found.checksum:016x}"
                yield Fault(position, f"{path}: not what was stored: {what}, expected {wanted.checksum:016x}")


def _heed_stop(task: Task) -> None:
    if _shared and _shared["stop"].is_set():
        raise _AbandonedError
    # Without this, what is left of a build could put an old shard in the place of a later build's.
    if task.wanted is not None and not task.wanted.exists():
        raise DataError(f"{task.wanted}: is gone, so the build that wanted {task.shard.name} has ended")


def _count(nbytes: int) -> None:
    if _shared:
        read: Synchronized[int] = _shared["read"]
        with read.get_lock():
            read.value += nbytes
