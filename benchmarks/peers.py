"""Other loaders, each as its documentation says it is fastest, over the same samples: for `loaders.py`.

A side is two functions: `write` puts the samples into the loader's own format, once; `read` gives a function that
delivers every sample once, in random order, as batches of random crops, and returns how many there were. Runs in
an environment that has the libraries; nothing of headrace is imported here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SHARD = 256 << 20
WORKERS = 2


@dataclass(frozen=True, kw_only=True)
class Task:
    """What every side reads: `files`, a `frames` crop of each, `batch` of them at a time."""

    files: list[Path]
    frames: int
    batch: int
    threads: int
    folder: Path

    def crop(self, array: np.ndarray) -> np.ndarray:
        """A random crop; what is shorter is padded."""
        count = min(len(array), self.frames)
        first = np.random.randint(len(array) - count + 1)  # noqa: NPY002 - what their users write
        crop = array[first : first + count]
        if count == self.frames:
            return crop
        padded = np.zeros((self.frames, *crop.shape[1:]), crop.dtype)
        padded[:count] = crop
        return padded

    def tensor(self, array: np.ndarray) -> torch.Tensor:
        """A random crop in memory of its own."""
        return torch.from_numpy(np.array(self.crop(array)))

    def stacked(self, arrays: Iterable[np.ndarray]) -> torch.Tensor:
        """One batch."""
        return torch.from_numpy(np.stack([self.crop(array) for array in arrays]))


Turn = Callable[[], int]


def drained(batches: Iterable[Any]) -> int:
    """Take every batch and touch it once; returns the number of samples."""
    count = 0
    for batch in batches:
        features = batch[0] if isinstance(batch, list | tuple) else batch
        features = features["features"] if isinstance(features, dict) else features
        features[0, 0].sum()
        count += len(features)
    return count


def nothing(_: Task) -> None:
    """The `.npy` files are the format."""


class NpyFiles(Dataset[torch.Tensor]):
    """One np.load a sample and a slice: what scripts do today. With mmap_mode the crop alone is read."""

    def __init__(self, task: Task, mode: str | None) -> None:
        self.task, self.mode = task, mode

    def __len__(self) -> int:
        return len(self.task.files)

    def __getitem__(self, position: int) -> torch.Tensor:
        return self.task.tensor(np.load(self.task.files[position], mmap_mode=self.mode))


def npy_read(mode: str | None) -> Callable[[Task], Turn]:
    """DataLoader over files."""

    def read(task: Task) -> Turn:
        loader = DataLoader(
            NpyFiles(task, mode),
            batch_size=task.batch,
            shuffle=True,
            num_workers=WORKERS,
            persistent_workers=True,
            prefetch_factor=4,
        )
        return lambda: drained(loader)

    return read


def webdataset_write(task: Task) -> None:
    """Tars of 256 MiB."""
    import webdataset as wds  # noqa: PLC0415

    with wds.ShardWriter(f"{task.folder}/%05d.tar", maxsize=SHARD, maxcount=1 << 30, verbose=0) as writer:
        for number, path in enumerate(task.files):
            writer.write({"__key__": f"{number:06d}", "npy": np.load(path)})


def webdataset_read(task: Task) -> Turn:
    """Shuffled shards and a shuffle buffer, batched in the workers."""
    import webdataset as wds  # noqa: PLC0415

    urls = sorted(map(str, task.folder.glob("*.tar")))
    samples = wds.WebDataset(urls, shardshuffle=len(urls)).shuffle(64).decode().to_tuple("npy")
    batches = samples.map_tuple(task.crop).batched(task.batch)
    loader = wds.WebLoader(
        batches, batch_size=None, num_workers=min(WORKERS, len(urls)), persistent_workers=True, prefetch_factor=4
    )
    return lambda: drained(loader)


def streaming_write(task: Task) -> None:
    """MDS shards."""
    from streaming import MDSWriter  # noqa: PLC0415

    with MDSWriter(out=str(task.folder), columns={"features": "ndarray"}, size_limit=SHARD, exist_ok=True) as writer:
        for path in task.files:
            writer.write({"features": np.load(path)})


def streaming_read(task: Task) -> Turn:
    """Local StreamingDataset, shuffled."""
    from streaming import StreamingDataset  # noqa: PLC0415
    from streaming.base.util import clean_stale_shared_memory  # noqa: PLC0415

    class Crops(StreamingDataset):
        def __getitem__(self, position: int) -> torch.Tensor:
            return torch.from_numpy(task.crop(super().__getitem__(position)["features"]))

    clean_stale_shared_memory()
    samples = Crops(local=str(task.folder), shuffle=True, batch_size=task.batch)
    loader = DataLoader(samples, batch_size=task.batch, num_workers=WORKERS, persistent_workers=True, prefetch_factor=4)
    return lambda: drained(loader)


def litdata_write(task: Task) -> None:
    """Chunks of 256 MiB."""
    from litdata import optimize  # noqa: PLC0415

    optimize(np.load, [str(path) for path in task.files], output_dir=str(task.folder), num_workers=2, chunk_bytes=SHARD)


def litdata_read(task: Task) -> Turn:
    """StreamingDataset with a transform, shuffled."""
    from litdata import StreamingDataLoader, StreamingDataset  # noqa: PLC0415

    samples = StreamingDataset(str(task.folder), shuffle=True, transform=task.tensor)
    loader = StreamingDataLoader(
        samples, batch_size=task.batch, num_workers=WORKERS, persistent_workers=True, prefetch_factor=4
    )
    return lambda: drained(loader)


def spdl_read(*, mapped: bool) -> Callable[[Task], Turn]:
    """Threads: files are read and parsed by as many as headrace has."""

    def read(task: Task) -> Turn:
        import spdl.io  # noqa: PLC0415
        from spdl.pipeline import PipelineBuilder  # noqa: PLC0415

        def load(path: Path) -> np.ndarray:
            array = np.load(path, mmap_mode="r") if mapped else spdl.io.load_npy(path.read_bytes())
            return np.array(task.crop(array)) if mapped else task.crop(array)

        def turn() -> int:
            order = [task.files[position] for position in np.random.permutation(len(task.files))]  # noqa: NPY002
            pipeline = (
                PipelineBuilder()
                .add_source(order)
                .pipe(load, concurrency=task.threads)
                .aggregate(task.batch)
                .pipe(lambda arrays: torch.from_numpy(np.stack(arrays)))
                .add_sink(4)
                .build(num_threads=task.threads)
            )
            with pipeline.auto_stop():
                return drained(pipeline)

        return turn

    return read


def grain_write(task: Task) -> None:
    """One ArrayRecord file a shard, one record a group."""
    from array_record.python.array_record_module import ArrayRecordWriter  # noqa: PLC0415

    parts = max(1, len(task.files) // 64)
    for part in range(parts):
        writer = ArrayRecordWriter(str(task.folder / f"{part:05d}.array_record"), "group_size:1,uncompressed")
        for path in task.files[part::parts]:
            writer.write(np.load(path).tobytes())
        writer.close()


def grain_read(*, processes: bool) -> Callable[[Task], Turn]:
    """MapDataset over ArrayRecord: its threads, or worker processes with shared memory."""

    def read(task: Task) -> Turn:
        import grain  # noqa: PLC0415
        from grain.sources import ArrayRecordDataSource  # noqa: PLC0415

        width = np.load(task.files[0], mmap_mode="r").shape[1]

        def crop(record: bytes) -> np.ndarray:
            return task.crop(np.frombuffer(record, np.float32).reshape(-1, width))

        source = ArrayRecordDataSource(sorted(map(str, task.folder.glob("*.array_record"))))
        samples = grain.MapDataset.source(source).shuffle(seed=0).map(crop).batch(task.batch)
        read_options = grain.ReadOptions(num_threads=8, prefetch_buffer_size=8)  # batches, of which 16 would be 2.6 GB
        batches = samples.to_iter_dataset(read_options)
        if processes:
            batches = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=WORKERS, per_worker_buffer_size=4))
        return lambda: drained(batches)

    return read


def lance_write(task: Task) -> None:
    """One table, a row a sample."""
    import lance  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415

    schema = pa.schema([("features", pa.large_binary())])

    def batches() -> Iterable[pa.RecordBatch]:
        for begin in range(0, len(task.files), 16):
            payloads = [np.load(path).tobytes() for path in task.files[begin : begin + 16]]
            yield pa.record_batch([pa.array(payloads, pa.large_binary())], schema=schema)

    lance.write_dataset(batches(), str(task.folder / "samples.lance"), schema=schema)


def lance_read(task: Task) -> Turn:
    """SafeLanceDataset: a batch of rows by one take, in spawned workers."""
    from lance.torch.data import SafeLanceDataset  # noqa: PLC0415

    samples = SafeLanceDataset(str(task.folder / "samples.lance"))
    width = np.load(task.files[0], mmap_mode="r").shape[1]
    loader = DataLoader(
        samples,
        batch_size=task.batch,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        prefetch_factor=4,
        multiprocessing_context="spawn",
        collate_fn=Rows(task, width),
    )
    return lambda: drained(loader)


class Rows:
    """Collates rows of bytes; a class, so that it can be sent to a spawned worker."""

    def __init__(self, task: Task, width: int) -> None:
        self.task, self.width = task, width

    def __call__(self, rows: list[dict[str, Any]]) -> torch.Tensor:
        """One batch of rows of bytes."""
        return self.task.stacked(np.frombuffer(row["features"], np.float32).reshape(-1, self.width) for row in rows)


def datasets_write(task: Task) -> None:
    """Arrow files with an Array2D column."""
    import datasets  # noqa: PLC0415

    width = np.load(task.files[0], mmap_mode="r").shape[1]
    features = datasets.Features({"features": datasets.Array2D(shape=(None, width), dtype="float32")})

    def samples() -> Iterable[dict[str, np.ndarray]]:
        for path in task.files:
            yield {"features": np.load(path)}

    made = datasets.Dataset.from_generator(
        samples, features=features, cache_dir=str(task.folder / "cache"), writer_batch_size=16
    )
    made.save_to_disk(str(task.folder / "saved"), max_shard_size=SHARD)


def datasets_read(task: Task) -> Turn:
    """Memory-mapped, in numpy format."""
    import datasets  # noqa: PLC0415

    samples = datasets.load_from_disk(str(task.folder / "saved")).with_format("numpy")
    loader = DataLoader(
        samples,
        batch_size=task.batch,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        prefetch_factor=4,
        collate_fn=lambda rows: task.stacked(row["features"] for row in rows),
    )
    return lambda: drained(loader)


PEERS: dict[str, tuple[Callable[[Task], None], Callable[[Task], Turn]]] = {
    "DataLoader + np.load": (nothing, npy_read(None)),
    "DataLoader + np.load(mmap_mode='r')": (nothing, npy_read("r")),
    "SPDL, load_npy": (nothing, spdl_read(mapped=False)),
    "SPDL, np.load(mmap_mode='r')": (nothing, spdl_read(mapped=True)),
    "webdataset": (webdataset_write, webdataset_read),
    "MosaicML streaming": (streaming_write, streaming_read),
    "litdata": (litdata_write, litdata_read),
    "grain + ArrayRecord, threads": (grain_write, grain_read(processes=False)),
    "grain + ArrayRecord, processes": (grain_write, grain_read(processes=True)),
    "lance": (lance_write, lance_read),
    "datasets": (datasets_write, datasets_read),
}
