"""Files that exist whole or not at all."""

import os
import secrets
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp-"


@contextmanager
def atomic_file(path: Path) -> Generator[BinaryIO]:
    """Yield a file that takes its place at `path` when the block ends without an error.

    The bytes go to a hidden file in the same folder, reach the disk (fsync), and only then
    get their name (rename), which is made durable too (fsync of the folder).
    On an error the hidden file is removed and what stood at `path` before stays.
    """
    temporary = hidden(path)
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def hidden(path: Path) -> Path:
    """A name beside `path` that nobody else uses, on whatever host: two may write the same shard at once."""
    return path.with_name(f".{path.name}{TEMPORARY}{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}")


def fsync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a rename alone may be lost with the power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove the hidden files that killed writers left in `folder`; return their paths.

    Only for whoever holds the folder alone: a running writer's file looks the same.
    """
    found = sorted(folder.glob(f".*{TEMPORARY}*"))
    for path in found:
        path.unlink(missing_ok=True)
    return found
