"""What is left when a build is killed, interrupted, or runs out of disk: real processes, real signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from pipeline.features import Form, Reading
from pipeline.index import read_index
from pipeline.layout import lay_out
from pipeline.plan import make_plan
from pipeline.pool import ShardPool
from pipeline.scan import look_at_all
from pipeline.shard import Task, write_shard
from pipeline.verify import VerifyConfig, verify_shards
from shards import DataError
from tests.pipeline.corpus import build, config_for, contents, write_corpus

ROOT = Path(__file__).parents[2]


def start(folder: Path, *before: str) -> "subprocess.Popen[str]":
    """A build of the corpus in `folder` by the command, two processes, in a process group of its own."""
    command = [*before, sys.executable, "-m", "pipeline", "build", "--jobs", "2", "--shard_mb", "4"]
    for option, name in (("--index", "index.xlsx"), ("--features", "features"), ("--shards", "shards")):
        command += [option, str(folder / name)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Look every millisecond until it holds; the build must still be running then."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)


def lines_of(folder: Path) -> int:
    ledger = folder / "shards" / "ledger.jsonl"
    return ledger.read_bytes().count(b"\n") if ledger.exists() else 0


def workers_of(parent: int) -> list[int]:
    """Processes of the pool that `parent` runs (its resource tracker is not one)."""
    found: list[int] = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        # Threads and processes may end while they are looked at.
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in (task / "children").read_text().split():
                with suppress(FileNotFoundError, ProcessLookupError):
                    if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.append(int(child))
    return found


def wait_until_gone(group: int) -> None:
    """Return when no process of the group is left; one that stays runs into the test's time limit."""
    with suppress(ProcessLookupError):
        while True:
            os.killpg(group, 0)
            time.sleep(0.001)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some forty shards of 4 MiB, and what a build that nobody disturbs makes of them."""
    folder = write_corpus(tmp_path_factory.mktemp("corpus"), classes=40, items=2, frames=100_000)
    build(folder, shards=folder / "whole", shard_mb=4, jobs=2)
    return folder


@pytest.fixture
def folder(corpus: Path, tmp_path: Path) -> Path:
    """The corpus with shards still to be made."""
    for name in ("index.xlsx", "features", "whole"):
        (tmp_path / name).symlink_to(corpus / name)
    return tmp_path


def assert_nothing_half(folder: Path) -> None:
    """No dataset, and every visible shard is whole: byte for byte as in the undisturbed build."""
    assert not (folder / "shards" / "dataset.json").exists()
    for path in (folder / "shards").glob("*.tar"):
        assert path.read_bytes() == (folder / "whole" / path.name).read_bytes()


@pytest.mark.parametrize("lines", [1, 3, 10])
def test_a_killed_build_run_again_gives_the_same_bytes(folder: Path, lines: int) -> None:
    """Killed with -9 after some shards; the workers go too; the second run keeps what was whole."""
    process = start(folder)
    wait_for(lambda: lines_of(folder) >= lines, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    wait_until_gone(process.pid)

    assert_nothing_half(folder)
    kept = {path.name: path.stat().st_mtime_ns for path in (folder / "shards").glob("*.tar")}
    process = start(folder)
    _, errors = process.communicate()

    assert process.returncode == 0, errors
    assert contents(folder / "shards") == contents(folder / "whole")
    assert not list((folder / "shards").glob(".*.tmp-*"))
    times = {path.name: path.stat().st_mtime_ns for path in (folder / "shards").glob("*.tar")}
    assert sum(kept.get(name) == at for name, at in times.items()) >= lines


def test_a_build_survives_the_death_of_a_worker(folder: Path) -> None:
    """The shards that were being written are written again, on new processes."""
    process = start(folder)
    wait_for(lambda: lines_of(folder) >= 1 and bool(workers_of(process.pid)), process)
    os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    _, errors = process.communicate()

    assert process.returncode == 0, errors
    assert contents(folder / "shards") == contents(folder / "whole")


def test_a_shard_whose_process_dies_three_times_is_named(tmp_path: Path) -> None:
    """Not tried for ever."""
    write_corpus(tmp_path, classes=1, items=1)
    plan = make_plan(config_for(tmp_path))
    # A pipe that nobody writes to holds the process at its first read until it is killed.
    for row in plan.index.rows:
        (tmp_path / "features" / row.path).unlink()
        os.mkfifo(tmp_path / "features" / row.path)
    [shard] = plan.layout.shards
    (tmp_path / "shards").mkdir()
    task = Task(
        folder=tmp_path / "shards",
        features=tmp_path / "features",
        spare=0,
        reading=Reading(),
        shard=shard,
    )
    stop = threading.Event()

    def kill_workers() -> None:
        while not stop.is_set():
            for worker in workers_of(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            time.sleep(0.01)

    killer = threading.Thread(target=kill_workers)
    killer.start()
    try:
        with pytest.raises(DataError, match=r"the process writing train-00000.tar was killed 3 times"):
            ShardPool([task], done=lambda _task, _written: None, progress=lambda _read: None).run(1)
    finally:
        stop.set()
        killer.join()
    assert not list((tmp_path / "shards").glob("*.tar"))


def test_an_interrupted_build_says_how_to_go_on_and_leaves_no_process(folder: Path) -> None:
    """Ctrl-C reaches parent and workers alike; no traceback, no hidden file, and the next run finishes."""
    process = start(folder)
    wait_for(lambda: lines_of(folder) >= 1, process)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()

    assert process.returncode == 130
    assert errors == "interrupted; run the same command again to go on\n"
    wait_until_gone(process.pid)
    assert_nothing_half(folder)
    assert not list((folder / "shards").glob(".*.tmp-*"))
    process = start(folder)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert contents(folder / "shards") == contents(folder / "whole")


def test_a_disk_that_fills_up_leaves_no_half_shard(folder: Path) -> None:
    """No file may pass 2 MB here, which the kernel reports as it does a full disk or quota."""
    process = start(folder, "bash", "-c", 'ulimit -f 2000 && exec "$@"', "bash")
    _, errors = process.communicate()

    assert process.returncode == 2
    assert "the disk is full: " in errors
    assert "finished shards are kept; make room and run the same build again" in errors
    assert "Traceback" not in errors
    assert sorted(path.name for path in (folder / "shards").iterdir()) == [".lock", "ledger.jsonl"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    path = tmp_path / "small"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


def test_a_build_that_filled_the_disk_goes_on_when_there_is_room(folder: Path, small_disk: Path) -> None:
    """The disk shrinks in the middle of the build; what was whole by then is not written again."""
    resize(small_disk, "512m")
    (folder / "shards").symlink_to(small_disk)
    process = start(folder)
    wait_for(lambda: lines_of(folder) >= 3, process)
    resize(small_disk, "100m")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "the disk is full: " in errors
    assert_nothing_half(folder)
    kept = {path.name: path.stat().st_mtime_ns for path in small_disk.glob("*.tar")}

    resize(small_disk, "512m")
    process = start(folder)
    _, errors = process.communicate()

    assert process.returncode == 0, errors
    assert contents(small_disk) == contents(folder / "whole")
    times = {path.name: path.stat().st_mtime_ns for path in small_disk.glob("*.tar")}
    assert sum(kept.get(name) == at for name, at in times.items()) >= 3


def test_a_disk_that_is_too_small_is_noticed_before_anything_is_written(corpus: Path, small_disk: Path) -> None:
    """Needed and free bytes are both named."""
    with pytest.raises(DataError, match=r"the shards need [\d.]+ MB, but 3.1 MB are free; nothing was written"):
        build(corpus, shards=small_disk / "shards", shard_mb=4)
    assert [path.name for path in (small_disk / "shards").iterdir()] == [".lock"]


def test_a_shard_that_the_disk_has_no_room_for_does_not_exist(corpus: Path, small_disk: Path) -> None:
    """The error is the disk's own, and the space is given back."""
    index = read_index(corpus / "index.xlsx", corpus / "features")
    features = look_at_all(corpus / "features", [row.path for row in index.rows], Reading())
    shard = lay_out(
        index.rows,
        [f for f in features if not isinstance(f, DataError)],
        ["train"] * len(index.rows),
        form=Form("float32", (4,)),
        shard_bytes=10**9,
        reading=Reading(),
    ).shards[0]

    with pytest.raises(OSError, match="No space left"):
        write_shard(
            Task(
                folder=small_disk,
                features=corpus / "features",
                spare=0,
                reading=Reading(),
                shard=shard,
            )
        )
    assert not list(small_disk.iterdir())


def test_what_a_killed_build_left_is_no_dataset_to_verify(folder: Path) -> None:
    """The error says what to do."""
    process = start(folder)
    wait_for(lambda: lines_of(folder) >= 1, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    with pytest.raises(DataError, match="a build is not finished there; run the same build again to finish it"):
        verify_shards(VerifyConfig(shards=folder / "shards"), Console(quiet=True))
