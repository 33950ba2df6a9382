"""Bytes of samples, straight into the caller's memory."""

import os
import resource
import threading
from types import TracebackType
from typing import Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray

from shards.errors import DataError
from shards.manifest import Manifest
from shards.schema import storage_dtype

_SPARE_FILES: Final = 256  # left for the rest of the process: libraries, logs, sockets


@final
class Reader:
    """Reads ranges of frames with `preadv`, which lets other threads run. Safe to share by threads.

    Files are opened when first read and stay open; close() or a `with` block ends that.
    """

    def __init__(self, data: Manifest) -> None:
        self._data = data
        self._frame_bytes = data.info.frame_bytes
        self._files: list[int | None] = [None] * len(data.shard_names)
        self._opening = threading.Lock()
        _allow_open_files(len(data.shard_names))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; reading opens them again."""
        with self._opening:
            for shard, file in enumerate(self._files):
                if file is not None:
                    os.close(file)
                    self._files[shard] = None

    def read(self, row: int, start: int = 0, count: int | None = None) -> NDArray[Any]:
        """Frames `start` to `start + count` of a sample (all by default) as a new array."""
        info = self._data.info
        count = int(self._data.frames[row]) - start if count is None else count
        out = np.empty((count, *info.frame_shape), storage_dtype(info.dtype))
        self.read_into(row, start, count, out.reshape(-1).view(np.uint8).data)
        return out

    def read_into(self, row: int, start: int, count: int, out: memoryview) -> None:
        """Fill `out` (exactly count * frame_bytes bytes) with frames `start` to `start + count` of a sample.

        Raises DataError, naming the shard and the sample, if the file ends early or cannot be read.
        """
        data = self._data
        if not 0 <= start <= start + count <= data.frames[row]:
            raise DataError(f"{self._where(row)}: frames {start} to {start + count} of {data.frames[row]}")
        offset = int(data.offsets[row]) + start * self._frame_bytes
        done, size = 0, len(out)
        try:
            file = self._file(int(data.shards[row]))
            while done < size:
                got = os.preadv(file, [out[done:] if done else out], offset + done)
                if got == 0:
                    raise DataError(
                        f"{self._where(row)}: the file ends at byte {offset + done}, the sample needs "
                        f"{offset + size}: the shard is cut short; `make verify` lists what is damaged"
                    )
                done += got
        except OSError as error:
            raise DataError(f"{self._where(row)}: cannot read bytes {offset} to {offset + size}: {error}") from error

    def _file(self, shard: int) -> int:
        file = self._files[shard]
        if file is None:
            with self._opening:
                file = self._files[shard]
                if file is None:
                    path = self._data.folder / self._data.shard_names[shard]
                    file = self._files[shard] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return file

    def _where(self, row: int) -> str:
        return f"{self._data.shard_path(row)}: row {row} (id {self._data.id(row)!r})"


def _allow_open_files(count: int) -> None:
    """Raise this process's limit of open files if the shards need it; refuse if the system does not let us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = count + _SPARE_FILES
    if soft == resource.RLIM_INFINITY or need <= soft:
        return
    if hard != resource.RLIM_INFINITY and need > hard:
        raise DataError(
            f"{count} shards, but a process may open {hard} files here: raise the limit (ulimit -Hn) "
            "or build larger shards (SHARD_MB)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
