"""Bytes of samples and of crops, and what is said when they are not there."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest

from shards import DataError
from shards.reader import Reader
from tests.support.datasets import write_dataset


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_any_range_of_frames_is_the_slice_of_the_sample(tmp_path: Path) -> None:
    """Reading frames 3..10 gives what reading all and slicing gives, bit for bit."""
    data = write_dataset(tmp_path, frame_shape=(3, 5))
    with Reader(data) as reader:
        for row in range(len(data)):
            whole = reader.read(row)
            assert whole.shape == (data.frames[row], 3, 5)
            assert reader.read(row, 3, 7).tobytes() == whole[3:10].tobytes()
            assert reader.read(row, int(data.frames[row])).shape == (0, 3, 5)


def test_frames_outside_the_sample_are_refused(tmp_path: Path) -> None:
    """A range that leaves the sample never reads its neighbour."""
    data = write_dataset(tmp_path)
    frames = int(data.frames[0])

    with Reader(data) as reader, pytest.raises(DataError, match=rf"row 0 .*frames 1 to {frames + 1} of {frames}"):
        reader.read(0, 1, frames)


def test_a_shard_cut_short_is_named(tmp_path: Path) -> None:
    """The error names file, row, id and the byte where the file ends."""
    data = write_dataset(tmp_path)
    last = int(np.flatnonzero(data.shards == 0)[-1])
    os.truncate(data.shard_path(last), int(data.offsets[last]) + 10)

    with Reader(data) as reader, pytest.raises(DataError, match=rf"train-00000.tar: row {last} .*cut short"):
        reader.read(last)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    """The error has the path and what the system said."""
    data = write_dataset(tmp_path)
    data.shard_path(0).unlink()

    with Reader(data) as reader, pytest.raises(DataError, match=r"train-00000.tar.*No such file"):
        reader.read(0)


def test_closing_leaves_no_file_open(tmp_path: Path) -> None:
    """Files open at first use and are gone after the block."""
    data = write_dataset(tmp_path)
    before = open_files()
    with Reader(data) as reader:
        reader.read(0)
        assert open_files() == before + 1

    assert open_files() == before


def test_the_limit_of_open_files_is_raised_when_shards_need_it(tmp_path: Path) -> None:
    """The soft limit moves up by itself, as far as the hard limit lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        Reader(write_dataset(tmp_path))
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
