"""What is on disk beside the shards: file names, columns, storage types. docs/FORMAT.md says it in full."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

VERSION: Final = 2
DATASET_FILE: Final = "dataset.json"
MANIFEST_FILE: Final = "manifest.arrow"

Container = Literal["tar", "arrow", "raw"]

# Storage types that reach the device as they are.
DTYPES: Final = ("float16", "float32", "float64", "bfloat16")

_NAMED = pa.dictionary(pa.int32(), pa.large_string())
SCHEMA: Final = pa.schema(
    [
        pa.field("split", _NAMED, nullable=False),
        pa.field("shard", _NAMED, nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("nbytes", pa.int64(), nullable=False),
        pa.field("frames", pa.int64(), nullable=False),
        pa.field("label", pa.int32(), nullable=False),
        pa.field("class", _NAMED, nullable=False),
        pa.field("item", _NAMED, nullable=False),
        pa.field("id", pa.large_string(), nullable=False),
        pa.field("source", pa.large_string(), nullable=False),
        pa.field("checksum", pa.uint64(), nullable=False),
        pa.field("around", pa.uint64(), nullable=False),
    ]
)


@lru_cache
def storage_dtype(name: str) -> np.dtype[Any]:
    """The little-endian numpy type of a name in DTYPES."""
    if name == "bfloat16":
        # numpy has none of its own, and this import costs 0.4 s.
        import ml_dtypes  # noqa: PLC0415

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name).newbyteorder("<")


# Arrays are made from buffers and seen through them: pa.array and Array.to_numpy import pandas, 0.35 s of each process.
def column_array(values: Sequence[Any] | NDArray[Any], kind: pa.DataType) -> pa.Array:
    """One Arrow array without nulls; names are coded in order of first appearance, so equal rows give equal bytes."""
    if pa.types.is_dictionary(kind):
        return column_array(values, kind.value_type).dictionary_encode().cast(kind)
    if pa.types.is_large_string(kind):
        words = [word.encode() for word in values]
        bounds = np.cumsum([0, *map(len, words)], dtype=np.int64)
        return pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(words))])
    array = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(array)])


def numbers(column: pa.Array) -> NDArray[Any]:
    """A column of numbers without nulls, seen without a copy, (rows,) and read-only."""
    dtype = np.dtype(column.type.to_pandas_dtype())
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


@dataclass(frozen=True, kw_only=True)
class DatasetInfo:
    """What holds for all samples alike.

    dtype         one of DTYPES: how payloads are stored (C order, little-endian)
    frame_shape   shape of one frame, (128,) for 128 mel bands; () for 1-D samples
    classes       class names; the position is the label
    container     what the files of samples are: tar or arrow shards, or the user's own files, untouched ("raw")
    root          folder of the files of samples, absolute; None: that of the manifest
    options       how the shards were made, for people to read
    """

    dtype: str
    frame_shape: tuple[int, ...]
    classes: tuple[str, ...]
    container: Container = "tar"
    root: str | None = None
    options: Mapping[str, Any]

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame."""
        return storage_dtype(self.dtype).itemsize * math.prod(self.frame_shape)


def info_of(raw: Mapping[str, Any]) -> DatasetInfo:
    """What `dataset.json` says of all samples."""
    return DatasetInfo(
        dtype=raw["dtype"],
        frame_shape=tuple(raw["frame_shape"]),
        classes=tuple(raw["classes"]),
        container=raw["container"],
        root=raw["root"],
        options=raw["options"],
    )
