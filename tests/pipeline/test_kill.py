"""kill -9 at any moment of a build, and then the same command again."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pipeline.ledger import locked
from tests.pipeline.corpus import build, contents, write_corpus
from tests.pipeline.test_crash import start, wait_until_gone


def lines(folder: Path) -> set[bytes]:
    """The ledger's lines, whose order is that in which shards were finished."""
    return set((folder / "ledger.jsonl").read_bytes().splitlines())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_twenty_kills_at_random_moments_change_no_byte(tmp_path: Path) -> None:
    """From before the first file to after the last; every file of the folder is as in an unbroken build."""
    write_corpus(tmp_path, classes=40, items=2, frames=100_000)
    build(tmp_path, shards=tmp_path / "whole", shard_mb=4, jobs=2)
    began = time.monotonic()
    process = start(tmp_path)
    process.communicate()
    assert process.returncode == 0
    length = time.monotonic() - began
    for path in sorted((tmp_path / "shards").iterdir(), reverse=True):
        path.unlink()
    rng = random.Random(0)
    killed = 0
    while killed < 20:
        process = start(tmp_path)
        try:
            process.communicate(timeout=rng.uniform(0, 1.1 * length))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
            process.communicate()
        wait_until_gone(process.pid)
        if (tmp_path / "shards" / "dataset.json").exists():
            assert contents(tmp_path / "shards") == contents(tmp_path / "whole")
            for path in sorted((tmp_path / "shards").glob("*"), reverse=True):
                path.unlink()  # and from the start

    process = start(tmp_path)
    _, errors = process.communicate()

    assert process.returncode == 0, errors
    assert contents(tmp_path / "shards") == contents(tmp_path / "whole")
    assert lines(tmp_path / "shards") == lines(tmp_path / "whole")
    assert [path.name for path in (tmp_path / "shards").iterdir() if path.name.startswith(".")] == [".lock"]


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    """Not with its workers, and no file is left that somebody would have to delete."""
    write_corpus(tmp_path, classes=20, items=2, frames=100_000)
    process = start(tmp_path)
    while not (tmp_path / "shards" / "ledger.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    with locked(tmp_path / "shards"):
        pass
    wait_until_gone(process.pid)
    process.communicate()
