"""From files of any kind, anywhere below the folder, to the same dataset."""

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from pipeline.index import read_index
from shards.errors import DataError
from tests.pipeline.corpus import build, write_corpus, write_features, write_workbook


def rewrite(folder: Path, suffix: str) -> None:
    """The corpus's `.npy` files as files of another kind."""
    for path in (folder / "features").glob("*.npy"):
        array, target = np.load(path), path.with_suffix(suffix)
        match suffix:
            case ".npz":
                np.savez(target, mel=array)
            case ".pt" | ".pth":
                torch.save({"mel": torch.from_numpy(array), "rate": 16_000}, target)
            case ".safetensors":
                save_file({"mel": array}, target)
            case _:
                with h5py.File(target, "w") as file:
                    file["mel"] = array
        path.unlink()


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".pth", ".safetensors", ".h5", ".hdf5"])
def test_files_of_every_kind_give_the_same_samples(tmp_path: Path, suffix: str) -> None:
    """What is in the shards but for the files' names."""
    wanted = build(write_corpus(tmp_path), shards=tmp_path / "wanted")
    rewrite(tmp_path, suffix)

    data = build(tmp_path, pattern=f"{{id}}{suffix}", key="mel")

    assert data.fingerprint == wanted.fingerprint
    assert data.table.column("source")[0].as_py() == f"{data.id(0)}{suffix}"


def test_the_pattern_leads_into_nested_folders(tmp_path: Path) -> None:
    """By class and item; files that no row names are counted."""
    rows = [("rock", "a", "1"), ("rock", "b", "1"), ("jazz", "a", "1.npy"), ("jazz", "b", "2")]
    ids = ["rock/a/1", "rock/b/1", "jazz/a/1", "jazz/c/2", "stray"]
    path, features = write_workbook(tmp_path / "i.xlsx", rows), write_features(tmp_path / "f", ids)

    index = read_index(path, features, pattern="{cls}/{item}/{id}.npy")

    assert [row.path for row in index.rows] == ["rock/a/1.npy", "rock/b/1.npy", "jazz/a/1.npy"]
    assert [str(reject) for reject in index.rejects] == [f"index!5: no file {features}/jazz/b/2.npy"]
    assert index.unused == ("jazz/c/2.npy", "stray.npy")


def test_a_pattern_may_leave_the_suffix_to_the_id(tmp_path: Path) -> None:
    """A folder is no file then."""
    features = write_features(tmp_path / "f", ["x", "sub/y"])
    path = write_workbook(tmp_path / "i.xlsx", [("a", "i", "x.npy"), ("a", "i", "sub")])
    index = read_index(path, features, pattern="{id}")
    assert [row.path for row in index.rows] == ["x.npy"]
    assert "no file" in index.rejects[0].reason


def test_a_suffix_that_nobody_reads_is_said_once_with_what_there_is(tmp_path: Path) -> None:
    """Before anything is written."""
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "x.wav").write_bytes(b"RIFF")
    write_workbook(tmp_path / "index.xlsx", [("a", "i", "x")])
    with pytest.raises(Exception, match=r"no reader for files that end in '.wav'; there are .npy, .npz"):
        build(tmp_path, features=tmp_path / "f", pattern="{id}.wav")


def test_a_hook_reads_files_of_any_suffix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the worker processes; lengths need not be known before."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "my_hook.py").write_text(
        "import numpy as np\n\ndef read(path):\n    return np.fromfile(path, np.float32).reshape(-1, 4)\n"
    )
    wanted = build(write_corpus(tmp_path), shards=tmp_path / "wanted")
    for path in (tmp_path / "features").glob("*.npy"):
        np.load(path).tofile(path.with_suffix(".f32"))
        path.unlink()

    data = build(tmp_path, pattern="{id}.f32", features_from="my_hook:read")

    assert data.fingerprint == wanted.fingerprint
    sys.modules.pop("my_hook", None)


def test_a_hook_that_fails_on_one_file_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the function raised."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sour_hook.py").write_text(
        "import numpy as np\n\ndef read(path):\n    if '001-1-1' in path.name:\n        raise ValueError('sour')\n"
        "    return np.load(path)\n"
    )
    with pytest.raises(DataError, match=r"001-1-1.npy: sour_hook:read failed: ValueError: sour"):
        build(write_corpus(tmp_path), features_from="sour_hook:read")
    sys.modules.pop("sour_hook", None)
