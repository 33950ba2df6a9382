"""Real ranks on one machine: a function on N gloo processes, or `torchrun -m train` as a person starts it."""

import multiprocessing as mp
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from train.world import joined

Result = TypeVar("Result")

_SERVER = mp.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.support.ranks", "train.loop"])  # torch is imported once, not once a rank


def run_ranks(function: Callable[..., Result], size: int, *arguments: Any) -> list[Result]:
    """Call `function(place, *arguments)` on `size` ranks joined by gloo; results in rank order, errors raised.

    `function` must be importable by name. A rank left alone by another's error gives up after 20 seconds.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with ProcessPoolExecutor(size, mp_context=_SERVER) as pool:
        futures = [pool.submit(_on_rank, function, rank, size, port, arguments) for rank in range(size)]
        return [future.result() for future in futures]


def _on_rank(function: Callable[..., Result], rank: int, size: int, port: int, arguments: tuple[Any, ...]) -> Result:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    with joined(device="cpu", cpu_threads=1, timeout_s=20) as place:
        return function(place, *arguments)


def start_training(*options: str, ranks: int = 2, **environment: str) -> subprocess.Popen[str]:
    """`torchrun -m train` with these options, on the CPU; standard output and error are pipes."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return subprocess.Popen(
        [*torchrun, "-m", "train", "--device", "cpu", "--cpu-threads", "1", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent.parent,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
    )


def train_to_end(*options: str, ranks: int = 2) -> str:
    """Run `torchrun -m train` to its end, which must be good; returns what it printed."""
    process = start_training(*options, ranks=ranks)
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    return out


def kill_tree(root: int) -> None:
    """`kill -9` a process and all that descend from it: torchrun's workers are not in its group."""
    family = [root]
    for pid in family:
        children = Path(f"/proc/{pid}/task/{pid}/children")
        family += [int(child) for child in children.read_text().split()] if children.exists() else []
    for pid in family:
        os.kill(pid, signal.SIGKILL)
