"""Run shard tasks on processes, a few at a time, so that whatever breaks, it is known what was running."""

import signal
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Final, final

from pipeline.shard import Task, Written, start_worker, write_shard
from shards.errors import DataError

ATTEMPTS: Final = 3
_SECONDS_BETWEEN_LOOKS: Final = 0.2


@contextmanager
def _interrupts_held() -> Generator[None]:
    """Processes started in here never see Ctrl-C, from their first instruction on; this one does afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@final
class ShardPool:
    """Writes the shards of `tasks`, the largest first, so that the last ones end together.

    done        called in this process for every finished task, in no certain order
    progress    called with the bytes read so far
    """

    def __init__(
        self, tasks: Iterable[Task], *, done: Callable[[Task, Written], None], progress: Callable[[int], None]
    ) -> None:
        self._waiting = deque(sorted(tasks, key=lambda task: -task.shard.nbytes))
        self._running: dict[Future[Written], Task] = {}
        self._attempts: Counter[str] = Counter()
        self._done = done
        self._progress = progress
        # spawn: a fork would copy this process's threads' locks in whatever state they are.
        context = get_context("spawn")
        self._context = context
        self._read = context.Value("q", 0)
        self._stop = context.Event()

    def run(self, jobs: int) -> None:
        """Run all tasks on `jobs` processes; raises OSError as the task did, and leaves no process behind.

        A task whose process is killed is tried again; DataError names it after three attempts.
        """
        while self._waiting or self._running:
            pool = ProcessPoolExecutor(
                min(jobs, len(self._waiting)),
                mp_context=self._context,
                initializer=start_worker,
                initargs=(self._read, self._stop),
            )
            try:
                self._run_on(pool, jobs)
            except BrokenProcessPool:
                self._take_back()
            except BaseException:
                self._stop.set()
                raise
            finally:
                pool.shutdown(cancel_futures=True)

    def _run_on(self, pool: ProcessPoolExecutor, jobs: int) -> None:
        while self._waiting or self._running:
            while self._waiting and len(self._running) < jobs:
                task = self._waiting.popleft()
                try:
                    with _interrupts_held():
                        self._running[pool.submit(write_shard, task)] = task
                except BrokenProcessPool:
                    self._waiting.appendleft(task)
                    raise
            finished, _ = wait(self._running, timeout=_SECONDS_BETWEEN_LOOKS, return_when=FIRST_COMPLETED)
            self._progress(self._read.value)
            for future in finished:
                written = future.result()
                self._done(self._running.pop(future), written)

    def _take_back(self) -> None:
        """Put the tasks of a broken pool back in the queue; give up on one that broke three."""
        for future, task in self._running.items():
            if future.done() and future.exception() is None:
                self._done(task, future.result())
                continue
            self._attempts[task.shard.name] += 1
            self._waiting.appendleft(task)
        self._running.clear()
        given_up = [name for name, attempts in self._attempts.items() if attempts >= ATTEMPTS]
        if given_up:
            raise DataError(
                f"the process writing {' or '.join(sorted(given_up))} was killed {ATTEMPTS} times, by a lack of memory "
                "perhaps; give fewer --jobs, then run the same build again: finished shards are kept"
            )
