"""What an open feature file is, and what is found in it."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shards.errors import DataError

# Memory for so many bytes, the caller's own and used again for the next file.
Space = Callable[[int], NDArray[np.uint8]]


class Opened(NamedTuple):
    """A regular file, open for reading; `size` is its bytes, `mtime_ns` its time of change."""

    path: str
    descriptor: int
    size: int
    mtime_ns: int

    @property
    def again(self) -> str:
        """A name of this very file, whatever has happened to its path, for libraries that open by name."""
        return f"/proc/self/fd/{self.descriptor}"


class Contents(NamedTuple):
    """The array of a file before it is read. `load(space)` reads it; it is good until `space` is used again.

    in_place    whether the file ends in the array's bytes, in C order
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    load: Callable[[Space], NDArray[Any]]
    in_place: bool = False

    @classmethod
    def of(cls, array: NDArray[Any]) -> Self:
        """An array that is in memory, or mapped, already."""

        def load(_space: Space) -> NDArray[Any]:
            return array

        return cls(array.dtype, array.shape, load)


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise DataError for an array without a time axis, or with nothing in it."""
    if not shape or min(shape) < 1:
        raise DataError(f"shape {shape} holds no frame; expected (frames, ...) with at least one frame")


def refuse_objects(dtype: np.dtype[Any]) -> None:
    """Raise DataError for arrays of Python objects."""
    if dtype.hasobject:
        raise DataError("holds Python objects, which would have to be unpickled and could run code; save a float array")


def only(names: Iterable[str], key: str | None, what: str) -> str:
    """The name that `key` asks for, or the one there is; raises DataError listing what was found."""
    found = sorted(names)
    if key is not None and key in found:
        return key
    if key is None and len(found) == 1:
        return found[0]
    listed = ", ".join(found[:8]) + (f" and {len(found) - 8:,} more" if len(found) > 8 else "")
    if key is not None:
        raise DataError(f"holds no {what} {key!r} but {listed or 'none'}; name one of them with --key")
    raise DataError(
        f"holds {len(found):,} {what}s, expected one: {listed}; name it with --key"
        if found
        else f"holds no {what}; export it again"
    )
