"""`.h5`: one dataset of the file itself. Links, and datasets that live in other files, are not followed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.formats.contents import Contents, Opened, Space, only, refuse_objects
from shards.errors import DataError


def look(file: Opened, key: str | None) -> Contents:
    """The dataset at path `key`, or the only one at any depth."""
    with _open(file) as opened:
        name = _find(opened, key)
        dataset = opened[name]
        refuse_objects(dataset.dtype)
        if dataset.is_virtual or dataset.external:
            raise DataError(f"dataset {name!r} keeps its values in other files, which are not read; copy them into one")
        dtype, shape = dataset.dtype, dataset.shape
    if shape is None:
        raise DataError(f"dataset {name!r} is empty; export it again")

    def load(space: Space) -> NDArray[Any]:
        array = space(dtype.itemsize * int(np.prod(shape))).view(dtype).reshape(shape)
        with _open(file) as opened:
            opened[name].read_direct(array)
        return array

    return Contents(dtype, shape, load)


def _open(file: Opened) -> Any:
    import h5py  # noqa: PLC0415 - most corpora do without

    return h5py.File(file.again, "r", locking=False)


def _find(opened: Any, key: str | None) -> str:
    """The path of the dataset; every step to it must be a member of its group, never a link elsewhere."""
    import h5py  # noqa: PLC0415

    datasets: list[str] = []

    def visit(path: str, found: Any) -> None:  # follows no link
        if isinstance(found, h5py.Dataset):
            datasets.append(path)

    opened.visititems(visit)
    return only(datasets, None if key is None else key.strip("/"), "dataset")
