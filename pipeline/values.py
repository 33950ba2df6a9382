"""Values: which types are stored, that all are finite, and what a cast costs them."""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shards.errors import DataError
from shards.schema import DTYPES

_AT_ONCE: Final = 1 << 16  # values cast and compared while they are in the CPU's cache


@lru_cache  # asked for every file, and numpy works out the name of a type each time
def storage_name(dtype: np.dtype[Any], declared: str | None) -> str:
    """The type that `dtype` is stored as: the one `declared`, or its own; raises DataError if it cannot be."""
    if dtype.name in DTYPES or (dtype.kind in "iu" and declared is not None):
        return declared or dtype.name
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        raise DataError(
            "two-byte values without a type; if they are bfloat16, which numpy saves without its name, "
            "say so with --dtype bfloat16"
        )
    if dtype.kind in "iu":
        raise DataError(f"dtype {dtype}; choose the floating-point type to store them in with --dtype float32, say")
    raise DataError(f"dtype {dtype}; expected one of {', '.join(DTYPES)}; save it as one of these")


def check_finite(array: NDArray[Any]) -> None:
    """Raise DataError if any value is NaN or infinite, saying how many and in which frame first."""
    if array.dtype.kind in "iu":
        return
    if array.dtype.itemsize == 2:  # arithmetic on halves is ten times slower than a look at their bits
        limit = 0x7F80 if array.dtype.name == "bfloat16" else 0x7C00
        bits = array.view(np.dtype(np.uint16).newbyteorder(array.dtype.byteorder))
        infinite = (bits & 0x7FFF) >= limit
    else:
        infinite = ~np.isfinite(array)
    if np.any(infinite):
        frame = int(np.argmax(infinite.reshape(len(array), -1).any(axis=1)))
        raise DataError(
            f"{np.count_nonzero(infinite):,} values are NaN or infinite, the first in frame {frame}; "
            "export it again, or accept them with --non-finite keep"
        )


class CastLoss(NamedTuple):
    """What casting has done to some values.

    overflowed     finite values that became infinite
    underflowed    values that became zero
    absolute       the largest |cast - value|, over values that stayed finite
    relative       the largest |cast - value| / |value|, over values other than zero that stayed finite
    """

    values: int = 0
    overflowed: int = 0
    underflowed: int = 0
    absolute: float = 0.0
    relative: float = 0.0

    def and_also(self, other: "CastLoss") -> "CastLoss":
        """The loss over both sets of values."""
        counts = (self.values + other.values, self.overflowed + other.overflowed, self.underflowed + other.underflowed)
        return CastLoss(*counts, max(self.absolute, other.absolute), max(self.relative, other.relative))

    def __str__(self) -> str:
        return (
            f"largest error {self.absolute:.3g} (relative {self.relative:.3g}), {self.overflowed:,} overflowed and "
            f"{self.underflowed:,} underflowed of {self.values:,} values"
        )


NO_LOSS: Final = CastLoss()


def cast(array: NDArray[Any], out: NDArray[Any]) -> CastLoss:
    """Fill `out` with `array`, of the same shape but any numeric type; returns what was lost.

    Values are rounded to nearest, ties to even, as numpy casts. Errors are measured in a type that holds both
    sides exactly.
    """
    exact = _exact(array.dtype)
    loss = CastLoss(values=array.size)
    frames = max(1, _AT_ONCE * len(array) // array.size)
    for start in range(0, len(array), frames):
        before = array[start : start + frames]
        after = out[start : start + frames]
        with np.errstate(all="ignore"):
            after[...] = before
            loss = loss.and_also(_loss(before.astype(exact, copy=False), after.astype(exact)))
    return loss


def _exact(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A float type that holds every value of `dtype`, and of any storage type no wider."""
    if dtype.kind in "iu":
        return np.dtype(
            np.longdouble if dtype.itemsize == 8 else np.float64
        )  # x86's longdouble has 64 bits of mantissa
    return np.dtype(np.float64 if dtype.itemsize == 8 else np.float32)


def _loss(before: NDArray[Any], after: NDArray[Any]) -> CastLoss:
    overflowed = 0
    stayed = np.isfinite(after)
    if not stayed.all():
        overflowed = int(np.count_nonzero(~stayed & np.isfinite(before)))
        before, after = before[stayed], after[stayed]
    error = np.subtract(after, before)
    np.abs(error, out=error)
    absolute = float(error.max(initial=0))
    if not (nonzero := before != 0).all():  # indexing costs more than all the rest, and zeros are rare
        before, after, error = before[nonzero], after[nonzero], error[nonzero]
    np.divide(error, before, out=error)
    return CastLoss(
        overflowed=overflowed,
        underflowed=int(np.count_nonzero(after == 0)),
        absolute=absolute,
        relative=float(np.abs(error, out=error).max(initial=0)),
    )


def largest(array: NDArray[Any]) -> float:
    """The finite value farthest from zero."""
    finite = array[np.isfinite(array)]
    return max(float(finite.max()), float(finite.min()), key=abs)
