"""One look at every file, before anything is written: a fault is found in the first minutes, not in the last."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from pipeline.features import Feature, FeatureFolder, Form, Reading
from shards.errors import DataError

# Opening waits for the disk, not for Python: on a network disk more threads are more files at once.
_THREADS: Final = 16
_AT_ONCE: Final = 64  # files a task: handing over a task costs more than reading a header


def look_at_all(folder: Path, paths: Sequence[str], reading: Reading) -> list[Feature | DataError]:
    """What every path holds, or what is wrong with it, in order.

    Costs one open and one page a file, a small part of reading the data. Files that a hook reads are not
    looked into: computing features twice would cost more than finding a fault late.
    """
    files = FeatureFolder(folder, reading)
    if reading.features_from is None:
        return _each(files.look_at, paths)
    form, growth = _tried(folder, paths, reading, reading.features_from)
    return _each(lambda path: files.estimate(path, form, growth), paths)


def common_form(features: Sequence[Feature | DataError]) -> Form | None:
    """The form that most files have, whatever their order; the smallest of several equally common."""
    counts = Counter(feature.form for feature in features if isinstance(feature, Feature))
    return min(counts, key=lambda form: (-counts[form], form), default=None)


def _each(look: Callable[[str], Feature], paths: Sequence[str]) -> list[Feature | DataError]:
    def some(start: int) -> list[Feature | DataError]:
        return [_or_fault(look, path) for path in paths[start : start + _AT_ONCE]]

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(chain.from_iterable(pool.map(some, range(0, len(paths), _AT_ONCE))))


def _or_fault(look: Callable[[str], Feature], path: str) -> Feature | DataError:
    try:
        return look(path)
    except DataError as error:
        return error


def _tried(folder: Path, paths: Sequence[str], reading: Reading, hook: str) -> tuple[Form, float]:
    """The form of what the hook makes of three of the files, and how many bytes of each of theirs.

    In a process of its own: whatever the hook imports or breaks, this one stays small and whole.
    """
    ordered = sorted(paths)
    picked = sorted({ordered[0], ordered[len(ordered) // 2], ordered[-1]}) if ordered else []
    try:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            found = pool.submit(_try, folder, picked, reading).result()
    except BrokenProcessPool as error:
        raise DataError(f"{hook}: its process died on one of {', '.join(picked)}; try it on them by hand") from error
    features = [feature for feature in found if isinstance(feature, Feature)]
    form = common_form(features)
    if form is None:
        why = f": {folder / picked[0]}: {found[0]}" if found else ": there are none"
        raise DataError(f"{hook}: none of the {len(picked)} files tried can be used{why}")
    growth = sum(feature.nbytes for feature in features) / max(1, sum(feature.size for feature in features))
    return form, float(f"{growth:.1e}")  # rounded, so that the layout does not hang on the last digit


def _try(folder: Path, paths: Sequence[str], reading: Reading) -> list[Feature | DataError]:
    files = FeatureFolder(folder, reading)
    return [_or_fault(files.look_at, path) for path in paths]
