"""Batches are what the plan and the crop say, whoever reads them and however fast."""

import gc
import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from shards import BalancedSampler, ConfigError, Crop, DataError, EvaluationSampler, Manifest, World
from shards.loader import Loader
from shards.reader import Reader
from shards.schema import DTYPES
from shards.transfer import Batch
from tests.support.datasets import write_dataset


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return write_dataset(tmp_path_factory.mktemp("data"), classes=6)


def balanced(data: Manifest, **options: object) -> BalancedSampler:
    chosen = {"batch_size": 8, "samples_per_class": 2, "seed": 3} | options
    return BalancedSampler(data.split("train"), **chosen)  # type: ignore[arg-type]


def bits(batches: list[Batch]) -> list[tuple[bytes, list[int], list[int]]]:
    return [(b.features.numpy().tobytes(), b.lengths.tolist(), b.rows.tolist()) for b in batches]


def reader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("headrace")]


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_a_batch_is_the_samples_cropped_and_padded(tmp_path: Path, dtype: str) -> None:
    """Every storage type arrives bit for bit, zeros beyond each length, labels and rows beside it."""
    data = write_dataset(tmp_path, dtype=dtype, frames=(5, 30), frame_shape=(2, 3))
    sampler = balanced(data)
    crop = Crop(frames=20)
    loader = Loader(data, sampler, crop=crop)

    with Reader(data) as reader:
        for step, batch in enumerate(loader):
            assert batch.features.dtype == getattr(torch, dtype)
            assert batch.features.shape == (8, 20, 2, 3)
            assert batch.rows.tolist() == sampler.plan(0)[step].tolist()
            assert batch.labels.tolist() == data.labels[batch.rows].tolist()
            ranges = loader.byte_ranges(step)
            for place, row in enumerate(batch.rows.tolist()):
                length = int(batch.lengths[place])
                whole = torch.from_numpy(reader.read(row).astype(np.float64))
                first = (ranges[place][1] - int(data.offsets[row])) // data.info.frame_bytes
                got = batch.features[place].double()
                assert torch.equal(got[:length], whole[first : first + length])
                assert not got[length:].any()


def test_the_number_of_threads_changes_nothing(data: Manifest) -> None:
    """One thread or eight, one batch ahead or six: the same bits in the same order, epoch after epoch."""
    runs = []
    for threads, prefetch in ((1, 1), (8, 2), (3, 6)):
        loader = Loader(data, balanced(data), crop=Crop(frames=10), threads=threads, prefetch=prefetch)
        runs.append([bits(list(loader)) for _ in range(3)])

    assert runs[0] == runs[1] == runs[2]
    assert runs[0][0] != runs[0][1], "the next epoch comes by itself"


def test_len_is_the_number_of_batches(data: Manifest) -> None:
    """For both samplers and every rank."""
    for rank in range(3):
        world = World(rank, 3)
        for sampler in (balanced(data, world=world), EvaluationSampler(data.split("val"), batch_size=5, world=world)):
            loader = Loader(data, sampler, crop=Crop(frames=10))
            assert len(loader) == len(list(loader))


def test_batches_that_are_kept_are_never_overwritten(data: Manifest) -> None:
    """Keeping a whole epoch, or one view of each batch, leaves every value as it was when it came."""
    loader = Loader(data, balanced(data), crop=Crop(frames=10), prefetch=1)
    kept, copies = [], []
    for batch in loader:
        kept.append(batch.features[0, 3:])
        copies.append(batch.features[0, 3:].clone())
        del batch
    for _ in loader:
        pass

    assert all(torch.equal(view, copy) for view, copy in zip(kept, copies, strict=True))


def test_memory_stays_at_its_slots_when_batches_are_let_go(data: Manifest) -> None:
    """Its prefetch + 1 slots serve any number of epochs of the usual loop."""
    loader = Loader(data, balanced(data), crop=Crop(frames=10), prefetch=3)
    for _ in range(5):
        for batch in loader:
            assert batch.features.shape[0] == 8

    assert loader._ring.slots == 4


def test_resumes_at_every_batch(data: Manifest) -> None:
    """A state taken after any batch handed out gives exactly the rest, prefetched batches included."""
    whole = bits(list(Loader(data, balanced(data), crop=Crop(frames=10))))

    for step in range(len(whole)):
        interrupted = Loader(data, balanced(data), crop=Crop(frames=10))
        for done, _ in enumerate(interrupted, 1):
            if done == step + 1:
                break
        resumed = Loader(data, balanced(data), crop=Crop(frames=10))
        resumed.load_state_dict(interrupted.state_dict())
        resumed.sampler.set_epoch(0)
        assert bits(list(resumed)) == whole[step + 1 :]
        assert resumed.sampler.epoch == 1


def test_after_break_an_epoch_begins_again(data: Manifest) -> None:
    """Looking at one batch and leaving doesn't cost the next loop its first batch."""
    loader = Loader(data, balanced(data), crop=Crop(frames=10))
    first = next(iter(loader)).rows.tolist()

    assert next(iter(loader)).rows.tolist() == first
    assert len(list(loader)) == len(loader)


def test_threads_end_with_the_iteration(data: Manifest) -> None:
    """At its end, on break, and on an error of the caller: no reader thread is left."""
    loader = Loader(data, balanced(data), crop=Crop(frames=10))
    list(loader)
    assert reader_threads() == []

    for _ in loader:
        assert len(reader_threads()) == 4
        break
    gc.collect()
    assert reader_threads() == []

    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            raise ZeroDivisionError
    gc.collect()
    assert reader_threads() == []


def test_a_read_that_fails_is_raised_where_the_batch_was_due(tmp_path: Path) -> None:
    """Batches before it come; then the error, with shard, row and id, in the training thread."""
    data = write_dataset(tmp_path, classes=6)
    broken = int(data.split("train").rows[-1])
    os.truncate(data.shard_path(broken), int(data.offsets[broken]) + 100)
    sampler = balanced(data, class_weighting=1.0)
    due = int(np.flatnonzero((sampler.plan(0) == broken).any(axis=1))[0])
    loader = Loader(data, sampler, crop=Crop(frames=None, where="whole"))

    got = []
    with pytest.raises(DataError, match=rf"train-00000.tar: row {broken} \(id '.*'\): the file ends"):
        for batch in loader:
            got.append(batch.rows)

    assert len(got) == due
    assert reader_threads() == []


def test_whole_samples_are_padded_to_the_longest_of_their_batch(data: Manifest) -> None:
    """T is the batch's own longest length, not the dataset's."""
    loader = Loader(data, EvaluationSampler(data.split("val"), batch_size=3), crop=Crop(frames=None, where="whole"))

    for batch in loader:
        assert batch.features.shape[1] == int(batch.lengths.max())
        assert batch.lengths.tolist() == data.frames[batch.rows].tolist()


def test_several_crops_of_a_sample_stand_side_by_side(data: Manifest) -> None:
    """count=3 gives each row three times in a row, from its first frame to its last."""
    loader = Loader(
        data,
        EvaluationSampler(data.split("val"), batch_size=2),
        crop=Crop(frames=8, where="even", count=3),
    )
    batch = next(iter(loader))

    assert batch.features.shape[0] == 6
    assert batch.rows.tolist() == np.repeat(data.split("val").rows[:2], 3).tolist()
    with Reader(data) as reader:
        sample = reader.read(int(batch.rows[0]))
    assert torch.equal(batch.features[0], torch.from_numpy(sample[:8]))
    assert torch.equal(batch.features[2], torch.from_numpy(sample[-8:]))


def test_ranks_crop_differently(tmp_path: Path) -> None:
    """Two ranks at the same step and slot do not draw the same start."""
    data = write_dataset(tmp_path, classes=8, frames=(1000, 1000), frame_shape=(1,))
    first = [
        [
            offset
            for _, offset, _ in Loader(data, balanced(data, world=World(rank, 2)), crop=Crop(frames=10)).byte_ranges(0)
        ]
        for rank in range(2)
    ]
    starts = [
        (np.array(own) - data.offsets[balanced(data, world=World(rank, 2)).plan(0)[0]]) // 4
        for rank, own in enumerate(first)
    ]

    assert starts[0].tolist() != starts[1].tolist()


def test_waiting_and_bytes_are_counted(data: Manifest) -> None:
    """bytes_read is what the crops hold; wait_seconds only grows."""
    loader = Loader(data, balanced(data), crop=Crop(frames=10))
    list(loader)

    assert loader.bytes_read == len(loader) * 8 * 10 * 8 * 4
    assert loader.wait_seconds > 0


@pytest.mark.parametrize("options", [{"threads": 0}, {"prefetch": 0}])
def test_a_loader_without_threads_or_prefetch_is_refused(data: Manifest, options: dict[str, int]) -> None:
    """It would wait for ever."""
    with pytest.raises(ConfigError, match="must be at least 1"):
        Loader(data, balanced(data), crop=Crop(frames=10), **options)  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_slow_consumers_see_whole_batches(data: Manifest) -> None:
    """With one slot ahead and a consumer stream kept busy, every batch arrives as it is on the CPU."""
    expected = bits(list(Loader(data, balanced(data), crop=Crop(frames=10))))
    loader = Loader(data, balanced(data), crop=Crop(frames=10), device="cuda", prefetch=1)
    copies = []
    for batch in loader:
        torch.cuda._sleep(50_000_000)
        copies.append((batch.features.clone(), batch.lengths.clone(), batch.rows))
    torch.cuda.synchronize()

    got = [(f.cpu().numpy().tobytes(), n.cpu().tolist(), r.tolist()) for f, n, r in copies]
    assert got == expected


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_slots_are_page_locked(data: Manifest) -> None:
    """Features are sent from pinned memory, and the number of slots stays what it was."""
    loader = Loader(data, balanced(data), crop=Crop(frames=10), device="cuda", prefetch=2)
    lent = loader._ring.lend()
    assert lent is not None
    assert torch.from_numpy(lent).is_pinned()
    del lent
    for _ in range(3):
        for batch in loader:
            assert batch.features.is_cuda
    assert loader._ring.slots == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_nothing_is_page_locked_after_the_first_epoch(data: Manifest) -> None:
    """CudaHostAlloc would stall the device: torch's own count of it stands still while epochs go by."""
    loader = Loader(data, balanced(data), crop=Crop(frames=10), device="cuda", prefetch=2)
    list(loader)
    before = torch.cuda.host_memory_stats().get("num_host_alloc", 0)
    for _ in range(3):
        for batch in loader:
            batch.features.sum()
    torch.cuda.synchronize()

    assert torch.cuda.host_memory_stats().get("num_host_alloc", 0) == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda_copies_run_beside_the_computation(tmp_path: Path) -> None:
    """In a trace, copies to the device are on another stream than the kernels, from pinned memory."""
    data = write_dataset(tmp_path, classes=6, frames=(2000, 2000), frame_shape=(128,))
    loader = Loader(data, balanced(data), crop=Crop(frames=1000), device="cuda")
    weight = torch.randn(128, 128, device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as trace:
        for batch in loader:
            (batch.features @ weight).sum()
        torch.cuda.synchronize()
    trace.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    copies = {e["args"]["stream"] for e in events if e.get("name", "") == "Memcpy HtoD (Pinned -> Device)"}
    kernels = {e["args"]["stream"] for e in events if e.get("cat") == "kernel"}

    assert copies
    assert kernels
    assert not copies & kernels


def test_memory_that_is_let_go_is_read_into_while_a_step_is_computed(data: Manifest) -> None:
    """With two slots: the next batch is read while one is held, and one more as soon as it is let go of."""
    seen: list[int] = []

    def count(frames: np.ndarray, _: np.random.Generator) -> np.ndarray:
        seen.append(1)
        return frames

    def reach(crops: int) -> bool:
        deadline = time.monotonic() + 20
        while len(seen) < crops and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.02)
        return len(seen) == crops

    batches = iter(Loader(data, balanced(data), crop=Crop(frames=10), prefetch=1, transform=count))
    batch = next(batches)
    assert reach(16)
    del batch
    assert reach(24)
    batches.close()  # type: ignore[attr-defined]
