"""A sample on its way into a shard, and where it went. What the containers share.

Every byte of a shard belongs to one sample: its *payload*, or what lies *around* that: the bytes from the end
of the payload before it, and for the last one those up to the end of the file. So two checksums a sample
cover the whole shard, whatever its container, and a flipped bit has an owner.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, final

import numpy as np
import xxhash
from numpy.typing import NDArray

PAGE: Final = 4096  # O_DIRECT and page-cache granularity


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One sample on its way into a shard.

    `array` is (frames, *frame_shape), C-contiguous and little-endian.
    """

    array: NDArray[Any]
    label: int
    class_name: str
    item: str
    id: str
    source: str

    @property
    def payload(self) -> memoryview:
        """The array's bytes."""
        return self.array.reshape(-1).view(np.uint8).data


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Where a payload went: byte offset in the shard, bytes, frames, and its xxh3-64; `around` is that of the
    bytes around it.
    """

    offset: int
    nbytes: int
    frames: int
    checksum: int
    around: int


class Sink(Protocol):
    """What a shard is written to: a binary file, or something that passes the bytes on to one."""

    def write(self, data: bytes | memoryview, /) -> int:
        """Take all of `data`."""
        ...


class ShardWriter(Protocol):
    """Appends samples to a sink. The sink stays the caller's."""

    def add(self, sample: Sample) -> None:
        """Take one sample; its array may change when this returns."""
        ...

    def close(self) -> Sequence[Stored]:
        """End the shard; returns where its samples lie, in the order they came."""
        ...


@final
class Book:
    """Passes bytes on to a sink and keeps account of them: position, payloads, checksums."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._stored: list[Stored] = []
        self._gap = bytearray()  # since the last payload: headers, some kilobytes
        self._gap_before = b""  # of the last payload
        self.position = 0

    def write(self, data: bytes | memoryview) -> None:
        """Write what is no payload."""
        self._gap += data
        self._pass_on(data)

    def write_payload(self, payload: memoryview, frames: int) -> None:
        """Write the payload of the next sample."""
        self._gap_before = bytes(self._gap)
        self._gap.clear()
        self._stored.append(
            Stored(
                offset=self.position,
                nbytes=payload.nbytes,
                frames=frames,
                checksum=xxhash.xxh3_64_intdigest(payload),
                around=xxhash.xxh3_64_intdigest(self._gap_before),
            )
        )
        self._pass_on(payload)

    def close(self) -> tuple[Stored, ...]:
        """What was stored; the last sample answers for the bytes after its payload too."""
        *before, last = self._stored
        return (*before, replace(last, around=xxhash.xxh3_64_intdigest(self._gap_before + self._gap)))

    def _pass_on(self, data: bytes | memoryview) -> None:
        self._sink.write(data)
        self.position += len(data)
