"""Which function reads which suffix; a package adds its own through the entry-point group `pipeline.features`.

    [project.entry-points."pipeline.features"]
    ".mfc" = "my_package.htk:read"       # a function: path -> array

The array may be a `numpy.memmap`: its values are read only when the shard is written.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import numpy as np

from pipeline.formats import hdf5, npy, npz, pt, safetensors
from pipeline.formats.contents import Contents, Opened
from shards.errors import ConfigError, DataError

Look = Callable[[Opened, str | None], Contents]
Read = Callable[[Path], Any]

_BUILT_IN: Final[dict[str, Look]] = {
    ".npy": npy.look,
    ".npz": npz.look,
    ".pt": pt.look,
    ".pth": pt.look,
    ".safetensors": safetensors.look,
    ".h5": hdf5.look,
    ".hdf5": hdf5.look,
}
_ENTRY_POINTS: Final = "pipeline.features"


@lru_cache
def format_of(suffix: str) -> Look:
    """The function that looks into files of this suffix, ".npy" say; raises ConfigError naming those there are."""
    if suffix in _BUILT_IN:
        return _BUILT_IN[suffix]
    for entry in entry_points(group=_ENTRY_POINTS):
        if entry.name == suffix:
            return user_format(entry.load(), entry.value)
    raise ConfigError(
        f"no reader for files that end in {suffix or 'no suffix'!r}; there are {', '.join(_BUILT_IN)}; give a function "
        "of your own with --features-from module:function"
    )


def user_format(read: Read, name: str) -> Look:
    """The user's function path -> array as a format; whatever it raises becomes one DataError."""

    def look(file: Opened, _key: str | None) -> Contents:
        try:
            found = read(Path(file.path))
        except Exception as error:
            raise DataError(f"{name} failed: {type(error).__name__}: {_first_line(error)}") from error
        array = np.asanyarray(found)
        if array.dtype.hasobject:
            raise DataError(f"{name} returned {type(found).__name__}, expected an array of numbers")
        return Contents.of(array)

    return look


def contents_of(file: Opened, look: Look, key: str | None) -> Contents:
    """What is in the file; raises DataError for whatever the format's library finds wrong with it."""
    contents = _named(file, look, file, key)
    return contents._replace(load=partial(_named, file, contents.load))


def _named(file: Opened, work: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return work(*arguments)
    except (DataError, ConfigError, MemoryError):
        raise
    except Exception as error:  # a damaged file makes libraries raise almost anything
        if isinstance(error, OSError) and error.errno:
            raise DataError(f"cannot be read ({error.strerror}); check the disk and the permissions") from error
        suffix = Path(file.path).suffix
        raise DataError(f"not a readable {suffix} file ({_first_line(error)}); export it again") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
