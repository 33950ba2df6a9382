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
    paths: list[str] = []
    seen: set[tuple[int, int]] = set()
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(folder / inside) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(suffix) and (suffix or not entry.is_dir()):
                    paths.append(inside + name)
                elif deep and entry.is_dir() and _first_visit(seen, entry):
                    waiting.append(f"{inside}{name}/")
    files = {path if path.isascii() else unicodedata.normalize("NFC", path): path for path in paths}
    if len(files) < len(paths):
        one = next(path for path in paths if path not in files.values())
        other = files[unicodedata.normalize("NFC", one)]
        raise DataError(
            f"{folder}: {one!r} and {other!r} are one name in two Unicode spellings; remove or rename one of them"
        )
    return files


def _first_visit(seen: set[tuple[int, int]], entry: "os.DirEntry[str]") -> bool:
    """Whether this folder is met for the first time: links may lead round in a circle."""
    status = entry.stat()
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return False
    seen.add(identity)
    return True
