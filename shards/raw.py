"""No shards: every sample stays in the `.npy` file it came in, and the manifest points there."""

from pathlib import Path
from typing import final

import xxhash

from shards.errors import DataError
from shards.sample import Sample, Stored


@final
class RawWriter:
    """Takes account of samples that lie as they are, C order and little-endian, at the end of their own files.

    Writes nothing. `root` is the folder below which each sample's `source` is.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stored: list[Stored] = []

    def add(self, sample: Sample) -> None:
        """Take account of one sample; raises OSError if its file is gone, DataError if it is another by now."""
        payload = sample.payload
        path = self._root / sample.source
        with path.open("rb", buffering=0) as file:
            offset = path.stat().st_size - payload.nbytes
            header = file.read(max(0, offset))
        if len(header) != offset:
            raise DataError(f"{path}: changed while it was being read; run the same build again")
        self._stored.append(
            Stored(
                offset=offset,
                nbytes=payload.nbytes,
                frames=len(sample.array),
                checksum=xxhash.xxh3_64_intdigest(payload),
                around=xxhash.xxh3_64_intdigest(header),
            )
        )

    def close(self) -> tuple[Stored, ...]:
        """Where the samples lie, in the order they came."""
        return tuple(self._stored)
