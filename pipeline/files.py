"""One listing of the feature folder: every file's path, without a look at any file."""

import os
import unicodedata
from pathlib import Path

from shards.errors import DataError


def list_files(folder: Path, suffix: str, *, deep: bool) -> dict[str, str]:
    """The path below `folder` of every file whose name ends in `suffix`, by the same path in Unicode form NFC.

    deep    look into subfolders too
    Names from a Mac are often decomposed (NFD) where the index is not, so both meet in NFC; two
    files that differ in nothing else raise DataError.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; give the folder of the feature files as --features")
    files: dict[str, str] = {}
    seen: set[tuple[int, int]] = set()
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(folder / inside) as entries:
            for entry in entries:
                path = inside + entry.name
                if entry.name.endswith(suffix) and entry.is_file():
                    _add(files, path, folder)
                elif deep and entry.is_dir() and _first_visit(seen, entry):
                    waiting.append(f"{path}/")
    return files


def _add(files: dict[str, str], path: str, folder: Path) -> None:
    key = path if path.isascii() else unicodedata.normalize("NFC", path)
    if key in files:
        raise DataError(
            f"{folder}: {path!r} and {files[key]!r} are one name in two Unicode spellings; remove or rename one of them"
        )
    files[key] = path


def _first_visit(seen: set[tuple[int, int]], entry: "os.DirEntry[str]") -> bool:
    """Whether this folder is met for the first time: links may lead round in a circle."""
    status = entry.stat()
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return False
    seen.add(identity)
    return True
