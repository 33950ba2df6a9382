"""Small corpora on disk: feature files and the indexes that name them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from openpyxl import Workbook
from rich.console import Console

from pipeline import BuildConfig, build_shards
from shards import Manifest

HEADER = ("a_cls", "a_item", "a_id")


def write_workbook(path: Path, rows: Iterable[Sequence[Any]], header: Sequence[Any] = HEADER) -> Path:
    """A workbook with one sheet, "index"."""
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "index"
    for row in (header, *rows):
        sheet.append(list(row))
    book.save(path)
    return path


def write_features(folder: Path, ids: Iterable[str], width: int = 4, frames: int = 5) -> Path:
    """One float32 file an id, of `frames` frames and more, each unlike the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(ids):
        path = folder / f"{name}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(number)
        np.save(path, rng.normal(size=(frames + number % 3, width)).astype(np.float32))
    return folder


def write_corpus(folder: Path, *, classes: int = 3, items: int = 3, samples: int = 2, **features: int) -> Path:
    """FOLDER/index.xlsx and FOLDER/features: classes "000", "001", ..."""
    rows = [
        (f"{c:03d}", f"item {i}", f"{c:03d}-{i}-{s}")
        for c in range(classes)
        for i in range(items)
        for s in range(samples)
    ]
    write_features(folder / "features", [row[2] for row in rows], **features)
    write_workbook(folder / "index.xlsx", rows)
    return folder


def spoil(folder: Path, *ids: str) -> Path:
    """Put a NaN into frame 3 of these files of the corpus in `folder`; only who reads their data can know."""
    for name in ids:
        path = folder / "features" / f"{name}.npy"
        array = np.load(path)
        array[3, 1] = np.nan
        np.save(path, array)
    return folder


def config_for(folder: Path, **options: Any) -> BuildConfig:
    """A build of the corpus in `folder` into FOLDER/shards, on one process."""
    given: Mapping[str, Any] = {
        "index": folder / "index.xlsx",
        "features": folder / "features",
        "shards": folder / "shards",
        "jobs": 1,
    }
    return BuildConfig(**{**given, **options})


def build(folder: Path, **options: Any) -> Manifest:
    """Build the corpus in `folder` silently."""
    manifest = build_shards(config_for(folder, **options), Console(quiet=True))
    assert manifest is not None
    return manifest


def contents(folder: Path) -> dict[str, bytes]:
    """Every visible file of a folder but the ledger, whose lines come in the order shards were finished; the
    report without its times.
    """
    return {
        path.name: re.sub(rb"<!-- times -->.*?<!-- /times -->", b"", path.read_bytes(), flags=re.DOTALL)
        for path in folder.iterdir()
        if not path.name.startswith(".") and path.name != "ledger.jsonl"
    }
