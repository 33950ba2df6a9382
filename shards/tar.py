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
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from shards.sample import PAGE, Book, Sample, Sink, Stored

_BLOCK: Final = tarfile.BLOCKSIZE
_NPY_PREFIX: Final = b"\x93NUMPY\x01\x00"


@final
class TarWriter:
    """Append samples to a sink, then `close` it with the end-of-archive blocks.

    Holds nothing but its position: memory stays at one sample. The file stays the caller's.
    """

    def __init__(self, file: Sink) -> None:
        self._book = Book(file)
        self._samples = 0

    def add(self, sample: Sample) -> None:
        """Write one sample."""
        key = f"{self._samples:06d}"
        described = {"class": sample.class_name, "item": sample.item, "id": sample.id, "source": sample.source}
        self._member(f"{key}.cls", str(sample.label).encode())
        self._member(f"{key}.json", json.dumps(described, ensure_ascii=False).encode())
        header = _npy_header(sample.array, -(self._book.position + _BLOCK) % PAGE)
        payload = sample.payload
        size = len(header) + payload.nbytes
        self._book.write(_tar_header(f"{key}.npy", size) + header)
        self._book.write_payload(payload, len(sample.array))
        self._book.write(bytes(-size % _BLOCK))
        self._samples += 1

    def close(self) -> tuple[Stored, ...]:
        """Write the two zero blocks that end an archive, padded to a whole record; returns where the samples lie."""
        end = 2 * _BLOCK
        self._book.write(bytes(end + -(self._book.position + end) % tarfile.RECORDSIZE))
        return self._book.close()

    def _member(self, name: str, content: bytes) -> None:
        self._book.write(_tar_header(name, len(content)) + content + bytes(-len(content) % _BLOCK))


def _tar_header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


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
