"""One path -> one checked array; the only place that knows how feature files look inside.

A `.npy` file is checked by arithmetic before its data is read: magic, version, type, shape, and
size = header + payload to the byte, so that a cut or an overlong file is found from its first page.
Nothing is ever unpickled.
"""

import io
import math
import os
import stat
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from shards.errors import DataError
from shards.schema import DTYPES

SUFFIX: Final = ".npy"
_MAGIC: Final = b"\x93NUMPY"
_PAGE: Final = 4096
# Opening waits for the disk, not for Python: on a network disk more threads are more files at once.
_SCAN_THREADS: Final = 16
_SCAN_AT_ONCE: Final = 64  # files a task: handing over a task costs more than reading a header
_READ_AT_ONCE: Final = 1 << 30  # Linux returns at most 2 GiB - 4096 a read


class Form(NamedTuple):
    """What all samples of a dataset share: storage type and the shape of one frame."""

    dtype: str
    frame_shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} (frames{''.join(f', {n}' for n in self.frame_shape)})"


class Header(NamedTuple):
    """What the header of one file says. `offset` is the first byte of the data."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    offset: int

    @property
    def form(self) -> Form:
        """Storage type and frame shape, as they will be stored."""
        return Form(self.dtype.name, self.shape[1:])


def read_header(head: bytes | memoryview, size: int) -> Header:
    """The header of a file of `size` bytes from its first bytes; raises DataError saying what is wrong."""
    if size == 0:
        raise DataError("an empty file; export it again")
    if head[:6] != _MAGIC:
        raise DataError(f"not a .npy file: begins with {bytes(head[:6])!r}, expected {_MAGIC!r}; export it again")
    length = _header_length(head)
    if length > size:
        raise DataError(f"truncated inside its header: expected at least {length:,} bytes, found {size:,}")
    try:
        dtype, shape, fortran = _parse(bytes(head[:length]))
    except Exception as error:  # numpy's parser lets half a dozen kinds of error through
        raise DataError(f"a damaged .npy header ({error}); export it again") from error
    _check_type(dtype)
    if not shape or min(shape) < 1:
        raise DataError(f"shape {shape} holds no frame; expected (frames, ...) with at least one frame")
    expected = length + math.prod(shape) * dtype.itemsize
    if size != expected:
        what = "truncated" if size < expected else "overlong"
        raise DataError(
            f"{what}: {dtype.name} {shape} needs {expected:,} bytes, found {size:,} "
            f"({size - expected:+,}); export it again"
        )
    return Header(dtype, shape, fortran, length)


def _header_length(head: bytes | memoryview) -> int:
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


def _check_type(dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise DataError("holds Python objects, which would have to be unpickled and could run code; save a float array")
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        raise DataError("two-byte values without a type (bfloat16 saved by numpy loses its name); save as float32")
    if dtype.name not in DTYPES:
        names = ", ".join(name for name in DTYPES if name != "bfloat16")
        raise DataError(f"dtype {dtype}; expected one of {names}; save it as one of these")


class Feature(NamedTuple):
    """One file as it was when its header was read; the reader refuses it if it has changed since.

    path    below the feature folder
    size    bytes of the file, `mtime_ns` its time of change
    form    as the sample will be stored, and so are its `frames` and `nbytes`
    """

    path: str
    size: int
    mtime_ns: int
    form: Form
    frames: int
    nbytes: int


def _open(path: str) -> int:
    """A descriptor of a regular file; raises DataError for a folder, a pipe or a device.

    Opening a pipe would wait for someone to write to it, reading a device might never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError("not a regular file but a folder, a pipe or a device; put the feature file in its place")
    return descriptor


def read_feature(folder: Path, path: str) -> Feature:
    """The header, size and time of one file, reading one page of it; raises DataError."""
    try:
        descriptor = _open(f"{folder}/{path}")
        try:
            status = os.fstat(descriptor)
            head = os.pread(descriptor, _PAGE, 0)
            if head[:6] == _MAGIC and len(head) == _PAGE:
                head += os.pread(descriptor, max(0, _header_length(head) - _PAGE), _PAGE)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}); check the disk and the permissions") from error
    header = read_header(head, status.st_size)
    nbytes = math.prod(header.shape) * header.dtype.itemsize
    return Feature(path, status.st_size, status.st_mtime_ns, header.form, header.shape[0], nbytes)


def read_features(folder: Path, paths: Sequence[str]) -> list[Feature | DataError]:
    """`read_feature` of every path in `folder`, or what is wrong with it, in order.

    Costs one open and one page a file, a small part of reading the data, and is done before anything is
    written: a fault is found in the first minutes, not in the last.
    """

    def some(start: int) -> list[Feature | DataError]:
        found: list[Feature | DataError] = []
        for path in paths[start : start + _SCAN_AT_ONCE]:
            try:
                found.append(read_feature(folder, path))
            except DataError as error:
                found.append(error)
        return found

    with ThreadPoolExecutor(_SCAN_THREADS) as pool:
        return list(chain.from_iterable(pool.map(some, range(0, len(paths), _SCAN_AT_ONCE))))


def common_form(features: Sequence[Feature | DataError]) -> Form | None:
    """The form that most files have, whatever their order; the smallest of several equally common."""
    counts = Counter(feature.form for feature in features if isinstance(feature, Feature))
    return min(counts, key=lambda form: (-counts[form], form), default=None)


@final
class FeatureReader:
    """Read files into one buffer that is used again: an array is good until the next `read`."""

    def __init__(self, folder: Path, form: Form, *, keep_non_finite: bool) -> None:
        self._folder = folder
        self._form = form
        self._keep_non_finite = keep_non_finite
        self._buffer = np.empty(0, np.uint8)

    def read(self, feature: Feature) -> NDArray[Any]:
        """The checked array of one file: (frames, *frame_shape), C order, little-endian.

        Raises DataError if the file is no longer the one whose header was read.
        """
        path, size, mtime_ns = feature[:3]
        if len(self._buffer) < size:
            self._buffer = np.empty(size + size // 8, np.uint8)
        data = self._buffer[:size]
        try:
            with os.fdopen(_open(f"{self._folder}/{path}"), "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if (status.st_size, status.st_mtime_ns) != (size, mtime_ns):
                    raise DataError("changed while the shards were being built; run the same build again")
                done = 0
                while done < size and (count := file.readinto(data[done : done + _READ_AT_ONCE].data)):
                    done += count
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror}); check the disk and the permissions") from error
        header = read_header(data.data, size)
        check_form(header.form, self._form)
        array = data[header.offset :].view(header.dtype).reshape(header.shape, order="F" if header.fortran else "C")
        array = np.ascontiguousarray(array, header.dtype.newbyteorder("<"))
        if not self._keep_non_finite:
            check_finite(array)
        return array


def check_form(found: Form, form: Form) -> None:
    """Raise DataError if a file is not like the rest of the dataset."""
    if found != form:
        raise DataError(f"expected {form} as in most files, found {found}; export it again or leave it out")


def check_finite(array: NDArray[Any]) -> None:
    """Raise DataError if any value is NaN or infinite, saying how many and in which frame first."""
    # numpy's float16 arithmetic is ten times slower than looking at its bits.
    half = array.dtype.itemsize == 2
    infinite = (array.view(np.uint16) & 0x7FFF) >= 0x7C00 if half else ~np.isfinite(array)
    if np.any(infinite):
        frame = int(np.argmax(infinite.reshape(len(array), -1).any(axis=1)))
        raise DataError(
            f"{np.count_nonzero(infinite):,} values are NaN or infinite, the first in frame {frame}; "
            "export it again, or accept them with --non_finite keep"
        )
