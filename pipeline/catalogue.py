"""What a shard holds, told by the shard alone."""

import json
import os
import tarfile
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from pipeline.extents import Extent
from pipeline.features import Form
from pipeline.formats.npy import read_header
from shards.errors import DataError
from shards.sample import PAGE


class Found(NamedTuple):
    """One sample of a shard."""

    extent: Extent
    form: Form
    label: int
    class_name: str
    item: str
    id: str
    source: str


def samples_of(path: Path) -> list[Found]:
    """The samples of a tar or Arrow shard in the order they lie; raises DataError if it is not one of ours, whole."""
    read = _of_tar if path.suffix == ".tar" else _of_arrow
    try:
        return list(read(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error}); check the disk") from error
    except (DataError, tarfile.TarError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: not a whole shard ({error}); delete it and run the build again, with the options that it had"
        ) from error


def _of_tar(path: Path) -> Generator[Found]:
    with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
        members = list(archive)
        for label, described, array in zip(members[::3], members[1::3], members[2::3], strict=True):
            words = json.loads(_content(file.fileno(), described))
            # The header of an array reaches to the next page, or the one after that.
            head = os.pread(file.fileno(), min(array.size, 3 * PAGE), array.offset_data)
            header = read_header(head, array.size)
            # numpy saves bfloat16 as two bytes without a name.
            dtype = "bfloat16" if header.dtype.kind == "V" else header.dtype.name
            yield Found(
                Extent(array.offset_data + header.offset, array.size - header.offset, header.shape[0]),
                Form(dtype, header.shape[1:]),
                int(_content(file.fileno(), label)),
                words["class"],
                words["item"],
                words["id"],
                words["source"],
            )


def _content(file: int, member: tarfile.TarInfo) -> bytes:
    return os.pread(file, member.size, member.offset_data)


def _of_arrow(path: Path) -> Generator[Found]:
    with pa.memory_map(str(path)) as source:
        begin = source.read_buffer(1).address
        reader = pa.ipc.open_file(source)
        dtype = (reader.schema.metadata or {})[b"dtype"].decode()
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            features = batch.column("features")
            values, frame_shape = features.values, []
            while pa.types.is_fixed_size_list(values.type):
                frame_shape.append(values.type.list_size)
                values = values.flatten()
            form = Form(dtype, tuple(frame_shape))
            start = values.buffers()[1].address - begin
            bounds = features.offsets.to_numpy().tolist()
            names = (batch.column(name).to_pylist() for name in ("label", "class", "item", "id", "source"))
            for first, last, *words in zip(bounds, bounds[1:], *names, strict=False):
                frames = last - first
                yield Found(Extent(start + form.nbytes(first), form.nbytes(frames), frames), form, *words)
