"""Reads past the page cache give the same bytes as reads through it, for any range."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards import BalancedSampler, Crop, DataError
from shards.direct import DirectReads
from shards.loader import Loader
from shards.reader import Reader
from shards.ring import Ring
from tests.support.datasets import write_dataset

SIZE = 3_000_000 + 123


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("direct") / "bytes"
    path.write_bytes(np.random.default_rng(0).bytes(SIZE))
    return path


@settings(max_examples=300, deadline=None)
@given(offset=st.integers(0, SIZE - 1), size=st.integers(1, 1_500_000), place=st.integers(0, 9000))
def test_any_range_into_any_address_is_the_bytes_of_the_file(file: Path, offset: int, size: int, place: int) -> None:
    """Whatever the offset, the length and where memory lies: the bytes asked for, and none beside them."""
    size = min(size, SIZE - offset)
    reads = DirectReads()
    descriptor = reads.open(file)
    assert descriptor is not None, "the tests' file system knows O_DIRECT"
    lent = Ring(1, place + size + 100).lend()
    assert lent is not None
    lent[:] = 7
    try:
        done = 0
        while done < size:
            got, asked = reads.fill(descriptor, lent[place + done : place + size].data, offset + done)
            assert got > 0
            assert asked >= got
            done += got
    finally:
        os.close(descriptor)

    with file.open("rb") as plain:
        plain.seek(offset)
        assert lent[place : place + size].tobytes() == plain.read(size)
    assert (lent[:place] == 7).all()
    assert (lent[place + size :] == 7).all()


@pytest.mark.parametrize("frame_shape", [(128,), (7,), (3, 5)])
@pytest.mark.parametrize("container", ["tar", "arrow"])
def test_batches_are_bitwise_those_of_buffered_reads(
    tmp_path: Path, frame_shape: tuple[int, ...], container: str
) -> None:
    """Frames that fill blocks and frames that do not: direct and buffered loaders give equal batches."""
    data = write_dataset(tmp_path, frames=(300, 900), frame_shape=frame_shape, container=container)  # type: ignore[arg-type]
    batches = [
        [
            (batch.features.numpy().tobytes(), batch.lengths.tolist())
            for batch in Loader(
                data,
                BalancedSampler(data.split("train"), batch_size=8, samples_per_class=2),
                crop=Crop(frames=500),
                io=io,  # type: ignore[arg-type]
            )
        ]
        for io in ("buffered", "direct")
    ]

    assert batches[0] == batches[1]


def test_a_file_that_is_cut_short_is_named(tmp_path: Path) -> None:
    """The end of the file within a block is the same error as through the page cache."""
    data = write_dataset(tmp_path, frames=(300, 300), frame_shape=(128,))
    last = int(np.flatnonzero(data.shards == 0)[-1])
    os.truncate(data.shard_path(last), int(data.offsets[last]) + 10_000)

    with Reader(data, io="direct") as reader, pytest.raises(DataError, match=rf"row {last} .*cut short"):
        reader.read(last)


def test_a_crop_asks_for_little_more_than_its_bytes(tmp_path: Path) -> None:
    """1,000 frames of 12,000: the bytes read are the crop's, and at most two blocks more."""
    data = write_dataset(tmp_path, classes=2, items=1, frames=(12_000, 12_000), frame_shape=(100,))
    crop = 1000 * data.info.frame_bytes
    out = np.empty(crop, np.uint8)

    with Reader(data) as reader:
        assert reader.read_into(0, 333, 1000, out.data) == crop
    with Reader(data, io="direct") as reader:
        assert crop <= reader.read_into(0, 333, 1000, out.data) <= crop + 2 * 4096


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm")
def test_a_file_system_without_direct_reads_is_read_through_the_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where opening with O_DIRECT is refused, one line says so, and the bytes are the same."""
    data = write_dataset(tmp_path)
    monkeypatch.setattr(DirectReads, "open", lambda *_: None)

    with caplog.at_level(logging.WARNING), Reader(data, io="direct") as reader, Reader(data) as plain:
        assert all(reader.read(row).tobytes() == plain.read(row).tobytes() for row in range(len(data)))
        assert reader.io == "buffered"

    assert [record.message for record in caplog.records] == [
        f"{tmp_path}: this file system has no O_DIRECT; reading through the page cache"
    ]


def test_auto_reads_past_the_cache_only_what_does_not_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small data is buffered; with less free memory than an epoch has bytes, reads are direct."""
    data = write_dataset(tmp_path, frames=(300, 900), frame_shape=(128,))
    sampler = BalancedSampler(data.split("train"), batch_size=4, samples_per_class=2)
    assert Loader(data, sampler, crop=Crop(frames=100), prefetch=1).io == "buffered"

    needed = 2 * 4 * 100 * data.info.frame_bytes
    monkeypatch.setattr("shards.memory.available_bytes", lambda: needed + 1000)

    assert Loader(data, sampler, crop=Crop(frames=100), prefetch=1).io == "direct"
