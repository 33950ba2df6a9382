"""Run shard tasks on the workers of a dask cluster: the same tasks as on one machine, and the same bytes.

All workers must see the same folders, by the same paths, and have the same headrace. That is asked of each before
anything is written, and by each before every shard, as workers come and go. Only this process writes the ledger.

What is left of a build that has ended, a worker that nobody could reach say, writes nothing more: it looks for the
build's token, a hidden file beside the shards, before every sample.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, final

import xxhash

import shards
from pipeline.features import Feature
from pipeline.hook import hook_format
from pipeline.pool import ATTEMPTS
from pipeline.rejects import Fault
from pipeline.shard import Task, Written, write_shard
from shards.atomic import fsync_folder, hidden
from shards.errors import ConfigError, DataError

if TYPE_CHECKING:
    from distributed import Client

_SECONDS_TO_CONNECT: Final = 5
_SECONDS_WITHOUT_WORKERS: Final = 120.0
_SECONDS_BETWEEN_LOOKS: Final = 0.5
_MOST_LINES: Final = 10
_GO_ON: Final = "run the same build again: finished shards are kept"


@dataclass(frozen=True, kw_only=True)
class Site:
    """What every worker must see and have.

    token       the build's, beside the shards
    feature     one of the files in `features`, as it is seen here
    hook        module:function that reads the files, if one does
    software    name -> version of what decides the bytes
    """

    token: Path
    features: Path
    feature: Feature
    hook: str | None
    software: Mapping[str, str]


@final
class ClusterPool:
    """Writes the shards of `tasks` on a cluster, the largest first, so that the last ones end together.

    done        called in this process for every finished task, in no certain order
    progress    called with the bytes read so far, after every shard
    """

    def __init__(
        self, tasks: Iterable[Task], *, done: Callable[[Task, Written], None], progress: Callable[[int], None]
    ) -> None:
        self._waiting = deque(sorted(tasks, key=lambda task: -task.shard.nbytes))
        self._running: dict[Future[Written], Task] = {}
        self._names: dict[str, str] = {}  # the shard of every task that was submitted, by its name on the cluster
        self._deaths: Counter[str] = Counter()
        self._done = done
        self._progress = progress
        self._read = 0

    def run(self, scheduler: str) -> None:
        """Run all tasks on the workers of `scheduler`; raises OSError as a task did, and cancels the others then.

        A task whose worker is killed is done by another; DataError names it after three attempts.
        """
        if not self._waiting:
            return
        first = self._waiting[0]
        with _connected(scheduler) as client, _token(first.folder.absolute()) as token:
            site = Site(
                token=token,
                features=first.features.absolute(),
                feature=first.shard.features[0],
                hook=first.reading.features_from,
                software=software(),
            )
            _ask_all(client, scheduler, site)
            client.subscribe_topic("all", self._note_deaths)
            executor = client.get_executor(pure=False)
            try:
                self._run_on(client, executor, site)
            finally:
                executor.shutdown(wait=False)  # cancels what is still waiting or running

    def _run_on(self, client: "Client", executor: Executor, site: Site) -> None:
        seen = monotonic()
        while self._waiting or self._running:
            threads = _threads(client)
            seen = monotonic() if threads else seen
            if monotonic() - seen > _SECONDS_WITHOUT_WORKERS:
                raise DataError(
                    f"no worker has been there for {_SECONDS_WITHOUT_WORKERS:.0f} s; start some and {_GO_ON}"
                )
            # No more tasks than threads: those that only wait on a worker would be suspects too when it dies.
            while self._waiting and len(self._running) < threads:
                self._submit(executor, site, self._waiting.popleft())
            finished, _ = wait(self._running, timeout=_SECONDS_BETWEEN_LOOKS, return_when=FIRST_COMPLETED)
            for future in finished:
                self._take(future, self._running.pop(future))
            self._check_deaths()

    def _submit(self, executor: Executor, site: Site, task: Task) -> None:
        key = f"{task.shard.name}-{len(self._names)}{site.token.name}"
        self._names[key] = task.shard.name
        there = replace(task, folder=site.token.parent, features=site.features, wanted=site.token)
        submit: Any = executor.submit  # which knows `key`, unlike other executors'
        self._running[submit(write_for, site, there, key=key)] = task

    def _take(self, future: "Future[Written]", task: Task) -> None:
        """Hand on what has become of a task."""
        if future.cancelled():
            raise DataError(f"the connection to the scheduler was lost; {_GO_ON}")
        from distributed import KilledWorker  # noqa: PLC0415 - an extra

        error = future.exception()
        if isinstance(error, KilledWorker):  # a scheduler that is less patient than we are
            self._waiting.append(task)
            return
        if error is not None:
            raise _explained(error)
        self._read += sum(feature.size for feature in task.shard.features)
        self._done(task, _relative(future.result(), task))
        self._progress(self._read)

    def _note_deaths(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Hear of a worker that is gone, and remember what it was doing; called on a thread of the client's."""
        _, what = event
        if what.get("action") == "remove-worker" and not what.get("expected"):
            self._deaths.update(self._names[key] for key in what["processing-tasks"] if key in self._names)

    def _check_deaths(self) -> None:
        unfinished = {task.shard.name for task in (*self._running.values(), *self._waiting)}
        given_up = [name for name in unfinished if self._deaths[name] >= ATTEMPTS]
        if given_up:
            raise DataError(
                f"the worker writing {' or '.join(sorted(given_up))} died {ATTEMPTS} times, by a lack of memory "
                f"perhaps; start workers with fewer --nthreads, then {_GO_ON}"
            )


def write_for(site: Site, task: Task) -> Written:
    """Write one shard on a worker, if all is there that is needed."""
    from distributed import get_worker  # noqa: PLC0415 - an extra, and there it is

    try:
        look_around(site)
        return write_shard(task)
    except (DataError, ConfigError) as error:
        raise type(error)(f"worker {get_worker().address}: {error}") from error


def look_around(site: Site) -> None:
    """Raise DataError or ConfigError for what this process does not see or have of `site`."""
    ours = software()
    differing = [f"{name} {ours[name]}, not {wanted}" for name, wanted in site.software.items() if ours[name] != wanted]
    if differing:
        raise ConfigError(f"has {'; '.join(differing)} as the build; install the same there")
    if not os.access(site.token, os.W_OK) or not os.access(site.token.parent, os.W_OK):
        raise DataError(
            f"cannot write {site.token}, which the build has just made; every worker needs the folder of the shards, "
            "by the same path and writable: mount it there"
        )
    path = site.features / site.feature.path
    try:
        found = path.stat()
    except OSError as error:
        raise DataError(
            f"cannot see {path} ({error.strerror}); every worker needs the folder of the features, by the same path: "
            "mount it there"
        ) from error
    if (found.st_size, found.st_mtime_ns) != (site.feature.size, site.feature.mtime_ns):
        raise DataError(
            f"sees another {path}: {found.st_size:,} bytes, expected {site.feature.size:,}, or of another time; mount "
            "the same folder there, or if the file has changed run the same build again"
        )
    if site.hook is not None:
        hook_format(site.hook)


@lru_cache
def software() -> Mapping[str, str]:
    """What decides the bytes of a shard: libraries by their versions, headrace by all of its source."""
    packages = [Path(__file__).parent, Path(shards.__file__).parent]
    digest = xxhash.xxh3_64()
    for path in sorted(path for package in packages for path in package.rglob("*.py")):
        digest.update(path.read_bytes())
    return {"headrace": f"of source {digest.hexdigest()}", **{name: version(name) for name in ("numpy", "pyarrow")}}


@contextmanager
def _connected(scheduler: str) -> "Generator[Client]":
    try:
        from distributed import Client  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"engine dask: {error}; pip install 'headrace[cluster]'") from error
    try:
        client = Client(scheduler, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"scheduler {scheduler}: cannot be reached ({error}); start one with `dask scheduler`, and workers with "
            "`dask worker`, or correct the address"
        ) from error
    try:
        yield client
    finally:
        client.close(timeout=_SECONDS_TO_CONNECT)


@contextmanager
def _token(folder: Path) -> Generator[Path]:
    """A file that is there while the build is; what a killed build left of it the next one removes."""
    path = hidden(folder / "build")
    path.touch()
    fsync_folder(folder)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _ask_all(client: "Client", scheduler: str, site: Site) -> None:
    """Raise what is wrong on any worker, with its name, or that there is none."""
    try:
        client.wait_for_workers(1, timeout=_SECONDS_TO_CONNECT)
    except TimeoutError:
        raise ConfigError(f"scheduler {scheduler}: has no workers; start some with `dask worker {scheduler}`") from None
    answers: Any = client.run(look_around, site, on_error="return")
    # A worker that is gone by now may come back; it will look around before its first shard.
    errors = {worker: error for worker, error in answers.items() if error and not isinstance(error, OSError)}
    if errors:
        lines = [f"\n  worker {worker}: {_explained(error)}" for worker, error in sorted(errors.items())]
        lines[_MOST_LINES:] = [f"\n  ... and {len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
        raise DataError(
            f"{len(errors):,} of {len(answers):,} workers cannot write these shards; nothing was written:"
            + "".join(lines)
        )


def _explained(error: BaseException) -> BaseException:
    """What a worker has raised, with what to do about it."""
    if isinstance(error, ImportError | AttributeError):
        return ConfigError(f"cannot import headrace as it is here ({error}); install the same there")
    return error


def _threads(client: "Client") -> int:
    """How many shards can be written at a time now."""
    try:
        threads: Any = client.nthreads()
        return sum(threads.values())
    except OSError as error:
        raise DataError(f"the connection to the scheduler was lost ({error}); {_GO_ON}") from error


def _relative(written: Written, task: Task) -> Written:
    """The result as a process with this working directory would have had it: reasons name the files as given here."""

    def as_given(fault: Fault) -> Fault:
        path = task.shard.rows[fault.position].path
        what = fault.reason.removeprefix(f"{task.features.absolute() / path}: ")
        return fault._replace(reason=f"{task.features / path}: {what}")

    return replace(written, faults=tuple(map(as_given, written.faults)))
