"""Samples by row, in a DataLoader of one's own, with any way of starting workers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from shards import BalancedSampler, ConfigError, Crop, Manifest
from shards.reader import Reader
from tests.support.datasets import write_dataset


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return write_dataset(tmp_path_factory.mktemp("data"), classes=6)


def balanced(data: Manifest) -> BalancedSampler:
    return BalancedSampler(data.split("train"), batch_size=8, samples_per_class=2, seed=3)


def loaded(loader: "DataLoader[dict[str, torch.Tensor]]") -> list[tuple[bytes, list[int]]]:
    return [(batch["features"].numpy().tobytes(), batch["row"].tolist()) for batch in loader]


def test_a_sample_is_its_crop_padded(data: Manifest) -> None:
    """The frames of the sample, zeros beyond them, its label and its row."""
    dataset = data.dataset(Crop(frames=50, where="centre"))
    sample = dataset[3]

    with Reader(data) as reader:
        frames = reader.read(3)
    assert sample["features"].shape == (50, 8)
    assert np.array_equal(sample["features"][: sample["length"]], frames)
    assert not sample["features"][sample["length"] :].any()
    assert (sample["label"], sample["row"]) == (int(data.labels[3]), 3)
    assert len(dataset) == len(data)
    dataset.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_give_what_one_process_gives(data: Manifest, method: str) -> None:
    """Batches of two workers, forked or spawned, are bitwise those without workers."""
    dataset = data.dataset(Crop(frames=10), seed=5)
    alone = loaded(DataLoader(dataset, batch_sampler=balanced(data)))

    workers = DataLoader(dataset, batch_sampler=balanced(data), num_workers=2, multiprocessing_context=method)

    assert loaded(workers) == alone
    assert [rows for _, rows in alone] == balanced(data).plan(0).tolist()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_set_epoch_reaches_workers_that_are_running(data: Manifest) -> None:
    """Persistent workers take the crops of the new epoch, as a new process would."""
    dataset = data.dataset(Crop(frames=10), seed=5)
    sampler = balanced(data)
    kept = DataLoader(dataset, batch_sampler=sampler, num_workers=1, persistent_workers=True)
    first = loaded(kept)
    dataset.set_epoch(1)
    sampler.set_epoch(0)
    second = loaded(kept)
    sampler.set_epoch(0)

    assert [rows for _, rows in first] == [rows for _, rows in second]
    assert first != second
    assert second == loaded(DataLoader(dataset, batch_sampler=sampler))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
def test_torchdata_resumes_at_every_batch(data: Manifest, workers: int) -> None:
    """StatefulDataLoader saves our sampler's own state, and the rest of the epoch is exact."""
    dataset = data.dataset(Crop(frames=10), seed=5)
    whole = loaded(StatefulDataLoader(dataset, batch_sampler=balanced(data), num_workers=workers))

    for stop in range(1, len(whole), 1 if workers == 0 else 4):
        loader = StatefulDataLoader(dataset, batch_sampler=balanced(data), num_workers=workers)
        for count, _ in enumerate(loader, 1):
            if count == stop:
                state = loader.state_dict()
                break
        resumed = StatefulDataLoader(dataset, batch_sampler=balanced(data), num_workers=workers)
        resumed.load_state_dict(state)
        assert loaded(resumed) == whole[stop:]


def test_whole_samples_are_padded_within_their_batch(data: Manifest) -> None:
    """Default collation stacks what has one length."""
    dataset = data.dataset(Crop(frames=None, where="whole"))

    for batch in DataLoader(dataset, batch_sampler=balanced(data)):
        assert batch["features"].shape[1] == int(batch["length"].max())


def test_transforms_draw_by_row_and_epoch(data: Manifest) -> None:
    """The same bits for a row whichever batch it is in, others in another epoch."""
    dataset = data.dataset(
        Crop(frames=10), transform=lambda frames, rng: frames + rng.normal(size=frames.shape).astype(frames.dtype)
    )
    alone, among = dataset[4]["features"], dataset.__getitems__([1, 4])[1]["features"]
    dataset.set_epoch(1)

    assert np.array_equal(alone, among)
    assert not np.array_equal(alone, dataset[4]["features"])


def test_bfloat16_comes_as_float32(tmp_path: Path) -> None:
    """Numpy has no bfloat16 that torch would collate; widening is exact."""
    data = write_dataset(tmp_path, dtype="bfloat16")
    [batch] = DataLoader(data.dataset(Crop(frames=20, where="centre")), batch_sampler=[[0, 1]])

    with Reader(data) as reader:
        frames = reader.read(0).astype(np.float32)
    begin = (len(frames) - 20) // 2
    assert torch.equal(batch["features"][0], torch.from_numpy(frames[begin : begin + 20]))


def test_several_crops_are_refused(data: Manifest) -> None:
    """A row is one item."""
    with pytest.raises(ConfigError, match="3 crops"):
        data.dataset(Crop(frames=10, where="even", count=3))
