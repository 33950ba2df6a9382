"""What a loader does when reading goes wrong, when memory is short, and when processes fork."""

import gc
import logging
import multiprocessing as mp
import os
import pickle
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from shards import BalancedSampler, ConfigError, Crop, DataError, EvaluationSampler, Manifest, World
from shards.loader import Loader
from shards.manifest import write_manifest
from shards.transfer import Batch
from shards.tuning import ThreadTuner
from tests.support.datasets import write_dataset


def balanced(data: Manifest, **options: object) -> BalancedSampler:
    chosen = {"batch_size": 8, "samples_per_class": 2, "seed": 3, "class_weighting": 1.0} | options
    return BalancedSampler(data.split("train"), **chosen)  # type: ignore[arg-type]


def bits(batches: list[Batch]) -> list[tuple[bytes, list[int], list[int], list[int]]]:
    return [(b.features.numpy().tobytes(), b.lengths.tolist(), b.rows.tolist(), b.labels.tolist()) for b in batches]


def damage(data: Manifest, row: int) -> None:
    """Change one byte of a payload."""
    with data.shard_path(row).open("r+b") as file:
        file.seek(int(data.offsets[row]) + 5)
        file.write(b"\xa5\x5a")


def whole(data: Manifest, **options: object) -> Loader:
    return Loader(data, balanced(data), crop=Crop(frames=None, where="whole"), **options)  # type: ignore[arg-type]


def descriptors() -> set[str]:
    """What this process has open, by name."""
    return {str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink() and path.exists()}


def test_checksums_are_verified_on_whole_reads(tmp_path: Path) -> None:
    """A flipped byte goes by in silence without verify_reads; with it, it is an error with rank, shard, row and id."""
    data = write_dataset(tmp_path, classes=6)
    row = int(data.split("train").rows[3])
    damage(data, row)
    assert len(list(whole(data))) > 0

    with pytest.raises(DataError, match=rf"rank 0 of 1: .*train-00000.tar: row {row} \(id '.*'\): checksum .*damaged"):
        list(whole(data, verify_reads=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sound_data_passes_the_checksums(tmp_path: Path, dtype: str) -> None:
    """In every storage type the batches are those without checks."""
    data = write_dataset(tmp_path, classes=6, dtype=dtype)

    checked, plain = whole(data, verify_reads=True), whole(data)

    for one, other in zip(checked, plain, strict=True):
        assert torch.equal(one.features, other.features)


def test_a_substitute_is_of_the_class_and_the_same_on_every_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two damaged samples: every run, with any number of threads, gives the same batches of sound samples."""
    data = write_dataset(tmp_path, classes=6)
    broken = data.split("train").rows[[3, 20]].tolist()
    clean = bits(list(whole(data)))
    for row in broken:
        damage(data, row)

    runs = []
    with caplog.at_level(logging.WARNING):
        for threads in (1, 4, 7):
            loader = whole(data, verify_reads=True, on_corrupt="substitute", threads=threads)
            runs.append(bits(list(loader)))

    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0]) == len(clean), "no step is lost"
    rows = np.array([batch[2] for batch in runs[0]])
    before = np.array([batch[2] for batch in clean])
    changed = np.isin(before, broken)
    assert not np.isin(rows, broken).any()
    assert (rows[~changed] == before[~changed]).all(), "the others stay as they were"
    assert (data.labels[rows] == data.labels[before]).all(), "another sample of the same class"
    assert loader.substitutes is not None
    assert loader.substitutes.count == changed.sum()
    assert sorted(loader.substitutes.chosen) == broken
    assert f"row {broken[0]} (id {data.id(broken[0])!r})" in caplog.text
    assert "of its class takes its place" in caplog.text


def test_a_class_without_a_sound_sample_is_an_error(tmp_path: Path) -> None:
    """When all samples of a class are damaged nothing can take their place, and the run says so."""
    data = write_dataset(tmp_path, classes=6, items=1, per_item=2)
    for row in data.split("train").rows[:2].tolist():
        damage(data, row)

    with pytest.raises(DataError, match="no other sample of its class can take its place"):
        list(whole(data, verify_reads=True, on_corrupt="substitute"))


def test_crops_of_substitutes_are_where_a_crop_of_them_would_be(tmp_path: Path) -> None:
    """A short file is replaced in a batch of random crops, and the crop is within the substitute."""
    data = write_dataset(tmp_path, classes=6)
    last = int(data.split("train").rows[-1])
    os.truncate(data.shard_path(last), int(data.offsets[last]) + 4)
    loader = Loader(data, balanced(data), crop=Crop(frames=10), on_corrupt="substitute")

    batches = list(loader)

    assert all(last not in batch.rows.tolist() for batch in batches)
    assert all(batch.lengths.tolist() == [10] * 8 for batch in batches)


def test_a_read_that_hangs_is_an_error_with_rank_shard_and_id(tmp_path: Path) -> None:
    """A file that never answers (a pipe nobody writes to) ends the wait after `timeout`, and the threads are left."""
    data = write_dataset(tmp_path, classes=6)
    shard = data.shard_path(int(data.split("train").rows[0]))
    shard.unlink()
    os.mkfifo(shard)
    loader = Loader(data, balanced(data, world=World(1, 2), batch_size=2), crop=Crop(frames=10), timeout=0.3)

    with pytest.raises(
        DataError, match=r"rank 1 of 2: .*train-00000.tar: row \d+ \(id '.*'\).* has not come back after"
    ):
        list(loader)

    with shard.open("w"):  # let the threads go
        pass


def test_a_read_error_of_the_system_is_named(tmp_path: Path) -> None:
    """EIO in the middle of a run comes up in the training thread with what the system said."""
    data = write_dataset(tmp_path, classes=6)
    shard = data.shard_path(int(data.split("train").rows[0]))
    shard.unlink()
    shard.symlink_to("/proc/self/mem")  # reads of unmapped addresses fail with EIO

    with pytest.raises(DataError, match=r"rank 0 of 1: .*cannot read bytes .*Input/output error"):
        list(Loader(data, balanced(data), crop=Crop(frames=10), io="buffered"))


@pytest.mark.parametrize("how", ["end", "break", "error"])
def test_no_thread_and_no_file_is_left_after_the_loop(tmp_path: Path, how: str) -> None:
    """However the loop ends, the process has as many threads and open files as before."""
    data = write_dataset(tmp_path, classes=6)
    before = descriptors(), threading.active_count()
    loader = Loader(data, balanced(data), crop=Crop(frames=10))

    batches = iter(loader)
    next(batches)
    assert descriptors() - before[0] == {str(data.shard_path(int(data.split("train").rows[0])))}
    if how == "end":
        list(batches)
    elif how == "break":
        batches.close()  # type: ignore[attr-defined]
    else:
        with pytest.raises(ZeroDivisionError):
            batches.throw(ZeroDivisionError())  # type: ignore[attr-defined]

    assert (descriptors(), threading.active_count()) == before


def _interrupted(folder: Path, results: "mp.Queue[object]") -> None:
    """Sit in the loop until SIGINT comes, and say what is left then."""
    data = Manifest.open(folder)
    loader = Loader(data, balanced(data), crop=Crop(frames=10))
    before = descriptors()
    try:
        for _ in loader:
            results.put("in the loop")
            time.sleep(60)
    except KeyboardInterrupt:
        pass
    results.put((threading.active_count(), descriptors() - before))


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """SIGINT in the loop: no reader thread and no shard is open after it."""
    write_dataset(tmp_path, classes=6)
    context = mp.get_context("spawn")
    results: mp.Queue[object] = context.Queue()
    process = context.Process(target=_interrupted, args=(tmp_path, results))
    process.start()
    assert process.pid is not None
    assert results.get(timeout=60) == "in the loop"
    os.kill(process.pid, signal.SIGINT)

    threads, files = results.get(timeout=60)  # type: ignore[misc]
    process.join()

    assert threads <= 2, "the main thread and that of the queue"
    assert not [name for name in files if name.endswith(".tar")]


def _epoch_of(loader: Loader, results: "mp.Queue[object]") -> None:
    results.put(bits(list(loader)))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_loader_works_in_a_child_process(tmp_path: Path, method: str) -> None:
    """Made before the fork, or sent to a spawned process: an epoch there is the epoch here, before and after."""
    data = write_dataset(tmp_path, classes=6)
    loader = Loader(data, balanced(data), crop=Crop(frames=10))
    expected = bits(list(loader))
    loader.sampler.set_epoch(0)
    context = mp.get_context(method)
    results: mp.Queue[object] = context.Queue()
    process = context.Process(target=_epoch_of, args=(loader, results))  # type: ignore[attr-defined]
    process.start()

    assert results.get(timeout=100) == expected
    process.join()
    assert bits(list(loader)) == expected


def test_a_loader_forked_in_mid_epoch_says_so(tmp_path: Path) -> None:
    """The child has no reading threads, and would wait for ever."""
    data = write_dataset(tmp_path, classes=6)
    batches = iter(Loader(data, balanced(data), crop=Crop(frames=10)))
    next(batches)
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            next(batches)
        except RuntimeError as error:
            os.write(start, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(start)
    with open(end, "rb") as pipe:  # noqa: PTH123 - a descriptor
        assert b"forked in mid-epoch" in pipe.read()
    batches.close()  # type: ignore[attr-defined]


def test_a_manifest_is_sent_as_a_path(tmp_path: Path) -> None:
    """Pickled for a spawned worker it is a few bytes, and opens as the same data."""
    data = write_dataset(tmp_path)
    sent = pickle.dumps(data)

    assert len(sent) < 500
    assert pickle.loads(sent).fingerprint == data.fingerprint


def test_memory_that_cannot_fit_is_refused_with_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All ranks of the machine count; the message has the buffers, their size and what is free."""
    data = write_dataset(tmp_path, classes=6)
    monkeypatch.setattr("shards.memory.available_bytes", lambda: 100_000)
    sampler = balanced(data, world=World(0, 3), batch_size=4)

    with pytest.raises(ConfigError, match=r"17 batch buffers .*on each of 3 ranks are .*GB.* memory are free: take"):
        Loader(data, sampler, crop=Crop(frames=1000))


def test_what_is_planned_is_said(tmp_path: Path) -> None:
    """Buffers, bytes, threads and the way of reading, in words."""
    data = write_dataset(tmp_path, classes=6)

    text = "\n".join(Loader(data, balanced(data), crop=Crop(frames=10), threads="auto").describe())

    assert "17 batch buffers of 0.0 MB" in text
    assert "2 reading threads to begin with" in text
    assert "buffered reads" in text


def test_a_transform_sees_every_crop_with_a_seed_of_its_own(tmp_path: Path) -> None:
    """What it draws depends on seed, epoch, step and slot, never on threads; padding stays zero."""
    data = write_dataset(tmp_path, classes=6, frames=(5, 30))

    def noisy(frames: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return frames + rng.normal(size=frames.shape).astype(frames.dtype)

    runs = []
    for threads in (1, 6):
        loader = Loader(data, balanced(data), crop=Crop(frames=20), threads=threads, transform=noisy)
        runs.append([bits(list(loader)) for _ in range(2)])
    plain = list(Loader(data, balanced(data), crop=Crop(frames=20)))

    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]
    noise = [
        np.frombuffer(got[0], np.float32).reshape(batch.features.shape) - batch.features.numpy()
        for got, batch in zip(runs[0][0], plain, strict=True)
    ]
    seen = [
        place[:length].tobytes()
        for batch, added in zip(plain, noise, strict=True)
        for place, length in zip(added, batch.lengths.tolist(), strict=True)
    ]
    assert len(set(seen)) == len(seen), "no two places drew the same"
    for batch, added in zip(plain, noise, strict=True):
        for place, length in zip(added, batch.lengths.tolist(), strict=True):
            assert not place[length:].any()


def test_a_transform_that_changes_the_type_is_refused(tmp_path: Path) -> None:
    """The slot has the storage type; a float64 array would be rounded in silence."""
    data = write_dataset(tmp_path, classes=6)
    loader = Loader(data, balanced(data), crop=Crop(frames=10), transform=lambda frames, _: frames.astype(np.float64))

    with pytest.raises(TypeError, match=r"made float64\[10, 8\] out of float32\[10, 8\]"):
        next(iter(loader))


def test_threads_double_while_training_waits_and_twice_as_many_help() -> None:
    """A storage that scales to 8 readers ends at 8, one that is fast enough stays at 2."""
    scaling, fast = ThreadTuner(), ThreadTuner()
    nbytes = waited = 0.0
    while not scaling.settled:
        time.sleep(0.002)
        nbytes += 1e6 * min(scaling.threads, 8)
        waited += 0.002
        scaling.after_batch(waited, int(nbytes))
    while not fast.settled:
        time.sleep(0.001)
        fast.after_batch(0.0, 1)

    assert scaling.threads == 8
    assert fast.threads == 2


def test_tuned_threads_change_no_batch(tmp_path: Path) -> None:
    """Threads come and go while batches stay those of a fixed number."""
    data = write_dataset(tmp_path, classes=6)
    fixed = Loader(data, balanced(data), crop=Crop(frames=10))
    tuned = Loader(data, balanced(data), crop=Crop(frames=10), threads="auto")

    for _ in range(6):
        assert bits(list(tuned)) == bits(list(fixed))
    assert threading.active_count() == 1


def test_an_evaluation_has_no_substitutes(tmp_path: Path) -> None:
    """Several crops of one sample are averaged: half of another sample among them would be a wrong figure."""
    data = write_dataset(tmp_path, classes=6)
    sampler = EvaluationSampler(data.split("val"), batch_size=4)

    with pytest.raises(ConfigError, match="must not take its place"):
        Loader(data, sampler, crop=Crop(frames=8, where="even", count=3), on_corrupt="substitute")


def anonymous_kb() -> int:
    """Resident anonymous memory of this process."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1])


@pytest.mark.slow
def test_anonymous_memory_stays_flat_over_epochs_of_400_000_rows(tmp_path: Path) -> None:
    """Plans come and go, slots stay: from the fourth epoch to the twelfth the process grows by less than 8 MB."""
    small = write_dataset(tmp_path / "small", classes=6)
    rows, classes = 400_000, 10_000
    table = small.table.take(np.resize(small.split("train").rows, rows))
    label = np.arange(rows) * classes // rows
    columns = {name: table.column(name).to_pylist() for name in table.schema.names} | {
        "label": label,
        "class": [f"class {number}" for number in label.tolist()],
        "id": [str(row) for row in range(rows)],
    }
    names = tuple(f"class {number}" for number in range(classes))
    data = write_manifest(tmp_path, replace(small.info, classes=names, root=str(tmp_path / "small")), columns)
    loader = Loader(data, balanced(data, batch_size=512, class_weighting=0.0), crop=Crop(frames=10))

    memory = []
    for _ in range(12):
        for _ in loader:
            pass
        gc.collect()
        memory.append(anonymous_kb())

    assert memory[-1] - memory[3] < 8000
