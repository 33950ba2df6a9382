"""The ledger: one line for every shard that is whole, appended after the shard is durable.

    {"shard": ..., "digest": ..., "nbytes": ..., "samples": {"offset": [...], ...}, ..., "xxh3": ...}

A killed build goes on from here. A line counts if its digest is the one that the layout asks for now
and the file has the size it names; a line that a crash cut short or a disk has changed counts as absent.
"""

import fcntl
import json
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, final

import xxhash

from pipeline.layout import Shard
from pipeline.rejects import Fault
from pipeline.values import NO_LOSS, CastLoss
from shards.atomic import atomic_file, fsync_folder
from shards.errors import ConfigError
from shards.sample import Stored

LEDGER_FILE: Final = "ledger.jsonl"
LOCK_FILE: Final = ".lock"
_SEAL: Final = ', "xxh3": "{}"}}\n'  # ends every line, in the place of its brace


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One whole shard: the digest of its plan, its size, for every sample where it lies; what was left out, and
    what casting cost.

    A shard of which all was left out is no file, of 0 bytes.
    """

    shard: str
    digest: str
    nbytes: int
    samples: tuple[Stored, ...]
    faults: tuple[Fault, ...] = ()
    loss: CastLoss = NO_LOSS

    def to_line(self) -> bytes:
        """One line of JSON, samples as columns; ends in the checksum of all that stands before it."""
        columns = {f.name: [getattr(sample, f.name) for sample in self.samples] for f in fields(Stored)}
        body = json.dumps({**asdict(self), "samples": columns}).encode().removesuffix(b"}")
        return body + _seal(body)

    @staticmethod
    def from_line(line: bytes) -> "Entry":
        """The entry of one line; raises ValueError if a byte of it is not the one that was written."""
        body = line[: -len(_seal(b""))]
        if line != body + _seal(body):
            raise ValueError("not sealed")
        raw: dict[str, Any] = json.loads(body + b"}")
        columns: Mapping[str, list[int]] = raw.pop("samples")
        values = zip(*columns.values(), strict=True)
        samples = tuple(Stored(**dict(zip(columns, sample, strict=True))) for sample in values)
        faults = tuple(Fault(*fault) for fault in raw.pop("faults"))
        return Entry(samples=samples, faults=faults, loss=CastLoss(*raw.pop("loss")), **raw)


@final
class Ledger:
    """The ledger of one folder. Whoever changes it holds the folder's lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / LEDGER_FILE
        self.entries: dict[str, Entry] = {}
        if self._path.exists():
            self._read()

    def whole(self, shards: Iterable[Shard]) -> dict[str, Entry]:
        """Entries of the shards that need not be written again."""
        return {
            shard.name: entry
            for shard in shards
            if (entry := self.entries.get(shard.name))
            and entry.digest == shard.digest
            and _size(self._folder / shard.name) == entry.nbytes
        }

    def keep(self, entries: Mapping[str, Entry]) -> None:
        """Forget all but `entries`, before their shards are written anew.

        Otherwise a crash between a shard's rename and its line would leave the line of the old one.
        """
        self.entries = dict(entries)
        with atomic_file(self._path) as file:
            for entry in self.entries.values():
                file.write(entry.to_line())

    def append(self, entry: Entry) -> None:
        """Add a shard that is durable; returns when its line is."""
        with self._path.open("ab") as file:
            file.write(entry.to_line())
            file.flush()
            os.fsync(file.fileno())
        self.entries[entry.shard] = entry

    def _read(self) -> None:
        for line in self._path.read_bytes().splitlines(keepends=True):
            try:
                entry = Entry.from_line(line)
            except (ValueError, KeyError, TypeError):
                continue  # cut short or changed: its shard is written again
            self.entries[entry.shard] = entry


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold `folder` alone; raises ConfigError if another build does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: another build is writing here; wait for it or choose other --shards"
            ) from None
        fsync_folder(folder)
        yield


def _seal(body: bytes) -> bytes:
    """The end of a line that begins with `body`."""
    return _SEAL.format(xxhash.xxh3_64_hexdigest(body)).encode()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
