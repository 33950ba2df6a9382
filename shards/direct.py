"""Read past the page cache: O_DIRECT, whose reads begin, end and land on block boundaries, for any range of bytes.

Where memory and file agree on their place within a block, one read puts all whole blocks straight where they
belong; the two blocks at the edges go through a buffer of the thread's own. Elsewhere all of them do.
"""

import ctypes
import errno
import mmap
import os
import threading
from pathlib import Path
from typing import Final, final

import numpy as np

_BLOCKS: Final = (512, 4096)  # of sectors, and of disks that have only large ones
_BUFFER: Final = 1 << 20  # larger copies were no faster, smaller ones cost more reads


@final
class DirectReads:
    """Reads files of one file system with O_DIRECT. Safe to share by threads."""

    def __init__(self) -> None:
        self._block = 0
        self._own = threading.local()

    @classmethod
    def possible(cls, path: Path) -> bool:
        """Whether the file system of `path` reads with O_DIRECT."""
        file = cls().open(path)
        if file is not None:
            os.close(file)
        return file is not None

    def open(self, path: Path) -> int | None:
        """A descriptor for `fill`, or None where the file system knows no O_DIRECT; raises OSError."""
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            return None
        self._block = self._block or self._smallest_block(file)
        if self._block:
            return file
        os.close(file)
        return None

    def fill(self, file: int, out: memoryview, offset: int) -> tuple[int, int]:
        """Read into `out` from byte `offset`; returns how many bytes of it are filled, and how many were read.

        Fills less than all of it only at the end of the file, or where the system gave up early.
        """
        block, size = self._block, len(out)
        head, tail = -offset % block, (offset + size) % block
        if size < 2 * block or (ctypes.addressof(ctypes.c_char.from_buffer(out)) - offset) % block:
            return self._fill_through_buffer(file, out, offset)
        pieces = [out[head : size - tail]]
        buffer = self._buffer()
        if head:
            pieces.insert(0, buffer[:block])
        if tail:
            pieces.append(buffer[block : 2 * block])
        before = block - head if head else 0
        got = os.preadv(file, pieces, offset - before)
        if head:
            out[:head] = buffer[before:block]
        if tail:
            out[size - tail :] = buffer[block : block + tail]
        return min(size, max(0, got - before)), sum(map(len, pieces))

    def _fill_through_buffer(self, file: int, out: memoryview, offset: int) -> tuple[int, int]:
        buffer, target, size = self._buffer(), np.frombuffer(out, np.uint8), len(out)
        source = np.frombuffer(buffer, np.uint8)
        done = asked = 0
        while done < size:
            before = (offset + done) % self._block
            wanted = min(_BUFFER, -(-(before + size - done) // self._block) * self._block)
            got = min(os.preadv(file, [buffer[:wanted]], offset + done - before) - before, size - done)
            asked += wanted
            if got <= 0:
                break
            np.copyto(target[done : done + got], source[before : before + got])  # lets other threads run
            done += got
        return done, asked

    def _buffer(self) -> memoryview:
        if not hasattr(self._own, "buffer"):
            self._own.buffer = memoryview(mmap.mmap(-1, _BUFFER, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        return self._own.buffer

    def _smallest_block(self, file: int) -> int:
        """The smallest block that the file system reads, and on which memory must lie; 0 if there is none."""
        for block in _BLOCKS:
            try:
                os.preadv(file, [self._buffer()[block : 2 * block]], block)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
            else:
                return block
        return 0
