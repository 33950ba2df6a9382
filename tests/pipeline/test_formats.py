"""Every format that a feature file may have: any array comes out of it as it went in."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from pipeline.features import FeatureFolder, Reading
from shards.errors import ConfigError, DataError

Arrays = dict[str, NDArray[Any]]


def write_npy(path: Path, arrays: Arrays) -> None:
    [array] = arrays.values()
    np.save(path, array)


def write_npz(path: Path, arrays: Arrays) -> None:
    np.savez(path, **arrays)  # pyright: ignore[reportArgumentType]


def write_compressed(path: Path, arrays: Arrays) -> None:
    np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]


def write_torch(path: Path, arrays: Arrays, *, legacy: bool = False) -> None:
    tensors = {
        name: torch.from_numpy(a.view(np.int16)).view(torch.bfloat16)
        if a.dtype == ml_dtypes.bfloat16
        else torch.from_numpy(a)
        for name, a in arrays.items()
    }
    torch.save(tensors, path, _use_new_zipfile_serialization=not legacy)


def write_legacy_torch(path: Path, arrays: Arrays) -> None:
    write_torch(path, arrays, legacy=True)


def write_hdf5(path: Path, arrays: Arrays) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(f"group/{name}", data=array)


WRITERS: dict[str, Callable[[Path, Arrays], None]] = {
    "x.npy": write_npy,
    "x.npz": write_npz,
    "compressed.npz": write_compressed,
    "x.pt": write_torch,
    "legacy.pth": write_legacy_torch,
    "x.safetensors": lambda path, arrays: save_file(arrays, path),
    "x.h5": write_hdf5,
}


def read(path: Path, **options: Any) -> NDArray[Any]:
    """The file's array, looked at and read as the build does it."""
    files = FeatureFolder(path.parent, Reading(**options))
    feature = files.look_at(path.name)
    array = files.read(feature)
    assert (feature.frames, feature.nbytes, feature.form.frame_shape) == (len(array), array.nbytes, array.shape[1:])
    assert array.flags.c_contiguous
    return array.copy()


@pytest.mark.parametrize("name", WRITERS)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    dtype=st.sampled_from(["<f2", "<f4", "<f8"]),
    seed=st.integers(0, 99),
)
def test_any_array_comes_out_of_any_format_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, name: str, shape: tuple[int, ...], dtype: str, seed: int
) -> None:
    """One to four axes; what is looked at first is what is read."""
    array = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    path = tmp_path_factory.mktemp("formats") / name
    WRITERS[name](path, {"only": array})

    found = read(path)

    assert found.dtype == array.dtype
    assert found.shape == shape
    assert found.tobytes() == array.tobytes()


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "x.npy"])
def test_of_several_arrays_the_one_with_the_key_is_read(tmp_path: Path, name: str) -> None:
    """Without a key there must be one; those there are get listed."""
    path = tmp_path / name
    arrays = {"mel": np.ones((3, 4), np.float32), "pitch": np.zeros((3, 1), np.float32)}
    WRITERS[name](path, arrays)
    prefix = "group/" if name == "x.h5" else ""

    assert np.array_equal(read(path, key=f"{prefix}mel"), arrays["mel"])
    with pytest.raises(DataError, match=rf"holds 2 \w+s, expected one: {prefix}mel, {prefix}pitch; name it with --key"):
        read(path)
    with pytest.raises(DataError, match=rf"holds no \w+ 'mfcc' but {prefix}mel, {prefix}pitch; name one of them"):
        read(path, key="mfcc")


@pytest.mark.parametrize("name", ["x.pt", "legacy.pth", "x.safetensors"])
def test_bfloat16_is_kept_where_the_format_knows_it(tmp_path: Path, name: str) -> None:
    """Its bits come through, in whatever type numpy calls them."""
    array = np.random.default_rng(0).normal(size=(5, 3)).astype(ml_dtypes.bfloat16)
    WRITERS[name](tmp_path / name, {"x": array})

    found = read(tmp_path / name)

    assert found.dtype == ml_dtypes.bfloat16
    assert found.tobytes() == array.tobytes()


def test_a_bare_tensor_is_read_and_of_a_view_only_the_view(tmp_path: Path) -> None:
    """Torch saves the whole storage behind a view; four rows of it are four rows here."""
    large = torch.randn(10_000, 8)
    torch.save(large[100:104], tmp_path / "x.pt")

    assert (tmp_path / "x.pt").stat().st_size > large.nbytes
    assert np.array_equal(read(tmp_path / "x.pt"), large[100:104].numpy())


@pytest.mark.parametrize("name", WRITERS)
def test_time_is_stored_first_wherever_it_was(tmp_path: Path, name: str) -> None:
    """`--time-axis 1` for (width, time); -1 is the last one; an axis that is not there is named."""
    array = np.random.default_rng(0).normal(size=(4, 9, 2)).astype(np.float32)
    path = tmp_path / name
    WRITERS[name](path, {"x": array})

    assert np.array_equal(read(path, time_axis=1), np.moveaxis(array, 1, 0))
    assert np.array_equal(read(path, time_axis=-1), np.moveaxis(array, -1, 0))
    with pytest.raises(DataError, match=r"shape \(4, 9, 2\) has no axis 3; give the axis of time as --time-axis"):
        read(path, time_axis=3)


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "x.npy"])
@given(data=st.data())
def test_a_damaged_file_of_any_format_is_one_error_or_an_array(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """Whatever its library raises; never anything else."""
    path = tmp_path_factory.mktemp("damaged") / name
    WRITERS[name](path, {"x": np.arange(60, dtype=np.float32).reshape(20, 3)})
    content = bytearray(path.read_bytes())
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=3)
    ):
        content[place] = value
    path.write_bytes(content[: data.draw(st.one_of(st.none(), st.integers(0, len(content))))])

    try:
        found = read(path, non_finite="keep", dtype="float32")
    except DataError:
        return
    assert found.size > 0


def test_of_a_suffix_that_nobody_reads_all_that_are_read_get_listed(tmp_path: Path) -> None:
    """And what to do about it."""
    (tmp_path / "x.wav").write_bytes(b"RIFF")
    with pytest.raises(
        ConfigError, match=r"no reader for files that end in '.wav'; there are .npy, .npz.*--features-from"
    ):
        read(tmp_path / "x.wav")


def test_a_package_adds_a_format_with_one_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point: a suffix and a function path -> array. A memory map is not read while it is looked at."""
    (tmp_path / "htk.py").write_text(
        "import numpy as np\ndef read(path):\n    return np.memmap(path, '>f4', 'r', 12).reshape(-1, 3)\n"
    )
    (tmp_path / "htk-1.dist-info").mkdir()
    (tmp_path / "htk-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: htk\nVersion: 1\n")
    (tmp_path / "htk-1.dist-info/entry_points.txt").write_text("[pipeline.features]\n.mfc = htk:read\n")
    monkeypatch.syspath_prepend(tmp_path)
    array = np.arange(12, dtype=">f4").reshape(4, 3)
    (tmp_path / "x.mfc").write_bytes(bytes(12) + array.tobytes())

    assert np.array_equal(read(tmp_path / "x.mfc"), array)
    (tmp_path / "short.mfc").write_bytes(bytes(14))
    with pytest.raises(DataError, match=r"htk:read failed: ValueError"):
        read(tmp_path / "short.mfc")


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("evil-was-here",)


def pickled_npy(path: Path) -> None:
    np.save(path, np.array([Evil()], dtype=object), allow_pickle=True)


def pickled_npz(path: Path) -> None:
    np.savez(path, x=np.array([Evil()], dtype=object))


def pickled_torch(path: Path) -> None:
    torch.save({"x": Evil()}, path)


def legacy_pickled_torch(path: Path) -> None:
    torch.save(Evil(), path, _use_new_zipfile_serialization=False)


def external_link(path: Path) -> None:
    write_hdf5(path.parent / "other.h5", {"secret": np.ones((3, 4), np.float32)})
    with h5py.File(path, "w") as file:
        file["x"] = h5py.ExternalLink(str(path.parent / "other.h5"), "/group/secret")


def external_storage(path: Path) -> None:
    (path.parent / "secret").write_bytes(bytes(48))
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (3, 4), np.float32, external=[(str(path.parent / "secret"), 0, 48)])


def virtual_dataset(path: Path) -> None:
    write_hdf5(path.parent / "other.h5", {"secret": np.ones((3, 4), np.float32)})
    layout = h5py.VirtualLayout((3, 4), np.float32)
    layout[:] = h5py.VirtualSource(str(path.parent / "other.h5"), "group/secret", (3, 4))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


def npz_bomb(path: Path) -> None:
    np.savez_compressed(path, x=np.zeros((1 << 18, 128), np.float32))


def expanded_tensor(path: Path) -> None:
    torch.save(torch.zeros(1).expand(1 << 40, 8), path)


def unwritten_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 30, 8), np.float32, chunks=(1024, 8))


def short_member(path: Path) -> None:
    """A zip member whose npy header promises more than the member holds."""
    header = json.dumps({"descr": "<f4", "fortran_order": False, "shape": [1]}).replace("[1]", "(999999999,)")
    header = header.replace("false", "False")
    with zipfile.ZipFile(path, "w") as archive:
        head = header.encode().ljust(117) + b"\n"
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [
        ("x.npy", pickled_npy, "holds Python objects, which would have to be unpickled and could run code"),
        ("x.npz", pickled_npz, "holds Python objects, which would have to be unpickled and could run code"),
        ("x.pt", pickled_torch, "holds more than tensors, and unpickling that could run code"),
        ("x.pth", legacy_pickled_torch, "holds more than tensors, and unpickling that could run code"),
        ("x.h5", external_link, "holds no dataset"),
        ("x.h5", external_storage, "keeps its values in other files, which are not read"),
        ("x.h5", virtual_dataset, "keeps its values in other files, which are not read"),
        ("x.npz", npz_bomb, r"unpacks to 134,217,728 bytes from 13\d,\d\d\d"),
        ("x.pt", expanded_tensor, r"unpacks to 35,184,372,088,832 bytes from"),
        ("x.h5", unwritten_hdf5, r"unpacks to 34,359,738,368 bytes from"),
        ("x.npz", short_member, r"truncated: float32 \(999999999,\) needs"),
    ],
)
def test_what_would_run_code_read_elsewhere_or_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[Path], None], says: str
) -> None:
    """At the first look, before anything is written."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path / name)

    with pytest.raises(DataError, match=says):
        FeatureFolder(tmp_path, Reading()).look_at(name)
    assert not (tmp_path / "evil-was-here").exists()


def test_a_link_out_of_the_feature_folder_is_refused_and_one_within_is_not(tmp_path: Path) -> None:
    """Neither a file nor a folder may lead out; the feature folder itself may be a link."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "features").mkdir()
    np.save(tmp_path / "outside/x.npy", np.ones((2, 2), np.float32))
    np.save(tmp_path / "features/y.npy", np.ones((2, 2), np.float32))
    (tmp_path / "features/x.npy").symlink_to(tmp_path / "outside/x.npy")
    (tmp_path / "features/deep").symlink_to(tmp_path / "outside")
    (tmp_path / "features/z.npy").symlink_to("y.npy")
    (tmp_path / "linked").symlink_to("features")
    files = FeatureFolder(tmp_path / "linked", Reading())

    assert files.look_at("z.npy").frames == 2
    for path in ("x.npy", "deep/x.npy", "../outside/x.npy"):
        with pytest.raises(DataError, match=r"a link that leads out of the feature folder, to .*/outside/x.npy"):
            files.look_at(path)
