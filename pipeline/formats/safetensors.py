"""`.safetensors`: a header of names, types and shapes, then the tensors."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pipeline.formats.contents import Contents, Opened, Space, only
from shards.errors import DataError
from shards.schema import storage_dtype

_TYPES: Final = {
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
}


def look(file: Opened, key: str | None) -> Contents:
    """The tensor named `key`, or the only one."""
    from safetensors import safe_open  # noqa: PLC0415 - most corpora do without

    with safe_open(file.again, "np") as tensors:
        name = only(tensors.keys(), key, "tensor")
        header = tensors.get_slice(name)
        kind, shape = header.get_dtype(), tuple(header.get_shape())

    def load(_space: Space) -> NDArray[Any]:
        with safe_open(file.again, "np") as tensors:
            return tensors.get_tensor(name)

    return Contents(_dtype(kind), shape, load)


def _dtype(kind: str) -> np.dtype[Any]:
    if kind == "BF16":
        return storage_dtype("bfloat16")
    if kind not in _TYPES:
        raise DataError(f"dtype {kind}; expected one of BF16, {', '.join(_TYPES)}; save it as one of these")
    return np.dtype(_TYPES[kind])
