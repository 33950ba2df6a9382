"""What goes wrong with feature files elsewhere, F1 to F19, and what happens here."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file

from pipeline.features import FeatureFolder, Reading
from pipeline.plan import CorpusConfig, read_corpus
from shards import Manifest
from shards.errors import DataError
from shards.reader import Reader
from tests.pipeline.corpus import build, write_corpus, write_workbook

GOOD = np.arange(12, dtype=np.float32).reshape(3, 4)


def read(path: Path, **options: Any) -> NDArray[Any]:
    files = FeatureFolder(path.parent, Reading(**options))
    return files.read(files.look_at(path.name)).copy()


def refused(path: Path, says: str, **options: Any) -> None:
    with pytest.raises(DataError, match=says):
        FeatureFolder(path.parent, Reading(**options)).look_at(path.name)


def test_f1_a_truncated_file_is_found_from_its_header_and_size(tmp_path: Path) -> None:
    """Expected and found bytes are named."""
    np.save(tmp_path / "x.npy", GOOD)
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-5])
    refused(tmp_path / "x.npy", r"truncated: float32 \(3, 4\) needs 176 bytes, found 171 \(-5\)")


def test_f2_extra_bytes_and_a_second_array_are_not_ignored(tmp_path: Path) -> None:
    """Numpy reads the first and says nothing."""
    with (tmp_path / "x.npy").open("wb") as file:
        np.save(file, GOOD)
        np.save(file, GOOD)
    assert np.array_equal(np.load(tmp_path / "x.npy"), GOOD)
    refused(tmp_path / "x.npy", r"overlong: float32 \(3, 4\) needs 176 bytes, found 352")


def test_f3_a_flipped_bit_cannot_be_seen_in_a_file_but_its_checksum_is_kept(tmp_path: Path) -> None:
    """So that a source which rots later is told from what was converted."""
    write_corpus(tmp_path, classes=1, items=2, samples=1)
    before = build(tmp_path, shards=tmp_path / "before").checksums.copy()
    path = tmp_path / "features/000-0-0.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    after = build(tmp_path, shards=tmp_path / "after").checksums

    assert (before != after).tolist() == [True, False]


def test_f4_objects_are_never_unpickled(tmp_path: Path) -> None:
    """No option changes that."""
    np.save(tmp_path / "x.npy", np.array([{}]), allow_pickle=True)
    refused(tmp_path / "x.npy", "would have to be unpickled and could run code")


def test_f5_a_pickle_under_another_name_is_not_an_array(tmp_path: Path) -> None:
    """The first bytes tell."""
    (tmp_path / "x.npy").write_bytes(b"\x80\x04K\x01.")
    refused(tmp_path / "x.npy", r"not a .npy file: begins with b'\\x80\\x04K")


def test_f6_column_order_is_turned_into_row_order(tmp_path: Path) -> None:
    """Copying the payload as it lies would shuffle the values."""
    np.save(tmp_path / "x.npy", np.asfortranarray(GOOD))
    assert read(tmp_path / "x.npy").tobytes() == GOOD.tobytes()


def test_f7_big_endian_is_turned_into_little_endian(tmp_path: Path) -> None:
    """Equal values are not equal bytes."""
    np.save(tmp_path / "x.npy", GOOD.astype(">f4"))
    assert read(tmp_path / "x.npy").tobytes() == GOOD.tobytes()


def test_f8_values_beyond_the_storage_type_stop_the_build(tmp_path: Path) -> None:
    """7e4 is infinite in float16, 1e39 in float32."""
    for dtype, value in (("float16", 7e4), ("float32", 1e39)):
        np.save(tmp_path / "x.npy", np.full((1, 1), value))
        with pytest.raises(
            DataError, match=rf"1 values do not fit in {dtype}, the largest is {value:.6g}".replace("+", r"\+")
        ):
            read(tmp_path / "x.npy", dtype=dtype)


def test_f9_nan_and_infinity_stop_the_build_unless_they_are_wanted(tmp_path: Path) -> None:
    """Large values whose sum overflows are neither."""
    np.save(tmp_path / "x.npy", np.full((9, 9), 3e38, np.float32))
    assert read(tmp_path / "x.npy").max() == np.float32(3e38)
    np.save(tmp_path / "x.npy", np.array([[1], [np.nan]], np.float32))
    assert np.isnan(read(tmp_path / "x.npy", non_finite="keep")).sum() == 1
    with pytest.raises(DataError, match="1 values are NaN or infinite, the first in frame 1"):
        read(tmp_path / "x.npy")


@pytest.mark.parametrize("shape", [(), (0, 4), (3, 0)])
def test_f10_an_array_without_a_frame_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Numpy loads all of these."""
    np.save(tmp_path / "x.npy", np.zeros(shape, np.float32))
    refused(tmp_path / "x.npy", "holds no frame; expected")


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_f11_all_versions_of_the_header_are_read(tmp_path: Path, version: tuple[int, int]) -> None:
    """Structured types, the reason for version 3, are refused."""
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, GOOD, version=version)
    assert np.array_equal(read(tmp_path / "x.npy"), GOOD)
    with pytest.warns(UserWarning, match="format 3.0"):
        np.save(tmp_path / "y.npy", np.zeros(3, [("ü\u4e00", "f4")]))
    refused(tmp_path / "y.npy", "expected one of float16, float32, float64, bfloat16")


def test_f12_nameless_two_byte_values_are_bfloat16_only_if_that_is_said(tmp_path: Path) -> None:
    """Numpy saves bfloat16 as V2."""
    array = GOOD.astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", array)

    refused(tmp_path / "x.npy", "if they are bfloat16.*say so with --dtype bfloat16")
    found = read(tmp_path / "x.npy", dtype="bfloat16")
    assert found.dtype == ml_dtypes.bfloat16
    assert found.tobytes() == array.tobytes()


def test_f13_a_member_of_an_npz_is_looked_at_without_unpacking_it(tmp_path: Path) -> None:
    """A memory map would be ignored; the member's own first bytes say enough."""
    np.savez_compressed(tmp_path / "x.npz", x=np.random.default_rng(0).normal(size=(40_000, 4)))
    files = FeatureFolder(tmp_path, Reading())
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[600_000] ^= 1
    (tmp_path / "x.npz").write_bytes(content)

    feature = files.look_at("x.npz")
    assert feature.frames == 40_000
    with pytest.raises(DataError, match=r"not a readable .npz file \(.*; export it again"):
        files.read(feature)


def test_f14_a_truncated_npz_is_refused(tmp_path: Path) -> None:
    """Its directory is at its end."""
    np.savez(tmp_path / "x.npz", x=GOOD)
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:-30])
    refused(tmp_path / "x.npz", r"not a readable .npz file \(File is not a zip file\)")


def test_f15_of_a_view_with_a_large_storage_only_the_view_is_written(tmp_path: Path) -> None:
    """72 MB for 2.4 GB, say."""
    torch.save(torch.zeros(100_000, 4)[7:10], tmp_path / "x.pt")
    assert FeatureFolder(tmp_path, Reading()).look_at("x.pt").nbytes == 48
    write_workbook(tmp_path / "i.xlsx", [("a", "i", "x")])
    corpus = read_corpus(CorpusConfig(index=tmp_path / "i.xlsx", features=tmp_path, pattern="{id}.pt"))
    assert "torch files that hold more than their array" in corpus.index.notes[0]
    assert "1, 'x.pt' has 1,60" in corpus.index.notes[0]


def test_f16_a_torch_file_is_read_without_running_code(tmp_path: Path) -> None:
    """Tensors and dicts of them; no option changes that."""
    torch.save({"x": torch.ones(3, 4), "meta": {"rate": 16000}}, tmp_path / "x.pt")
    assert np.array_equal(read(tmp_path / "x.pt"), np.ones((3, 4)))
    torch.save({"x": torch.ones(3, 4), "path": Path()}, tmp_path / "x.pt")
    refused(tmp_path / "x.pt", "holds more than tensors, and unpickling that could run code")


def test_f17_torch_files_from_before_1_6_are_read_without_a_map(tmp_path: Path) -> None:
    """They are no zips."""
    torch.save(torch.from_numpy(GOOD), tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    assert not zipfile.is_zipfile(tmp_path / "x.pt")
    assert np.array_equal(read(tmp_path / "x.pt"), GOOD)


def test_f18_no_hdf5_handle_outlives_its_read(tmp_path: Path) -> None:
    """A handle that crosses into another process gives wrong data."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = GOOD
    assert np.array_equal(read(tmp_path / "x.h5"), GOOD)
    assert h5py.h5f.get_obj_count(types=h5py.h5f.OBJ_FILE | h5py.h5f.OBJ_DATASET) == 0


def test_f19_a_truncated_safetensors_is_refused(tmp_path: Path) -> None:
    """In its header or its data."""
    save_file({"x": GOOD}, tmp_path / "x.safetensors")
    content = (tmp_path / "x.safetensors").read_bytes()
    for size in (4, 20, len(content) - 1):
        (tmp_path / "x.safetensors").write_bytes(content[:size])
        refused(tmp_path / "x.safetensors", r"not a readable .safetensors file \(")


def test_torch_is_not_loaded_for_files_that_do_without(tmp_path: Path) -> None:
    """Nor are the libraries of other formats: a worker stays small."""
    np.save(tmp_path / "x.npy", GOOD)
    script = (
        "import sys; from pathlib import Path; from pipeline.features import FeatureFolder, Reading\n"
        f"FeatureFolder(Path({str(tmp_path)!r}), Reading()).look_at('x.npy')\n"
        "print(sorted({'torch', 'h5py', 'safetensors', 'ml_dtypes'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_dataset_in_bfloat16_is_built_read_and_verified(tmp_path: Path) -> None:
    """From float32 files, rounded once; the ledger keeps what that has cost."""
    write_corpus(tmp_path, classes=2, items=2)
    data: Manifest = build(tmp_path, dtype="bfloat16")

    assert data.info.dtype == "bfloat16"
    with Reader(data) as reader:
        for row in range(len(data)):
            expected = np.load(tmp_path / f"features/{data.id(row)}.npy").astype(ml_dtypes.bfloat16)
            assert reader.read(row).tobytes() == expected.tobytes()
