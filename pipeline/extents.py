"""The bytes of a file of samples, whatever its container, against what was stored there.

Two checksums a sample cover all of the file: one of its payload, one of the bytes around that.
"""

import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import xxhash

from shards.sample import Stored

_PIECE: Final = 4 << 20  # bytes read at once: enough to keep a disk busy, few enough to stay in the CPU's cache
_Count = Callable[[int], None]


class Extent(NamedTuple):
    """Where a payload lies in its file, and how many frames it has."""

    offset: int
    nbytes: int
    frames: int


def stored_at(file: BinaryIO, extents: Sequence[Extent], count: _Count) -> Generator[Stored]:
    """The extents, which follow one another in the file, with the checksums of what is there now.

    count    told of every few megabytes that were read
    """
    size, before = os.fstat(file.fileno()).st_size, 0
    for position, (offset, nbytes, frames) in enumerate(extents):
        around, payload = xxhash.xxh3_64(), xxhash.xxh3_64()
        _hash(file, before, offset, around, count)
        before = offset + nbytes
        _hash(file, offset, before, payload, count)
        if position == len(extents) - 1:
            _hash(file, before, size, around, count)
        yield Stored(
            offset=offset, nbytes=nbytes, frames=frames, checksum=payload.intdigest(), around=around.intdigest()
        )


def differences(path: Path, samples: Sequence[Stored], count: _Count) -> Generator[tuple[int | None, str]]:
    """What in a file is not as it was stored: the sample's position in it (None: the whole file's), and what."""
    try:
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            whole = [sample for sample in samples if sample.offset + sample.nbytes <= size]
            for position, (sample, found) in enumerate(
                zip(whole, stored_at(file, [_extent(sample) for sample in whole], count), strict=True)
            ):
                cut = position == len(whole) - 1 and len(whole) < len(samples)
                if found.checksum != sample.checksum:
                    yield position, f"checksum of its features is {found.checksum:016x}, not {sample.checksum:016x}"
                if found.around != sample.around and not cut:
                    yield position, "something has changed around its features: headers, names or what follows them"
            if len(whole) < len(samples):
                left = len(samples) - len(whole)
                yield len(whole), f"the file ends at byte {size:,}, so this and {left - 1:,} samples more are cut off"
    except FileNotFoundError:
        yield None, "the file is missing"
    except OSError as error:
        yield None, f"cannot be read ({error.strerror})"


def _extent(sample: Stored) -> Extent:
    return Extent(sample.offset, sample.nbytes, sample.frames)


def _hash(file: BinaryIO, begin: int, end: int, digest: xxhash.xxh3_64, count: _Count) -> None:
    while begin < end:
        piece = os.pread(file.fileno(), min(_PIECE, end - begin), begin)
        if not piece:
            return  # cut short under our hands; the checksum tells
        digest.update(piece)
        begin += len(piece)
        count(len(piece))
