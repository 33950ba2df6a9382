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

    Files are opened when first read and stay open until close() or the end of a `with` block. Where there are
    more files than a process may have open (samples in files of their own), each is opened for its read alone.
    """

    def __init__(self, data: Manifest) -> None:
        self._data = data
        self._frame_bytes = data.info.frame_bytes
        self._files: list[int | None] = [None] * len(data.shard_names)
        self._opening = threading.Lock()
        self._stay_open = _may_have_open(len(data.shard_names))

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
        done, size, file = 0, len(out), None
        try:
            file = self._file(int(data.shards[row]))
            while done < size:
                got = os.preadv(file, [out[done:] if done else out], offset + done)
                if got == 0:
                    raise DataError(
                        f"{self._where(row)}: the file ends at byte {offset + done}, the sample needs "
                        f"{offset + size}: it is cut short; `make verify` lists what is damaged"
                    )
                done += got
        except OSError as error:
            raise DataError(f"{self._where(row)}: cannot read bytes {offset} to {offset + size}: {error}") from error
        finally:
            if not self._stay_open and file is not None:
                os.close(file)

    def _file(self, shard: int) -> int:
        if not self._stay_open:
            return self._open(shard)
        file = self._files[shard]
        if file is None:
            with self._opening:
                file = self._files[shard]
                if file is None:
                    file = self._files[shard] = self._open(shard)
        return file

    def _open(self, shard: int) -> int:
        return os.open(self._data.root / self._data.shard_names[shard], os.O_RDONLY | os.O_CLOEXEC)

    def _where(self, row: int) -> str:
        return f"{self._data.shard_path(row)}: row {row} (id {self._data.id(row)!r})"


def _may_have_open(count: int) -> bool:
    """Whether so many files may be open at a time; raises this process's limit if that needs to be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = count + _SPARE_FILES
    if soft == resource.RLIM_INFINITY or need <= soft:
        return True
    if hard != resource.RLIM_INFINITY and need > hard:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    return True
