"""Read every byte of a dataset and say all that is wrong with it."""

import json
import os
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import xxhash
from numpy.typing import NDArray
from rich.console import Console
from rich.filesize import decimal

from pipeline.build import SHARD_NAME
from pipeline.formats.npy import read_header
from pipeline.progress import progress
from shards.errors import ConfigError, DataError
from shards.manifest import Manifest, content_fingerprint
from shards.schema import storage_dtype
from shards.tar import PAGE

_PIECE: Final = 4 << 20  # bytes read at once: enough to keep a disk busy, few enough to stay in the CPU's cache


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
    """Print and return all faults, one line each; raises DataError if there is no dataset to look at."""
    console = console or Console()
    manifest = Manifest.open(config.shards)
    faults = [*_manifest_faults(manifest), *_folder_faults(manifest)]
    lock, done = threading.Lock(), 0

    with progress(console, "verifying", int(manifest.nbytes.sum())) as show:

        def count(nbytes: int) -> None:
            nonlocal done
            with lock:
                done += nbytes
                show(done)

        with ThreadPoolExecutor(config.jobs or len(os.sched_getaffinity(0))) as pool:
            for found in pool.map(partial(_shard_faults, manifest, count), _shards(manifest)):
                faults += found
    for fault in faults:
        console.print(f"fault: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{len(manifest):,} samples in {len(manifest.shard_names):,} shards, {decimal(done)} read: "
        + (f"{len(faults):,} faults" if faults else "all is well"),
        highlight=False,
        soft_wrap=True,
    )
    return faults


def _shards(manifest: Manifest) -> list[tuple[str, NDArray[np.int64]]]:
    """Every shard with its rows, in the order of its samples."""
    return [(name, np.flatnonzero(manifest.shards == code)) for code, name in enumerate(manifest.shard_names)]


def _manifest_faults(manifest: Manifest) -> Iterator[str]:
    """What can be seen without opening a shard."""
    found = content_fingerprint(manifest.info, manifest.table)
    if found != manifest.fingerprint:
        yield f"manifest.arrow: fingerprint of its rows is {found}, expected {manifest.fingerprint}"
    names = manifest.table.column("class").to_pylist()
    for row in range(len(manifest)):
        label = int(manifest.labels[row])
        if not 0 <= label < len(manifest.classes) or manifest.classes[label] != names[row]:
            yield f"{_where(manifest, row)}: label {label} and class {names[row]!r} disagree"
    expected = manifest.frames * manifest.info.frame_bytes
    for row in np.flatnonzero(manifest.nbytes != expected):
        yield f"{_where(manifest, row)}: {manifest.nbytes[row]} bytes, expected {expected[row]} for its frames"
    for row in np.flatnonzero(manifest.offsets % PAGE):
        yield f"{_where(manifest, row)}: payload at {manifest.offsets[row]}, not on a {PAGE}-byte boundary"


def _folder_faults(manifest: Manifest) -> Iterator[str]:
    there = {path.name for path in manifest.folder.iterdir() if SHARD_NAME.fullmatch(path.name)}
    for name in sorted(set(manifest.shard_names) - there):
        yield f"{name}: the shard is missing; run the same build again"
    for name in sorted(there - set(manifest.shard_names)):
        yield f"{name}: the manifest does not list this shard; delete it"


def _shard_faults(manifest: Manifest, count: Callable[[int], None], shard: tuple[str, NDArray[np.int64]]) -> list[str]:
    """What is wrong inside one shard: first as an archive, then every payload by its checksum."""
    name, rows = shard
    path = manifest.folder / name
    if not path.is_file():
        return []
    with path.open("rb", buffering=0) as file:
        faults = list(_archive_faults(manifest, name, rows, file))
        for row in rows:
            found = _checksum(file, int(manifest.offsets[row]), int(manifest.nbytes[row]))
            if found is None:
                faults.append(f"{_where(manifest, row)}: the shard ends inside its payload")
            elif found != manifest.checksums[row]:
                faults.append(
                    f"{_where(manifest, row)}: checksum {found:016x}, expected {manifest.checksums[row]:016x}"
                )
            count(int(manifest.nbytes[row]))
    return faults


def _archive_faults(manifest: Manifest, name: str, rows: NDArray[np.int64], file: BinaryIO) -> Iterator[str]:
    """Members that are not what the manifest says, in the order they lie; stops where the archive ends."""
    position = 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            members = iter(archive)
            for position, row in enumerate(rows):
                for field in ("cls", "json", "npy"):
                    member = next(members, None)
                    if member is None:
                        yield f"{name}: the archive ends after {position} samples, expected {len(rows)}"
                        return
                    fault = _member_fault(manifest, int(row), f"{position:06d}.{field}", member, file)
                    if fault:
                        yield f"{_where(manifest, row)}: {fault}"
            extra = next(members, None)
            if extra is not None:
                yield f"{name}: member {extra.name!r} is not in the manifest"
            elif _tail_is_cut(file, archive.offset):
                yield f"{name}: the end of the archive is missing"
    except (tarfile.TarError, OSError) as error:
        yield f"{name}: not a readable archive at sample {position} ({error})"


def _tail_is_cut(file: BinaryIO, offset: int) -> bool:
    """Whether the zero blocks that end an archive are not all there."""
    size = os.fstat(file.fileno()).st_size
    tail = os.pread(file.fileno(), 2 * tarfile.BLOCKSIZE, offset)
    return size % tarfile.RECORDSIZE != 0 or tail != bytes(2 * tarfile.BLOCKSIZE)


def _member_fault(manifest: Manifest, row: int, name: str, member: tarfile.TarInfo, file: BinaryIO) -> str | None:
    if member.name != name:
        return f"member {member.name!r}, expected {name!r}"
    head = os.pread(file.fileno(), min(member.size, 2 * PAGE), member.offset_data)
    if name.endswith(".npy"):
        return _array_fault(manifest, row, member, head)
    if name.endswith(".json"):
        return _json_fault(manifest, row, name, head)
    expected = str(manifest.labels[row])
    return None if head == expected.encode() else f"{name} says label {head!r}, expected {expected}"


def _array_fault(manifest: Manifest, row: int, member: tarfile.TarInfo, head: bytes) -> str | None:
    try:
        header = read_header(head, member.size)
    except DataError as error:
        return f"{member.name} is {error}"
    shape = (int(manifest.frames[row]), *manifest.info.frame_shape)
    # numpy saves bfloat16 as two bytes without a name.
    stored = np.dtype(np.lib.format.dtype_to_descr(storage_dtype(manifest.info.dtype)))
    if header.dtype != stored or header.shape != shape or header.fortran:
        return f"{member.name} is {header.dtype} {header.shape}, expected {manifest.info.dtype} {shape}"
    offset = member.offset_data + header.offset
    if offset != manifest.offsets[row]:
        return f"{member.name} begins at {offset}, the manifest says {manifest.offsets[row]}"
    return None


def _json_fault(manifest: Manifest, row: int, name: str, content: bytes) -> str | None:
    try:
        found: dict[str, Any] = json.loads(content)
    except ValueError as error:
        return f"{name} is not JSON ({error})"
    for key in ("class", "item", "id"):
        expected = manifest.table.column(key)[row].as_py()
        if found.get(key) != expected:
            return f"{name} says {key} {found.get(key)!r}, expected {expected!r}"
    return None


def _checksum(file: BinaryIO, offset: int, nbytes: int) -> int | None:
    """xxh3-64 of a range of the file, or None if the file ends before it does."""
    digest, buffer = xxhash.xxh3_64(), memoryview(bytearray(min(_PIECE, nbytes)))
    while nbytes:
        got = os.preadv(file.fileno(), [buffer[: min(_PIECE, nbytes)]], offset)
        if got == 0:
            return None
        digest.update(buffer[:got])
        offset, nbytes = offset + got, nbytes - got
    return digest.intdigest()


def _where(manifest: Manifest, row: int | np.int64) -> str:
    row = int(row)
    return f"{manifest.shard_names[manifest.shards[row]]} row {row} id {manifest.id(row)!r}"
