"""A tar shard: USTAR, three members a sample, every payload on a 4096-byte boundary.

    000000.cls    the label, decimal text
    000000.json   class, item, id, source
    000000.npy    the array; its header is padded with spaces until the data meets the boundary

The key is the sample's position in the shard, never its id: webdataset cuts names at the first dot.
The same samples give the same bytes (mtime 0, no owner), so a shard written again is the same shard.
"""

import json
import struct
import tarfile
from dataclasses import dataclass
from typing import Any, Final, Protocol, final

import numpy as np
import xxhash
from numpy.typing import NDArray

PAGE: Final = 4096  # O_DIRECT and page-cache granularity
_BLOCK: Final = tarfile.BLOCKSIZE
_NPY_PREFIX: Final = b"\x93NUMPY\x01\x00"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample on its way into a shard.

    `array` is (frames, *frame_shape), C-contiguous and little-endian.
    """

    array: NDArray[Any]
    label: int
    class_name: str
    item: str
    id: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Where a payload went: byte offset in the shard, bytes, frames, xxh3-64 of the payload."""

    offset: int
    nbytes: int
    frames: int
    checksum: int


class Sink(Protocol):
    """What a shard is written to: a binary file, or something that passes the bytes on to one."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Take all of `data`."""
        ...


@final
class TarWriter:
    """Append samples to a sink, then `close` it with the end-of-archive blocks.

    Holds nothing but its position: memory stays at one sample. The file stays the caller's.
    """

    def __init__(self, file: Sink) -> None:
        self._file = file
        self._position = 0
        self._samples = 0

    def add(self, sample: Sample) -> Stored:
        """Write one sample and return where its payload lies."""
        key = f"{self._samples:06d}"
        described = {"class": sample.class_name, "item": sample.item, "id": sample.id, "source": sample.source}
        self._member(f"{key}.cls", str(sample.label).encode())
        self._member(f"{key}.json", json.dumps(described, ensure_ascii=False).encode())
        payload = sample.array.reshape(-1).view(np.uint8).data
        header = _npy_header(sample.array, -(self._position + _BLOCK) % PAGE)
        offset = self._position + _BLOCK + len(header)
        self._member(f"{key}.npy", header, payload)
        self._samples += 1
        return Stored(
            offset=offset,
            nbytes=payload.nbytes,
            frames=len(sample.array),
            checksum=xxhash.xxh3_64_intdigest(payload),
        )

    def close(self) -> None:
        """Write the two zero blocks that end an archive, padded to a whole tar record."""
        end = 2 * _BLOCK
        self._write(bytes(end + -(self._position + end) % tarfile.RECORDSIZE))

    def _member(self, name: str, *parts: bytes | memoryview) -> None:
        info = tarfile.TarInfo(name)
        info.size = sum(len(part) for part in parts)
        for part in (info.tobuf(tarfile.USTAR_FORMAT), *parts):
            self._write(part)
        self._write(bytes(-info.size % _BLOCK))

    def _write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._position += len(data)


def _npy_header(array: NDArray[Any], length: int) -> bytes:
    """An npy 1.0 header of `length` bytes (or `length + PAGE` if that is too short), newline-ended."""
    described = {
        "descr": np.lib.format.dtype_to_descr(array.dtype),
        "fortran_order": False,
        "shape": array.shape,
    }
    text = repr(described).encode("ascii")
    prefix = len(_NPY_PREFIX) + 2
    while length < prefix + len(text) + 1:
        length += PAGE
    padding = b" " * (length - prefix - len(text) - 1)
    return _NPY_PREFIX + struct.pack("<H", length - prefix) + text + padding + b"\n"
