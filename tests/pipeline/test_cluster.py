"""The same bytes from a cluster: a real scheduler and two real worker processes on loopback."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from rich.console import Console

from pipeline import build_shards
from shards import ConfigError, DataError
from tests.pipeline.corpus import config_for, contents, spoil, write_corpus

ROOT = Path(__file__).parents[2]


class Cluster:
    """A scheduler and workers; `address` is what the build is given."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "scheduler.json"
        self._scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-show", "--no-jupyter")
        while not self._file.exists() or not self._file.read_text():
            assert self._scheduler.poll() is None
            time.sleep(0.01)
        self.address: str = json.loads(self._file.read_text())["address"]
        self.workers: list[subprocess.Popen[bytes]] = []

    def add_workers(self, count: int) -> None:
        """Returns when the scheduler knows them all."""
        options = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--death-timeout", "30")
        self.workers += [self._start("worker", *options) for _ in range(count)]
        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(len(self.workers), timeout=60)

    def stop(self) -> None:
        for process in (*self.workers, self._scheduler):
            process.kill()
            process.wait()

    def _start(self, what: str, *options: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--scheduler-file", str(self._file)]
        return subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "DASK_DISTRIBUTED__DASHBOARD__LINK": ""},
        )


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers."""
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.add_workers(2)
        yield cluster
    finally:
        cluster.stop()


def build_on(cluster: Cluster, folder: Path, **options: Any) -> None:
    given = {"engine": "dask", "scheduler": cluster.address, "jobs": None, **options}
    build_shards(config_for(folder, **given), Console(quiet=True))


pytestmark = pytest.mark.filterwarnings("default")  # distributed's own are not ours to mend


@pytest.mark.slow
def test_a_cluster_writes_the_same_bytes_and_goes_on_where_it_was(cluster: Cluster, tmp_path: Path) -> None:
    """Also with other containers, casts, and bad files that are left out; a second run writes nothing."""
    write_corpus(tmp_path, classes=6, width=256, frames=300)
    spoil(tmp_path, "001-1-1")
    for number, options in enumerate(({}, {"format": "arrow", "dtype": "float16"}, {"format": "raw"})):
        given = {"shard_mb": 1, "max_rejects": 1, **options}
        local, there = tmp_path / f"local{number}", tmp_path / f"there{number}"
        build_shards(config_for(tmp_path, shards=local, **given), Console(quiet=True))

        build_on(cluster, tmp_path, shards=there, **given)

        assert contents(there) == contents(local)
        assert set((there / "ledger.jsonl").read_bytes().splitlines()) == set(
            (local / "ledger.jsonl").read_bytes().splitlines()
        )
        assert [path.name for path in there.iterdir() if path.name.startswith(".")] == [".lock"]
    times = {path: path.stat().st_mtime_ns for path in there.glob("*.tar")}
    build_on(cluster, tmp_path, shards=there, **given)
    assert times == {path: path.stat().st_mtime_ns for path in there.glob("*.tar")}


@pytest.mark.slow
@pytest.mark.parametrize("lines", [1, 5])
def test_the_shards_of_a_killed_worker_are_written_by_the_other(cluster: Cluster, tmp_path: Path, lines: int) -> None:
    """Killed with -9 while it writes."""
    write_corpus(tmp_path, classes=30, items=2, frames=60_000)
    local = tmp_path / "local"
    build_shards(config_for(tmp_path, shards=local, shard_mb=2), Console(quiet=True))
    ledger = tmp_path / "shards" / "ledger.jsonl"

    def kill() -> None:
        wait_for(lambda: ledger.exists() and ledger.read_bytes().count(b"\n") >= lines)
        cluster.workers[0].send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    build_on(cluster, tmp_path, shard_mb=2)
    killer.join()

    assert cluster.workers[0].wait() == -signal.SIGKILL
    assert contents(tmp_path / "shards") == contents(local)
    assert [path.name for path in (tmp_path / "shards").iterdir() if path.name.startswith(".")] == [".lock"]


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.001)


@pytest.mark.slow
def test_what_a_worker_cannot_import_is_said_with_its_name(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is written."""
    write_corpus(tmp_path)
    (tmp_path / "only_here.py").write_text("import numpy\n\n\ndef read(path):\n    return numpy.load(path)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        DataError, match=r"2 of 2 workers cannot write these shards; nothing was written:\n  worker tcp"
    ):
        build_on(cluster, tmp_path, features_from="only_here:read")
    assert not list((tmp_path / "shards").glob("*.tar"))


@pytest.mark.slow
def test_a_bad_file_stops_the_build_as_it_does_here(cluster: Cluster, tmp_path: Path) -> None:
    """The same sentence."""
    spoil(write_corpus(tmp_path), "001-1-1")
    errors: list[str] = []
    for run in (lambda: build_on(cluster, tmp_path), lambda: build_shards(config_for(tmp_path), Console(quiet=True))):
        shutil.rmtree(tmp_path / "shards", ignore_errors=True)
        with pytest.raises(DataError) as error:
            run()
        errors.append(str(error.value).rpartition(";")[0])  # how many shards were finished by then is chance
    assert errors[0] == errors[1]


@pytest.mark.slow
def test_a_scheduler_without_workers_and_one_that_is_not_there_are_errors(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In seconds, with what to do."""
    write_corpus(tmp_path)
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        with pytest.raises(ConfigError, match=r"has no workers; start some with `dask worker tcp://"):
            build_on(cluster, tmp_path)
    finally:
        cluster.stop()
    with pytest.raises(ConfigError, match=r"cannot be reached .*; start one with `dask scheduler`"):
        build_on(cluster, tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"engine": "dask"}, "engine dask without scheduler"),
        ({"engine": "dask", "scheduler": "tcp://x:1", "jobs": 2}, "jobs 2 with engine dask"),
        ({"scheduler": "tcp://x:1"}, "scheduler tcp://x:1 with engine local"),
    ],
)
def test_an_engine_gets_the_options_that_it_needs(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    """Refused before anything is read."""
    with pytest.raises(ConfigError, match=says):
        config_for(tmp_path, **{"jobs": None, **options})
