"""Bytes of samples, straight into the caller's memory."""

import logging
import os
import resource
import threading
from types import TracebackType
from typing import Any, Final, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from shards.direct import DirectReads
from shards.errors import DataError
from shards.manifest import Manifest
from shards.schema import storage_dtype

_LOG: Final = logging.getLogger(__name__)
_SPARE_FILES: Final = 256  # left for the rest of the process: libraries, logs, sockets


IO = Literal["buffered", "direct"]
_File = tuple[int, bool]  # descriptor, and whether it wants whole blocks


@final
class Reader:
    """Reads ranges of frames with `preadv`, which lets other threads run. Safe to share by threads.

    io    "buffered": through the page cache. "direct": past it, where the file system can; says so where not
    Files are opened when first read and stay open until close() or the end of a `with` block. Where there are
    more files than a process may have open (samples in files of their own), each is opened for its read alone.
    """

    def __init__(self, data: Manifest, *, io: IO = "buffered") -> None:
        self._data = data
        self._frame_bytes = data.info.frame_bytes
        self._paths = [data.root / name for name in data.shard_names]
        self._files: list[_File | None] = [None] * len(self._paths)
        self._opening = threading.Lock()
        self._stay_open = _may_have_open(len(self._paths))
        self._reads = DirectReads()
        self.io: IO = io  # becomes "buffered" where a file system refuses

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
                    os.close(file[0])
                    self._files[shard] = None

    def read(self, row: int, start: int = 0, count: int | None = None) -> NDArray[Any]:
        """Frames `start` to `start + count` of a sample (all by default) as a new array."""
        info = self._data.info
        count = int(self._data.frames[row]) - start if count is None else count
        out = np.empty((count, *info.frame_shape), storage_dtype(info.dtype))
        self.read_into(row, start, count, out.reshape(-1).view(np.uint8).data)
        return out

    def read_into(self, row: int, start: int, count: int, out: memoryview) -> int:
        """Fill `out` (exactly count * frame_bytes bytes) with frames `start` to `start + count` of a sample.

        Returns the bytes asked of the kernel: those of `out`, and with "direct" the rest of the blocks at its
        edges. Raises DataError, naming the shard and the sample, if the file ends early or cannot be read.
        """
        data = self._data
        if not 0 <= start <= start + count <= data.frames[row]:
            raise DataError(f"{data.describe(row)}: frames {start} to {start + count} of {data.frames[row]}")
        return self.fill(int(data.shards[row]), int(data.offsets[row]) + start * self._frame_bytes, out, row)

    def fill(self, shard: int, offset: int, out: memoryview, row: int) -> int:
        """Like `read_into`, for who knows already where the bytes are; `row` is for the message."""
        done, asked, size = 0, 0, len(out)
        file = self._files[shard]
        try:
            if file is None:
                file = self._file(shard)
            while done < size:
                rest, place = out[done:] if done else out, offset + done
                descriptor, direct = file
                if direct:
                    got, took = self._reads.fill(descriptor, rest, place)
                else:
                    got, took = os.preadv(descriptor, [rest], place), size - done
                if got == 0:
                    raise DataError(
                        f"{self._data.describe(row)}: the file ends at byte {place}, the sample needs "
                        f"{offset + size}: it is cut short; `make verify` lists what is damaged"
                    )
                done += got
                asked += took
        except OSError as error:
            where = f"bytes {offset} to {offset + size}"
            raise DataError(f"{self._data.describe(row)}: cannot read {where}: {error}") from error
        finally:
            if not self._stay_open and file is not None:
                os.close(file[0])
        return asked

    def _file(self, shard: int) -> _File:
        if not self._stay_open:
            return self._open(shard)
        with self._opening:
            file = self._files[shard]
            if file is None:
                file = self._files[shard] = self._open(shard)
        return file

    def _open(self, shard: int) -> _File:
        path = self._paths[shard]
        if self.io == "direct":
            descriptor = self._reads.open(path)
            if descriptor is not None:
                return descriptor, True
            self.io = "buffered"
            _LOG.warning("%s: this file system has no O_DIRECT; reading through the page cache", path.parent)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC), False


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
