"""Read tar shards from end to end through webdataset: from local files, pipes or URLs, without the manifest.

For storage that has no random access, or none that is fast. What it costs: batches are as mixed as a shuffle
buffer makes them, not balanced; ranks may differ in steps; whole samples travel, whatever the crop.
"""

import io
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from webdataset.filters import map as mapped
from webdataset.filters import shuffle as shuffled
from webdataset.pipeline import DataPipeline
from webdataset.shardlists import SimpleShardList, split_by_worker
from webdataset.tariterators import tarfile_to_samples

from shards.crop import Crop
from shards.deal import keyed, permutation
from shards.errors import ConfigError
from shards.manifest import Selection
from shards.schema import storage_dtype
from shards.world import World


def stream(
    source: Selection | Sequence[str],
    *,
    world: World | None = None,
    crop: Crop | None = None,
    shuffle: int = 1000,
    seed: int = 0,
    epoch: int = 0,
) -> DataPipeline:
    """One epoch of tar shards as an IterableDataset, for a DataLoader with any number of workers.

    source     a split of a dataset, or the shards' paths, URLs or `pipe:` commands, as webdataset takes them
    world      rank r of W reads every W-th shard, its workers share those
    crop       frames of each sample; whole by default
    shuffle    samples (of cropped frames) that wait in a buffer, of which one comes out at random. Shards are
               sorted by class, so it should hold several classes; 0: in the order of the shards

    Gives dicts of features (T, *frame_shape), length, label, class, item and id. A pure function of its
    arguments, so that the next epoch is `stream(..., epoch=1)`.
    """
    shards = shards_of(source)
    world = world or World()
    if len(shards) < world.size:
        raise ConfigError(f"{len(shards)} shards for {world.size} ranks: a rank would have none; make smaller shards")
    order = permutation(len(shards), keyed(seed, 8, epoch))
    own = [shards[position] for position in order[world.rank :: world.size].tolist()]
    frames = partial(_sample, crop=crop or Crop(frames=None, where="whole"), key=keyed(seed, 9, epoch))
    stages: list[Any] = [SimpleShardList(own), split_by_worker, tarfile_to_samples(), mapped(frames)]
    if shuffle:
        stages.append(shuffled(shuffle, initial=shuffle, seed=keyed(seed, 10, epoch, world.rank)))
    return DataPipeline(*stages)


def shards_of(source: Selection | Sequence[str]) -> list[str]:
    """Paths of the tar shards of a split, or the list as it is; refuses datasets in other containers."""
    if not isinstance(source, Selection):
        return list(source)
    data = source.data
    if data.info.container != "tar":
        raise ConfigError(
            f"{data.folder}: streaming reads tar shards, these are {data.info.container}; build with --format tar"
        )
    names = [data.shard_names[code] for code in np.unique(data.shards[source.rows]).tolist()]
    return [str(data.root / name) for name in names]


def _sample(members: dict[str, Any], *, crop: Crop, key: int) -> dict[str, Any]:
    """One sample of the members of a tar."""
    array, described = _array(members["npy"]), json.loads(members["json"])
    place = keyed(key, *described["id"].encode())
    first, count = (int(value[0]) for value in crop.spans(np.array([len(array)]), key=place))
    features = np.zeros((crop.longest(np.array([count])), *array.shape[1:]), array.dtype)
    features[:count] = array[first : first + count]
    names = {name: described[name] for name in ("class", "item", "id")}
    return {"features": features, "length": count, "label": int(members["cls"]), **names}


def _array(payload: bytes) -> NDArray[Any]:
    """The array of an .npy member; bfloat16, which npy calls two bytes of anything, comes as float32."""
    array = np.load(io.BytesIO(payload), allow_pickle=False)
    return array.view(storage_dtype("bfloat16")).astype(np.float32) if array.dtype.kind == "V" else array
