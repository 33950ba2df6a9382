"""A file is there whole or not at all, whatever ends its writer."""

import subprocess
import sys
from pathlib import Path

import pytest

from shards.atomic import atomic_file, remove_leftovers


def test_a_finished_file_takes_its_name(tmp_path: Path) -> None:
    """After the block the name holds the bytes and nothing else is in the folder."""
    with atomic_file(tmp_path / "a") as file:
        file.write(b"new")
        assert not (tmp_path / "a").exists()

    assert (tmp_path / "a").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_error_keeps_what_was_there(tmp_path: Path) -> None:
    """The old bytes stay and the half-written ones go."""
    (tmp_path / "a").write_bytes(b"old")

    with pytest.raises(RuntimeError), atomic_file(tmp_path / "a") as file:
        file.write(b"half")
        raise RuntimeError

    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_killed_writer_leaves_only_a_hidden_file(tmp_path: Path) -> None:
    """After kill -9 in mid-write: the name is not there, and `remove_leftovers` removes what is."""
    code = (
        "import os, signal, sys; from pathlib import Path; from shards.atomic import atomic_file\n"
        "with atomic_file(Path(sys.argv[1]) / 'a') as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)

    assert not (tmp_path / "a").exists()
    assert len(remove_leftovers(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []
