"""Make the manifest again from the shards alone."""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from pipeline.catalogue import Found, samples_of
from pipeline.extents import stored_at
from pipeline.layout import SHARD_NAME
from pipeline.ledger import Entry, Ledger, locked
from pipeline.progress import progress
from pipeline.split import rank
from shards.errors import ConfigError, DataError
from shards.manifest import Manifest, read_dataset_json, write_manifest
from shards.sample import Stored
from shards.schema import SCHEMA, DatasetInfo, info_of

_CURE: Final = "delete damaged shards and run the build again, with the options that it had: it writes just these"
_Shard = Sequence[tuple[Found, Stored]]


@dataclass(frozen=True, kw_only=True)
class ReindexConfig:
    """Make manifest.arrow and dataset.json again from the shards, when they are lost or damaged."""

    shards: Path = Path("data/shards")
    """Folder of the dataset."""
    jobs: int | None = None
    """Threads, each reading one shard at a time. Default: one a CPU."""

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"jobs {self.jobs}: at least one thread must read")


def reindex_shards(config: ReindexConfig, console: Console | None = None) -> Manifest:
    """Write the manifest of the shards that are there, the same as the build's, and open it.

    The ledger, if there is one, says which shards must be there and what is in them: raises DataError if that is
    not so, or the shards do not belong together.
    """
    console = console or Console()
    folder = config.shards
    with locked(folder):
        names = sorted((path.name for path in folder.iterdir() if SHARD_NAME.fullmatch(path.name)), key=_place)
        if not names:
            raise DataError(f"{folder}: no shards are there; a raw dataset has none: build it again")
        entries = Ledger(folder).entries
        _check_names(folder, names, entries)
        shards = _read(folder, names, config.jobs or len(os.sched_getaffinity(0)), console)
        for name, shard in shards.items():
            if entries and tuple(stored for _, stored in shard) != entries[name].samples:
                raise DataError(f"{folder / name}: not what was written; {_CURE}")
        manifest = write_manifest(folder, _info(folder, shards), _columns(shards))
    if not entries:
        console.print("note: no ledger is there, so shards that are missing at the end of a split were not missed")
    console.print(f"{len(manifest):,} samples in {len(names):,} shards, {len(manifest.classes):,} classes: {manifest}")
    return manifest


def _parts(name: str) -> tuple[str, int]:
    """Split and number of a shard."""
    split, _, number = Path(name).stem.rpartition("-")
    return split, int(number)


def _place(name: str) -> tuple[tuple[int, str], int]:
    """A shard's place in the manifest: by split, then by number."""
    split, number = _parts(name)
    return rank(split), number


def _check_names(folder: Path, names: Sequence[str], entries: Mapping[str, Entry]) -> None:
    """Raise DataError if a shard is missing, or one too many."""
    if entries:
        written = {name for name, entry in entries.items() if entry.samples}
        faults = [f"{name} is missing" for name in sorted(written - set(names))]
        faults += [f"{name} is not in the ledger" for name in sorted(set(names) - written)]
    else:
        numbered = [_parts(name) for name in names]
        before = [("", 0), *numbered]
        expected = [(s, n + 1 if s == last else 0) for (last, n), (s, _) in zip(before, numbered, strict=False)]
        faults = [
            f"{s}-{n:05d} is missing" for (s, n), there in zip(expected, numbered, strict=True) if (s, n) != there
        ]
    if faults:
        raise DataError(f"{folder}: {'; '.join(faults)}; {_CURE}")


def _read(folder: Path, names: Sequence[str], jobs: int, console: Console) -> dict[str, _Shard]:
    lock, done = threading.Lock(), 0
    with progress(console, "reading shards", sum((folder / name).stat().st_size for name in names)) as show:

        def count(nbytes: int) -> None:
            nonlocal done
            with lock:
                done += nbytes
                show(done)

        with ThreadPoolExecutor(jobs) as pool:
            shards = pool.map(partial(_read_shard, folder, count), names)
            return dict(zip(names, shards, strict=True))


def _read_shard(folder: Path, count: Callable[[int], None], name: str) -> _Shard:
    samples = samples_of(folder / name)
    with (folder / name).open("rb", buffering=0) as file:
        return list(zip(samples, stored_at(file, [sample.extent for sample in samples], count), strict=True))


def _info(folder: Path, shards: Mapping[str, _Shard]) -> DatasetInfo:
    """What all samples share; class names and options as the old dataset.json has them, if that is whole."""
    samples = [sample for shard in shards.values() for sample, _ in shard]
    forms = {sample.form for sample in samples}
    names = dict(sorted((sample.label, sample.class_name) for sample in samples))
    if len(forms) > 1 or any(names[sample.label] != sample.class_name for sample in samples):
        raise DataError(f"{folder}: the shards are of different builds: their types, shapes or labels disagree")
    form = forms.pop()
    try:
        old = info_of(read_dataset_json(folder))
    except DataError:
        old = None
    if old is not None and all(old.classes[label : label + 1] == (name,) for label, name in names.items()):
        classes, options = old.classes, old.options
    else:
        unknown = sorted(set(range(max(names))) - set(names))
        if unknown:
            raise DataError(
                f"{folder}: no sample says the name of label {unknown[0]} ({len(unknown):,} labels are without one), "
                "and dataset.json is lost; run the build again, with the options that it had"
            )
        classes, options = tuple(names.values()), {"reindexed": True}
    containers = {Path(name).suffix for name in shards}
    if len(containers) > 1:
        raise DataError(f"{folder}: both tar and Arrow shards are there; delete those of the other build")
    return DatasetInfo(
        dtype=form.dtype,
        frame_shape=form.frame_shape,
        classes=classes,
        container="tar" if containers == {".tar"} else "arrow",
        options=options,
    )


def _columns(shards: Mapping[str, _Shard]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for name, shard in shards.items():
        split, _ = _parts(name)
        for sample, stored in shard:
            row = {
                "split": split,
                "shard": name,
                "label": sample.label,
                "class": sample.class_name,
                "item": sample.item,
                "id": sample.id,
                "source": sample.source,
                **asdict(stored),
            }
            for column, value in row.items():
                columns[column].append(value)
    return columns
