"""Streaming gives every sample once, over ranks and workers, from files and from pipes."""

from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader

from shards import ConfigError, Crop, Manifest, World
from shards.reader import Reader
from shards.stream import stream
from tests.support.datasets import write_dataset

# webdataset leaves the closing of its files to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


def folders(tmp_path: Path, count: int, **options: object) -> list[Manifest]:
    """Datasets of one train shard each: together the shards of a larger one."""
    return [write_dataset(tmp_path / str(n), splits=("train",), seed=n, **options) for n in range(count)]  # type: ignore[arg-type]


def urls(datasets: list[Manifest]) -> list[str]:
    return [str(data.folder / "train-00000.tar") for data in datasets]


def first_frames(datasets: list[Manifest]) -> list[bytes]:
    found = []
    for data in datasets:
        with Reader(data) as reader:
            found += [reader.read(row)[:4].tobytes() for row in range(len(data))]
    return sorted(found)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_sample_comes_once(tmp_path: Path, ranks: int, workers: int) -> None:
    """All ranks and all workers together, with or without a shuffle."""
    datasets = folders(tmp_path, 4)
    for shuffle in (0, 10):
        seen = [
            sample["features"][:4].tobytes()
            for rank in range(ranks)
            for sample in DataLoader(
                stream(urls(datasets), world=World(rank, ranks), shuffle=shuffle),
                batch_size=None,
                num_workers=workers,
                collate_fn=lambda sample: sample,
            )
        ]
        assert sorted(seen) == first_frames(datasets)


def test_a_split_is_its_shards_and_samples_are_whole(tmp_path: Path) -> None:
    """From a Selection: features, label and names are those of the manifest."""
    data = write_dataset(tmp_path)
    rows = data.split("val").rows.tolist()

    samples = list(stream(data.split("val"), shuffle=0))

    assert [sample["id"] for sample in samples] == [data.id(row) for row in rows]
    with Reader(data) as reader:
        for row, sample in zip(rows, samples, strict=True):
            assert np.array_equal(sample["features"], reader.read(row))
            assert sample["label"] == data.labels[row]
            assert sample["class"] == data.classes[sample["label"]]


def test_pipes_are_read_like_files(tmp_path: Path) -> None:
    """`pipe:` commands, as for remote stores."""
    data = write_dataset(tmp_path)
    path = tmp_path / "train-00000.tar"

    piped, plain = (list(stream([source], shuffle=0)) for source in (f"pipe:cat {path}", str(path)))

    assert [sample["id"] for sample in piped] == [sample["id"] for sample in plain]
    assert len(plain) == len(data.split("train"))


def test_epochs_differ_and_repeat(tmp_path: Path) -> None:
    """Seed and epoch decide shard order, shuffle and crops; nothing else does."""
    shards = urls(folders(tmp_path, 3))

    def epoch(number: int) -> list[tuple[str, bytes]]:
        samples = stream(shards, crop=Crop(frames=6), shuffle=8, seed=1, epoch=number)
        return [(sample["id"], sample["features"].tobytes()) for sample in samples]

    assert epoch(0) == epoch(0)
    assert epoch(0) != epoch(1)
    assert all(len(features) == 6 * 8 * 4 for _, features in epoch(0))


def test_bfloat16_comes_as_float32(tmp_path: Path) -> None:
    """Which npy calls two bytes of anything."""
    data = write_dataset(tmp_path, dtype="bfloat16")
    sample = next(iter(stream(data.split("train"), shuffle=0)))

    with Reader(data) as reader:
        assert np.array_equal(sample["features"], reader.read(0).astype(np.float32))


def test_what_cannot_be_streamed_is_refused(tmp_path: Path) -> None:
    """Other containers, and fewer shards than ranks, with what to do."""
    arrow = write_dataset(tmp_path / "arrow", container="arrow")
    with pytest.raises(ConfigError, match="these are arrow; build with --format tar"):
        stream(arrow.split("train"))
    with pytest.raises(ConfigError, match="1 shards for 2 ranks"):
        stream(write_dataset(tmp_path / "tar").split("train"), world=World(0, 2))
