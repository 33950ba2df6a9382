"""Offsets beyond 4 GiB: 64 bits all the way."""

import os
import tarfile
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest
import xxhash

from shards.arrow import ArrowWriter
from shards.manifest import write_manifest
from shards.reader import Reader
from shards.sample import PAGE, Sample, ShardWriter, Stored
from shards.schema import DatasetInfo
from shards.tar import TarWriter

FRAMES, WIDTH = 16_384, 4_096  # 256 MiB a sample


class Sparse:
    """A sink that leaves holes where zeros would be, so that 4 GiB take no room on the disk."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)

    def write(self, data: bytes | memoryview) -> int:
        if len(data) > PAGE and not np.frombuffer(data, np.uint8)[PAGE:-PAGE].any():
            self._file.write(data[:PAGE])
            self._file.seek(len(data) - 2 * PAGE, os.SEEK_CUR)
            self._file.write(data[-PAGE:])
        else:
            self._file.write(data)
        return len(data)

    def close(self) -> None:
        self._file.close()


@pytest.mark.parametrize("container", ["tar", "arrow"])
def test_a_sample_beyond_four_gibibytes_is_read_where_it_was_written(
    tmp_path: Path, container: Literal["tar", "arrow"]
) -> None:
    """Manifest, checksums and crops; readers of the container itself find it there too."""
    path = tmp_path / f"train-00000.{container}"
    sink = Sparse(path)
    writer: ShardWriter = TarWriter(sink) if container == "tar" else ArrowWriter(sink)
    array = np.zeros((FRAMES, WIDTH), np.float32)
    for number in range(18):
        array[0, :8], array[-1, -8:] = number, -number
        names = {"class_name": "c", "item": "i", "id": f"{number}", "source": f"{number}.npy"}
        writer.add(Sample(array=array, label=0, **names))
    stored = list(writer.close())
    sink.close()
    assert stored[-1].offset > 1 << 32
    alike = {"split": "train", "shard": path.name, "class": "c", "item": "i", "label": 0}
    columns = {
        **{name: [word] * 18 for name, word in alike.items()},
        "id": [f"{number}" for number in range(18)],
        "source": [f"{number}.npy" for number in range(18)],
        **{name: [getattr(sample, name) for sample in stored] for name in Stored.__dataclass_fields__},
    }
    info = DatasetInfo(dtype="float32", frame_shape=(WIDTH,), classes=("c",), container=container, options={})

    data = write_manifest(tmp_path, info, columns)

    with Reader(data) as reader:
        for row in (0, 15, 16, 17):
            assert (reader.read(row, 0, 1)[0, 0], reader.read(row, FRAMES - 1)[0, -1]) == (row, -row)
    assert end_of_last(path) == stored[-1].offset + stored[-1].nbytes
    with path.open("rb") as file:
        file.seek(int(data.offsets[17]))
        assert xxhash.xxh3_64_intdigest(file.read(int(data.nbytes[17]))) == data.checksums[17]


def end_of_last(path: Path) -> int:
    """Where the last array ends, as the container's own library finds it."""
    if path.suffix == ".tar":
        with tarfile.open(path, "r:") as archive:
            last = archive.getmembers()[-1]
            return last.offset_data + last.size
    with pa.memory_map(str(path)) as source:
        begin = source.read_buffer(1).address
        reader = pa.ipc.open_file(source)
        values = reader.get_batch(reader.num_record_batches - 1).column("features").values.flatten().buffers()[1]
        return values.address - begin + FRAMES * WIDTH * 4
