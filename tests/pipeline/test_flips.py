"""No byte of a dataset can change unseen."""

import random
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pipeline.verify import VerifyConfig, verify_shards
from shards import DataError, Manifest
from shards.schema import Container
from tests.pipeline.corpus import build, write_corpus

FLIPS = 1000


def owner(data: Manifest, path: Path, place: int) -> int:
    """The row that answers for a byte: its payload ends next, or it is the file's last."""
    rows = np.flatnonzero([data.shard_path(row) == path for row in range(len(data))])
    ends = data.offsets[rows] + data.nbytes[rows]
    return int(rows[min(np.searchsorted(ends, place, side="right"), len(rows) - 1)])


@pytest.mark.slow
@pytest.mark.parametrize("container", ["tar", "arrow", "raw"])
def test_each_of_a_thousand_flipped_bytes_is_found_and_its_sample_named(tmp_path: Path, container: Container) -> None:
    """Payloads, headers, manifest and dataset.json, each as likely as any; one fault, and no other accused."""
    data = build(write_corpus(tmp_path, classes=4, frames=40), shard_mb=1, format=container)
    rng = random.Random(0)
    shards = sorted({data.shard_path(row) for row in range(len(data))})
    around = [
        (path, place)
        for path in shards
        for place in range(path.stat().st_size)
        if not any(
            data.offsets[row] <= place < data.offsets[row] + data.nbytes[row]
            for row in range(len(data))
            if data.shard_path(row) == path
        )
    ]
    found = {"payload": 0, "around": 0, "manifest.arrow": 0, "dataset.json": 0}
    for number in range(FLIPS):
        kind = list(found)[number % len(found)]
        row = rng.randrange(len(data))
        if kind == "payload":
            path, place = data.shard_path(row), int(data.offsets[row]) + rng.randrange(int(data.nbytes[row]))
        elif kind == "around":
            path, place = rng.choice(around)
        else:
            path = data.folder / kind
            place = rng.randrange(path.stat().st_size)
        with path.open("r+b") as file:
            file.seek(place)
            before = file.read(1)
            file.seek(place)
            file.write(bytes([before[0] ^ rng.randrange(1, 256)]))
        found[kind] += is_named(data, kind, path, place)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(before)

    assert found == dict.fromkeys(found, FLIPS // len(found))
    assert verify_shards(VerifyConfig(shards=data.folder), Console(quiet=True)) == []


def is_named(data: Manifest, kind: str, path: Path, place: int) -> bool:
    """Whether verify says where this byte is: shard, row and id, or the name of the file."""
    try:
        faults = verify_shards(VerifyConfig(shards=data.folder, jobs=1), Console(quiet=True))
    except DataError as error:
        return kind == path.name and str(error).startswith(f"{path}: ")
    row = owner(data, path, place)
    name = path.relative_to(data.root)
    return len(faults) == 1 and faults[0].startswith(f"{name} row {row} id {data.id(row)!r}: ")
