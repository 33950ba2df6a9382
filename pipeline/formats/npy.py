"""`.npy`, checked by arithmetic before its data is read.

Magic, version, type, shape, and size = header + payload to the byte: a cut or an overlong file is
found from its first page.
"""

import io
import math
import os
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.formats.contents import Contents, Opened, Space, check_shape, refuse_objects
from shards.errors import DataError

_MAGIC: Final = b"\x93NUMPY"
_PAGE: Final = 4096
_READ_AT_ONCE: Final = 1 << 30  # Linux returns at most 2 GiB - 4096 a read


class Header(NamedTuple):
    """What the header of one file says. `offset` is the first byte of the data."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    def view(self, payload: NDArray[np.uint8]) -> NDArray[Any]:
        """The bytes after the header as the array they are."""
        return payload.view(self.dtype).reshape(self.shape, order="F" if self.fortran else "C")


def look(file: Opened, _key: str | None) -> Contents:
    """The one array of a `.npy` file."""
    head = os.pread(file.descriptor, _PAGE, 0)
    if head[:6] == _MAGIC and len(head) == _PAGE and (length := header_length(head)) > _PAGE:
        head += os.pread(file.descriptor, length - _PAGE, _PAGE)
    header = read_header(head, file.size)
    return Contents(header.dtype, header.shape, partial(_load, file, head, header), in_place=not header.fortran)


def _load(file: Opened, head: bytes, header: Header, space: Space) -> NDArray[Any]:
    data = space(file.size - header.offset)
    begun = np.frombuffer(head, np.uint8)[header.offset :]  # a small file is there already
    done = len(begun)
    data[:done] = begun
    while done < len(data):
        piece = data[done : done + _READ_AT_ONCE].data
        got = os.preadv(file.descriptor, [piece], header.offset + done)
        if got == 0:
            raise DataError(f"truncated while it was read: ends at byte {header.offset + done:,}; export it again")
        done += got
    return header.view(data)


def read_header(head: bytes | memoryview, size: int) -> Header:
    """The header of a file of `size` bytes from its first bytes; raises DataError saying what is wrong."""
    if size == 0:
        raise DataError("an empty file; export it again")
    if head[:6] != _MAGIC:
        raise DataError(f"not a .npy file: begins with {bytes(head[:6])!r}, expected {_MAGIC!r}; export it again")
    length = header_length(head)
    if length > size:
        raise DataError(f"truncated inside its header: expected at least {length:,} bytes, found {size:,}")
    try:
        dtype, shape, fortran = _parse(bytes(head[:length]))
    except Exception as error:  # numpy's parser lets half a dozen kinds of error through
        raise DataError(f"a damaged .npy header ({error}); export it again") from error
    refuse_objects(dtype)
    check_shape(shape)
    expected = length + math.prod(shape) * dtype.itemsize
    if size != expected:
        what = "truncated" if size < expected else "overlong"
        raise DataError(
            f"{what}: {dtype.name} {shape} needs {expected:,} bytes, found {size:,} "
            f"({size - expected:+,}); export it again"
        )
    return Header(dtype, shape, fortran, length)


def header_length(head: bytes | memoryview) -> int:
    """Bytes up to the data; header versions 2 and 3 count in four bytes, version 1 in two."""
    if len(head) < 12:
        raise DataError(f"truncated inside its header: found {len(head)} bytes; export it again")
    major, width = head[6], 2 if head[6] == 1 else 4
    if major not in {1, 2, 3}:
        raise DataError(f"a .npy file of unknown version {major}; export it again with a current numpy")
    return 8 + width + int.from_bytes(head[8 : 8 + width], "little")


# Files of one corpus differ in frames alone, so a few thousand headers cover hundreds of thousands.
@lru_cache(maxsize=1 << 14)
def _parse(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    stream = io.BytesIO(header)
    version = np.lib.format.read_magic(stream)
    # Version 3 differs from 2 in the encoding of field names alone, and fields are refused anyway.
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream, max_header_size=len(header))
    return dtype, shape, fortran
