"""Small datasets on disk, made with the real writer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shards.manifest import DTYPES, SCHEMA, DatasetInfo, Manifest, write_manifest
from shards.tar import Sample, TarWriter


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
) -> Manifest:
    """Write one tar shard a split; every class has `items` items of `per_item` samples in each split.

    A sample is a pattern of its class plus noise, so that a model can learn it; its length is drawn
    from `frames` (both ends included).
    """
    rng = np.random.default_rng(seed)
    patterns = rng.normal(size=(classes, *frame_shape))
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    folder.mkdir(parents=True, exist_ok=True)
    for split in splits:
        shard = f"{split}-00000.tar"
        with (folder / shard).open("wb") as file:
            writer = TarWriter(file)
            for label in range(classes):
                for copy in range(items * per_item):
                    length = int(rng.integers(frames[0], frames[1] + 1))
                    array = (patterns[label] + rng.normal(size=(length, *frame_shape))).astype(DTYPES[dtype])
                    item = f"{split}-{label}-{copy // per_item}"
                    sample = Sample(
                        array=array,
                        label=label,
                        class_name=f"class {label}",
                        item=item,
                        id=f"{item}-{copy % per_item}",
                        source=f"{item}-{copy % per_item}.npy",
                    )
                    stored = writer.add(sample)
                    row = {
                        "split": split,
                        "shard": shard,
                        "label": label,
                        "class": sample.class_name,
                        "item": item,
                        "id": sample.id,
                        **vars(stored),
                    }
                    for name, value in row.items():
                        columns[name].append(value)
            writer.close()
    info = DatasetInfo(
        dtype=dtype,
        frame_shape=frame_shape,
        classes=tuple(f"class {label}" for label in range(classes)),
        options={"made by": "tests"},
    )
    return write_manifest(folder, info, columns)
