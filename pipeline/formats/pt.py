"""`.pt` and `.pth`: a tensor, or a dict of tensors. The one room of preprocessing that knows torch."""

from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from pipeline.formats.contents import Contents, Opened, only
from shards.errors import DataError
from shards.schema import storage_dtype

if TYPE_CHECKING:
    import torch


def look(file: Opened, key: str | None) -> Contents:
    """The tensor, or that of `key`; the file is mapped, so of a view in a large storage only the view is read."""
    return Contents.of(_as_array(_tensor(_load(file), key)))


def _load(file: Opened) -> Any:
    import torch  # noqa: PLC0415 - takes seconds, and most corpora do without

    try:
        with open(file.again, "rb") as stream:  # noqa: PTH123 - a descriptor's name, no path
            mapped = stream.read(4) == b"PK\x03\x04"  # files from before torch 1.6 are no zips
        return torch.load(file.again, map_location="cpu", weights_only=True, mmap=mapped)
    except UnpicklingError as error:
        raise DataError(
            "holds more than tensors, and unpickling that could run code; save the tensor alone with torch.save"
        ) from error


def _tensor(found: Any, key: str | None) -> "torch.Tensor":
    import torch  # noqa: PLC0415

    if isinstance(found, dict):
        tensors = {str(name): value for name, value in found.items() if isinstance(value, torch.Tensor)}
        return tensors[only(tensors, key, "tensor")]
    if isinstance(found, torch.Tensor):
        return found
    raise DataError(f"holds a {type(found).__name__}, expected a tensor or a dict of tensors; export it again")


def _as_array(tensor: "torch.Tensor") -> NDArray[Any]:
    import torch  # noqa: PLC0415

    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        raise DataError("a sparse, quantized or empty-shelled tensor; save tensor.to_dense() or tensor.dequantize()")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(storage_dtype("bfloat16"))
    return tensor.numpy()
