"""What a feature file may be, and what is said of one that is not."""

import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy

from pipeline.features import FeatureFolder, Form, Reading
from pipeline.formats.npy import read_header
from pipeline.scan import common_form, look_at_all
from pipeline.values import check_finite
from shards.errors import DataError
from shards.schema import storage_dtype

GOOD = np.arange(12, dtype=np.float32).reshape(3, 4)


def read(path: Path, **options: Any) -> Any:
    """The file's array, looked at and read as the build does it."""
    files = FeatureFolder(path.parent, Reading(**options))
    return files.read(files.look_at(path.name))


@pytest.mark.parametrize("dtype", ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (2, 3, 4)])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_any_plain_float_array_comes_out_little_endian_and_row_by_row(
    tmp_path: Path, dtype: str, order: Any, shape: tuple[int, ...], version: tuple[int, int]
) -> None:
    """Byte order, memory order and header version are the file's own business; values are kept bit for bit."""
    array = np.asarray(np.random.default_rng(0).normal(size=shape), dtype, order=order)
    with (tmp_path / "x.npy").open("wb") as file:
        npy.write_array(file, array, version=version)

    found = read(tmp_path / "x.npy")

    assert found.dtype == storage_dtype(array.dtype.name)
    assert found.flags.c_contiguous
    assert found.tobytes() == array.astype(array.dtype.newbyteorder("<")).tobytes(order="C")


def test_a_header_longer_than_a_page_is_read_whole(tmp_path: Path) -> None:
    """Our own members have such headers, and may be fed back."""
    np.save(tmp_path / "x.npy", GOOD)
    data = (tmp_path / "x.npy").read_bytes()
    header = data[10:128].rstrip() + b" " * 5000 + b"\n"
    (tmp_path / "x.npy").write_bytes(data[:8] + len(header).to_bytes(2, "little") + header + data[128:])

    assert np.array_equal(read(tmp_path / "x.npy"), GOOD)


def saved(array: Any) -> Callable[[Path], None]:
    return lambda path: np.save(path, array, allow_pickle=True)


def bytes_of(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        np.save(path, GOOD)
        path.write_bytes(change(path.read_bytes()))

    return write


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (bytes_of(lambda b: b""), "an empty file"),
        (bytes_of(lambda b: b"PK\x03\x04 zip and more"), r"not a .npy file: begins with b'PK"),
        (bytes_of(lambda b: b[:50]), r"truncated inside its header: expected at least 128 bytes, found 50"),
        (bytes_of(lambda b: b[:-1]), r"truncated: float32 \(3, 4\) needs 176 bytes, found 175 \(-1\)"),
        (bytes_of(lambda b: b + b), r"overlong: float32 \(3, 4\) needs 176 bytes, found 352 \(\+176\)"),
        (bytes_of(lambda b: b[:6] + b"\x09" + b[7:]), "unknown version 9"),
        (bytes_of(lambda b: b[:6]), "truncated inside its header: found 6 bytes"),
        (bytes_of(lambda b: b.replace(b"'descr'", b"'desc\0'")), "a damaged .npy header"),
        (bytes_of(lambda b: b.replace(b"(3, 4)", b"(3,-4)")), r"shape \(3, -4\) holds no frame"),
        (saved(np.array([{}, {}])), "holds Python objects, which would have to be unpickled"),
        (saved(np.zeros(3, [("a", "f4")])), "expected one of float16, float32, float64, bfloat16"),
        (
            saved(np.zeros((3, 4), np.int16)),
            "dtype int16; choose the floating-point type to store them in with --dtype",
        ),
        (saved(np.zeros((3, 4), ml_dtypes.bfloat16)), "two-byte values without a type.*say so with --dtype bfloat16"),
        (saved(np.float32(1)), r"shape \(\) holds no frame"),
        (saved(np.zeros((0, 4), np.float32)), r"shape \(0, 4\) holds no frame"),
        (saved(np.zeros((3, 0), np.float32)), r"shape \(3, 0\) holds no frame"),
    ],
)
def test_what_is_wrong_with_a_file_is_seen_from_its_header_and_size(
    tmp_path: Path, make: Callable[[Path], None], says: str
) -> None:
    """Nothing is unpickled, nothing read beyond the first page; sizes are named."""
    make(tmp_path / "x.npy")

    with pytest.raises(DataError, match=says):
        FeatureFolder(tmp_path, Reading()).look_at("x.npy")


@given(st.data())
def test_no_damage_to_a_header_gets_past_the_check_unnoticed_or_unnamed(data: st.DataObject) -> None:
    """Any bytes changed, any length cut: an array of the right size, or a DataError."""
    stream = io.BytesIO()
    np.save(stream, GOOD)
    content = bytearray(stream.getvalue())
    changes = st.tuples(st.integers(0, 127), st.one_of(st.sampled_from(b"()'{}<>,:0123 f\n"), st.integers(0, 255)))
    for place, value in data.draw(st.lists(changes, max_size=4)):
        content[place] = value
    del content[data.draw(st.sampled_from([0, 5, 11, 100, 150, 176])) or 176 :]

    with suppress(DataError):
        header = read_header(bytes(content), len(content))
        assert header.offset + np.prod(header.shape) * header.dtype.itemsize == len(content)


def test_headers_come_in_order_with_faults_in_their_places(tmp_path: Path) -> None:
    """A missing file is a fault like any other; one fault hides no other."""
    paths = [f"{number:03d}.npy" for number in range(150)]
    for number, path in enumerate(paths):
        if number % 7:
            np.save(tmp_path / path, np.zeros((number, 2), np.float32))

    found = look_at_all(tmp_path, paths, Reading())

    for number, feature in enumerate(found):
        if number % 7:
            assert not isinstance(feature, DataError)
            assert (feature.path, feature.frames, feature.nbytes) == (paths[number], number, number * 8)
        else:
            assert isinstance(feature, DataError)
            assert "No such file" in str(feature)


def test_what_is_not_a_regular_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    """Opening a pipe waits for a writer, reading a device may never end: neither may hold up a build."""
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "device.npy").symlink_to("/dev/zero")
    for found in look_at_all(tmp_path, ["pipe.npy", "folder.npy", "device.npy"], Reading()):
        assert "not a regular file" in str(found)


def test_a_file_that_becomes_a_pipe_after_its_header_was_read_is_refused(tmp_path: Path) -> None:
    """The build opens a file a second time, hours later perhaps."""
    path = tmp_path / "x.npy"
    np.save(path, GOOD)
    files = FeatureFolder(tmp_path, Reading())
    feature = files.look_at("x.npy")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="not a regular file"):
        files.read(feature)


def test_the_form_that_most_files_have_is_the_datasets_in_any_order(tmp_path: Path) -> None:
    """So the odd files are named, wherever they stand in the index."""
    for name, width in (("a", 3), ("b", 4), ("c", 4)):
        np.save(tmp_path / f"{name}.npy", np.zeros((2, width), np.float32))
    for order in ("abc", "bac", "cba"):
        form = common_form(look_at_all(tmp_path, [f"{name}.npy" for name in order], Reading()))
        assert form == Form("float32", (4,))
        assert str(form) == "float32 (frames, 4)"
    assert common_form([]) is None


def test_a_file_that_changes_after_its_header_was_read_is_refused(tmp_path: Path) -> None:
    """Size and time are compared when the data is read."""
    path = tmp_path / "x.npy"
    np.save(path, GOOD)
    files = FeatureFolder(tmp_path, Reading())
    feature = files.look_at("x.npy")
    os.utime(path, ns=(0, feature.mtime_ns + 1))

    with pytest.raises(DataError, match="changed while the shards were being built"):
        files.read(feature)


@given(
    dtype=st.sampled_from(["<f2", "<f4", "<f8"]),
    bad=st.lists(st.tuples(st.integers(0, 99), st.sampled_from([np.nan, np.inf, -np.inf])), max_size=3),
    scale=st.sampled_from([1.0, 6e4]),
)
def test_nan_and_infinity_are_found_and_nothing_else_is(dtype: str, bad: list[tuple[int, float]], scale: float) -> None:
    """Large values whose sums would overflow are no infinities."""
    array = np.full((25, 4), scale, dtype)
    for place, value in bad:
        array.reshape(-1)[place] = value
    if not bad:
        check_finite(array)
        return
    places = {place for place, _ in bad}
    with pytest.raises(
        DataError, match=rf"^{len(places)} values are NaN or infinite, the first in frame {min(places) // 4};"
    ):
        check_finite(array)


def test_non_finite_values_are_kept_bit_for_bit_on_request(tmp_path: Path) -> None:
    """A policy, not an accident."""
    array = np.array([[np.nan, 1], [np.inf, 2]], np.float32)
    np.save(tmp_path / "x.npy", array)

    assert read(tmp_path / "x.npy", non_finite="keep").tobytes() == array.tobytes()
    with pytest.raises(DataError, match="2 values are NaN or infinite, the first in frame 0"):
        read(tmp_path / "x.npy")
