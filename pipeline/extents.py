"""Compare a file of samples with what was stored in it, byte by byte, whatever its container.

Two checksums a sample cover all its file: one of its payload, one of the bytes around that.
"""

import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import xxhash

from shards.sample import Stored

_PIECE: Final = 4 << 20  # bytes read at once: enough to keep a disk busy, few enough to stay in the CPU's cache


def differences(
    path: Path, samples: Sequence[Stored], count: Callable[[int], None]
) -> Generator[tuple[int | None, str]]:
    """What in a file is not as it was stored: the sample's position in it (None: the file's as a whole), and what.

    count    told of every few megabytes that were read
    """
    try:
        with path.open("rb", buffering=0) as file:
            yield from _differences(file, samples, count)
    except FileNotFoundError:
        yield None, "the file is missing"
    except OSError as error:
        yield None, f"cannot be read ({error.strerror})"


def _differences(
    file: BinaryIO, samples: Sequence[Stored], count: Callable[[int], None]
) -> Generator[tuple[int | None, str]]:
    size = os.fstat(file.fileno()).st_size
    ends = [sample.offset + sample.nbytes for sample in samples]
    for position, (sample, before, end) in enumerate(zip(samples, [0, *ends], ends, strict=False)):
        if end > size:
            left = len(samples) - position
            yield position, f"the file ends at byte {size:,}, this sample at {end:,}; so {left:,} samples are cut off"
            return
        around, payload = xxhash.xxh3_64(), xxhash.xxh3_64()
        _hash(file, before, sample.offset, around, count)
        _hash(file, sample.offset, end, payload, count)
        if position == len(samples) - 1:
            _hash(file, end, size, around, count)
        if payload.intdigest() != sample.checksum:
            yield position, f"checksum of its features is {payload.hexdigest()}, expected {sample.checksum:016x}"
        if around.intdigest() != sample.around:
            tail = f" or {end:,} to {size:,}" if position == len(samples) - 1 else ""
            yield position, f"something has changed around its features, in bytes {before:,} to {sample.offset:,}{tail}"


def _hash(file: BinaryIO, begin: int, end: int, digest: xxhash.xxh3_64, count: Callable[[int], None]) -> None:
    while begin < end:
        piece = os.pread(file.fileno(), min(_PIECE, end - begin), begin)
        if not piece:
            return  # cut short under our hands; the checksum tells
        digest.update(piece)
        begin += len(piece)
        count(len(piece))
