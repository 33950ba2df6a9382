"""`.npz`: a zip of `.npy` members. Looking reads the zip's directory and the first bytes of one member."""

import os
from typing import IO, Any, Final
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from pipeline.formats.contents import Contents, Opened, Space, only
from pipeline.formats.npy import Header, header_length, read_header

_MEMBER: Final = ".npy"
_AT_ONCE: Final = 1 << 20  # bytes unpacked at once


def look(file: Opened, key: str | None) -> Contents:
    """The array named `key`, or the only one."""
    with _archive(file) as archive:
        names = [name.removesuffix(_MEMBER) for name in archive.namelist() if name.endswith(_MEMBER)]
        member = archive.getinfo(only(names, key, "array") + _MEMBER)
        with archive.open(member) as stream:
            header = _header(stream, member)

    def load(space: Space) -> NDArray[Any]:
        data = space(member.file_size - header.offset)
        with _archive(file) as archive, archive.open(member) as stream:
            stream.read(header.offset)
            done = 0
            while done < len(data) and (piece := stream.read(min(_AT_ONCE, len(data) - done))):
                data[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
                done += len(piece)
            if stream.read(1) or done < len(data):  # reading on to the end is what compares the CRC
                raise EOFError(f"member {member.filename!r} has not the {member.file_size:,} bytes it declares")
        return header.view(data)

    return Contents(header.dtype, header.shape, load)


def _archive(file: Opened) -> ZipFile:
    # The archive does not close a file that was handed to it, and this one keeps its descriptor open.
    return ZipFile(os.fdopen(file.descriptor, "rb", closefd=False))


def _header(stream: IO[bytes], member: ZipInfo) -> Header:
    head = stream.read(12)
    if len(head) == 12 and head.startswith(b"\x93NUMPY"):
        head += stream.read(min(header_length(head), member.file_size) - len(head))
    return read_header(head, member.file_size)
