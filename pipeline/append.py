"""What `build --append` keeps of the dataset that is there: every shard, label and split.

New samples go to shards of their own, with numbers that follow, and new classes to labels that follow. The dataset
stays whole at every moment but one: between the renames of the two files that make it exist, which a hidden link to
the old manifest bridges.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipeline.features import Feature
from pipeline.index import Index
from pipeline.layout import SHARD_NAME
from pipeline.ledger import Entry, Ledger
from pipeline.rejects import Reject, listing
from pipeline.split import rank
from pipeline.verify import check_manifest, files_of, stored_in
from shards.atomic import TEMPORARY, fsync_folder
from shards.errors import ConfigError, DataError
from shards.manifest import Manifest
from shards.schema import MANIFEST_FILE, SCHEMA

_BEFORE: Final = f".{MANIFEST_FILE}{TEMPORARY}before"


def open_before(folder: Path) -> Manifest:
    """The dataset to append to; whoever asks holds the folder's lock.

    If an append was killed between its two last files, the manifest before it is put back.
    """
    try:
        check_manifest(folder)
    except DataError:
        if not (folder / _BEFORE).exists():
            raise
        (folder / _BEFORE).replace(folder / MANIFEST_FILE)
        fsync_folder(folder)
        check_manifest(folder)
    (folder / _BEFORE).unlink(missing_ok=True)  # killed just before it would have been forgotten
    return Manifest.open(folder)


def keep_manifest(folder: Path) -> None:
    """Give the manifest that is about to be replaced a second, hidden name."""
    (folder / _BEFORE).unlink(missing_ok=True)
    (folder / _BEFORE).hardlink_to(folder / MANIFEST_FILE)
    fsync_folder(folder)


def forget_manifest(folder: Path) -> None:
    """Take the second name away: the new dataset is whole."""
    (folder / _BEFORE).unlink()


def check_options(before: Manifest, options: Mapping[str, Any], root: str | None) -> None:
    """Raise ConfigError if new samples, made with `options`, would be made otherwise than those that are there."""
    old = before.info.options
    changed = [f"{n} {old.get(n)} -> {new}" for n, new in options.items() if old.get(n) != new]
    if root != before.info.root:
        changed.append(f"features {before.info.root} -> {root}")
    if changed:
        raise ConfigError(
            f"{before.folder}: --append makes new samples as the old ones were made, but {'; '.join(changed)}; "
            "give the same options, or another folder as --shards"
        )


def new_samples(before: Manifest, index: Index, features: Sequence[Feature], *, exact: bool) -> list[bool]:
    """Which of the index's rows are not in the dataset yet.

    exact    whether `features` were looked at, so that a changed number of frames is seen
    Raises DataError naming every row that says something else of a sample than the dataset does.
    """
    columns = [before.table.column(name).to_pylist() for name in ("id", "class", "item", "split", "source")]
    there = {id_: (*words, frames) for id_, *words, frames in zip(*columns, before.frames.tolist(), strict=True)}
    owner = dict(zip(columns[4], columns[0], strict=True))
    new: list[bool] = []
    contradictions: list[Reject] = []
    for row, feature in zip(index.rows, features, strict=True):
        old = there.get(row.id)
        new.append(old is None)
        if old is None:
            said = [f"its file is that of id {owner[row.path]!r}"] if row.path in owner else []
        else:
            split, frames = row.split or old[2], feature.frames if exact else old[4]
            now = (row.class_name, row.item, split, row.path, frames)
            names = ("class", "item", "split", "file", "frames")
            said = [f"{n} {a!r} is now {b!r}" for n, a, b in zip(names, old, now, strict=True) if a != b]
        if said:
            contradictions.append(Reject(row.sheet, row.row, row.id, f"id {row.id!r}: {', '.join(said)}"))
    if contradictions:
        raise DataError(
            f"{index.source}: {len(contradictions):,} rows say something else than the dataset in {before.folder}:\n"
            f"{listing(contradictions)}\n--append changes no sample that is there; correct these rows, or build with "
            "--overwrite"
        )
    return new


def splits_of(before: Manifest | None) -> dict[str, dict[str, str]]:
    """The split of every item of every class."""
    splits: dict[str, dict[str, str]] = {}
    if before is not None:
        columns = (before.table.column(name).to_pylist() for name in ("class", "item", "split"))
        for class_name, item, split in zip(*columns, strict=True):
            splits.setdefault(class_name, {})[item] = split
    return splits


def first_numbers(before: Manifest | None) -> Mapping[str, int]:
    """The number of the next shard of any split."""
    first = _first_portion(before) if before is not None and before.info.container == "raw" else 0
    numbers: defaultdict[str, int] = defaultdict(lambda: first)
    for name in () if before is None else before.shard_names:
        if found := SHARD_NAME.fullmatch(name):
            numbers[found[1]] = max(numbers[found[1]], int(found[2]) + 1)
    return numbers


def _first_portion(before: Manifest) -> int:
    """A number that no portion of raw samples has yet, as none of them is smaller than a sample."""
    return len(before)


def entries_before(before: Manifest, ledger: Ledger) -> dict[str, Entry]:
    """The ledger's lines of the shards that are there, made again from the manifest where they are lost.

    Raises DataError if such a shard is missing or cut.
    """
    if before.info.container == "raw":
        first = _first_portion(before)
        return {n: entry for n, entry in ledger.entries.items() if int(Path(n).stem.rpartition("-")[2]) < first}
    entries: dict[str, Entry] = {}
    damaged: list[str] = []
    for name, rows in files_of(before):
        path, samples = before.folder / name, stored_in(before, rows)
        size = path.stat().st_size if path.exists() else 0
        entry = ledger.entries.get(name)
        if entry is None or entry.samples != samples:
            entry = Entry(shard=name, digest="", nbytes=size, samples=samples)
        if size != entry.nbytes or size < samples[-1].offset + samples[-1].nbytes:
            damaged.append(name)
        entries[name] = entry
    if damaged:
        raise DataError(
            f"{before.folder}: {len(damaged):,} shards are missing or cut, first {damaged[0]}; "
            "run `python -m pipeline repair` before anything is appended"
        )
    return entries


def with_old_rows(before: Manifest, columns: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """The manifest's columns, old rows and new ones: split by split, old ones first."""
    both = {name: [*before.table.column(name).to_pylist(), *columns[name]] for name in SCHEMA.names}
    order = sorted(range(len(both["split"])), key=lambda row: rank(both["split"][row]))
    return {name: [values[row] for row in order] for name, values in both.items()}
