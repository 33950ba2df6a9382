"""Samples by row, for a DataLoader of your own: `DataLoader(data.dataset(crop), batch_sampler=sampler)`."""

import os
from collections.abc import Sequence
from multiprocessing.sharedctypes import RawValue
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from shards.crop import Crop, Transform, transform_frames
from shards.deal import keyed
from shards.errors import ConfigError
from shards.manifest import Manifest
from shards.reader import Reader
from shards.schema import storage_dtype


@final
class SampleDataset:
    """A map-style dataset over all rows of a manifest; the sampler says which of them.

    `dataset[row]` and `dataset.__getitems__(rows)` give, for each row,

    features    (T, *frame_shape) numpy array in the storage type (float32 for bfloat16, which numpy has not), zeros
                beyond `length`
    length      frames that are data
    label       position in `data.classes`
    row         position in the manifest

    so that torch's default collation makes batches of them. A random crop and a transform's random bits are a
    function of (seed, epoch, row); `set_epoch` reaches workers that are running already. Files are opened in
    each process for itself, so any way of starting workers will do.
    """

    def __init__(self, data: Manifest, crop: Crop, *, seed: int = 0, transform: Transform | None = None) -> None:
        if crop.count > 1:
            raise ConfigError(f"{crop.count} crops of a sample: a dataset gives one of each row")
        self.data = data
        self.crop = crop
        self.seed = seed
        self._transform = transform
        self._epoch = RawValue("q", 0)  # shared with the workers
        self._reader: Reader | None = None
        self._process = 0

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """The samples of a batch, in one array; torch's fetcher asks for this."""
        data, reader = self.data, self._own_reader()
        keys = [keyed(self.seed, 7, self._epoch.value, row) for row in rows]
        spans = [self.crop.spans(data.frames[[row]], key=key) for row, key in zip(rows, keys, strict=True)]
        counts = np.array([int(count[0]) for _, count in spans])
        shape = (len(rows), self.crop.longest(counts), *data.info.frame_shape)
        features = np.zeros(shape, storage_dtype(data.info.dtype))
        for place, (row, key, (first, count)) in enumerate(zip(rows, keys, spans, strict=True)):
            frames = features[place, : count[0]]
            reader.read_into(row, int(first[0]), int(count[0]), frames.reshape(-1).view(np.uint8).data)
            if self._transform is not None:
                transform_frames(self._transform, frames, key=keyed(key, 1))
        features = _known_to_numpy(features)
        labels = data.labels[list(rows)].tolist()
        return [
            {"features": frames, "length": length, "label": label, "row": row}
            for frames, length, label, row in zip(features, counts.tolist(), labels, rows, strict=True)
        ]

    def set_epoch(self, epoch: int) -> None:
        """Crop and transform as in `epoch` from now on, in the workers too."""
        self._epoch.value = epoch

    def close(self) -> None:
        """Close this process's files; reading opens them again."""
        if self._reader is not None:
            self._reader.close()

    def _own_reader(self) -> Reader:
        if self._reader is None or self._process != os.getpid():
            self._reader, self._process = Reader(self.data), os.getpid()
        return self._reader

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_reader": None, "_process": 0}


def _known_to_numpy(features: NDArray[Any]) -> NDArray[Any]:
    return features.astype(np.float32) if features.dtype.name == "bfloat16" else features
