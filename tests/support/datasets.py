"""Small datasets on disk, made with the real writer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from shards.arrow import ArrowWriter
from shards.manifest import Manifest, column_array, write_manifest
from shards.sample import Sample, ShardWriter
from shards.schema import SCHEMA, DatasetInfo, storage_dtype
from shards.tar import TarWriter


def manifest_of(
    labels: Sequence[int],
    items: Sequence[int] | None = None,
    *,
    shards: Sequence[int] | None = None,
    frames: Sequence[int] | None = None,
) -> Manifest:
    """A manifest without files: one sample a label, all in split "train"; row i has `labels[i]`.

    Lies in shard `shards[i]` and has `frames[i]` frames; one shard and 10 frames by default.
    """
    count = len(labels)
    items = range(count) if items is None else items
    columns: dict[str, Any] = {
        "split": ["train"] * count,
        "shard": [f"train-{shard:05}.tar" for shard in shards or [0] * count],
        "offset": np.arange(count) * 4096,
        "nbytes": np.full(count, 40),
        "frames": np.full(count, 10) if frames is None else frames,
        "label": labels,
        "class": [f"class {label}" for label in labels],
        "item": [f"item {item}" for item in items],
        "id": [f"id {row}" for row in range(count)],
        "source": [f"{row}.npy" for row in range(count)],
        "checksum": np.zeros(count, np.uint64),
        "around": np.zeros(count, np.uint64),
    }
    arrays = [column_array(columns[field.name], field.type) for field in SCHEMA]
    info = DatasetInfo(
        dtype="float32",
        frame_shape=(),
        classes=tuple(f"class {label}" for label in range(max(labels) + 1)),
        options={},
    )
    return Manifest(Path("nowhere"), info, pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), "0" * 32)


def write_dataset(
    folder: Path,
    *,
    classes: int = 4,
    items: int = 3,
    per_item: int = 2,
    frames: tuple[int, int] = (20, 40),
    frame_shape: tuple[int, ...] = (8,),
    dtype: str = "float32",
    splits: Sequence[str] = ("train", "val"),
    seed: int = 0,
    container: Literal["tar", "arrow"] = "tar",
) -> Manifest:
    """Write one shard a split; every class has `items` items of `per_item` samples in each split.

    A sample is its class's pattern, swinging in time, plus noise, so that a model can learn it; its
    length is drawn from `frames` (both ends included).
    """
    rng = np.random.default_rng(seed)
    patterns = rng.normal(size=(classes, *frame_shape))
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    folder.mkdir(parents=True, exist_ok=True)
    for split in splits:
        shard = f"{split}-00000.{container}"
        with (folder / shard).open("wb") as file:
            writer: ShardWriter = TarWriter(file) if container == "tar" else ArrowWriter(file)
            for label in range(classes):
                for copy in range(items * per_item):
                    length = int(rng.integers(frames[0], frames[1] + 1))
                    swing = np.sin(np.arange(length)).reshape(-1, *[1] * len(frame_shape))
                    noise = rng.normal(size=(length, *frame_shape))
                    array = (2 * patterns[label] * swing + noise).astype(storage_dtype(dtype))
                    item = f"{split}-{label}-{copy // per_item}"
                    sample = Sample(
                        array=array,
                        label=label,
                        class_name=f"class {label}",
                        item=item,
                        id=f"{item}-{copy % per_item}",
                        source=f"{item}-{copy % per_item}.npy",
                    )
                    writer.add(sample)
                    row = {
                        "split": split,
                        "shard": shard,
                        "label": label,
                        "class": sample.class_name,
                        "item": item,
                        "id": sample.id,
                        "source": sample.source,
                    }
                    for name, value in row.items():
                        columns[name].append(value)
            for stored in writer.close():
                for name, value in vars(stored).items():
                    columns[name].append(value)
    info = DatasetInfo(
        dtype=dtype,
        frame_shape=frame_shape,
        classes=tuple(f"class {label}" for label in range(classes)),
        container=container,
        options={"made by": "tests"},
    )
    return write_manifest(folder, info, columns)
