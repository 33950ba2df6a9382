"""Write damaged shards again from the feature files.

The manifest says which samples a shard holds, in which order, and the checksums of every byte. So the shard that
takes a damaged one's place is the one that was there, whatever has become of the index since.
"""

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from pipeline.features import Feature, FeatureFolder, Form, Reading
from pipeline.index import Row
from pipeline.layout import SHARD_NAME, Shard
from pipeline.ledger import locked
from pipeline.pool import ShardPool
from pipeline.progress import progress
from pipeline.shard import Task, Written
from pipeline.verify import VerifyConfig, check_manifest, files_of, find_faults, stored_in
from shards.atomic import remove_leftovers
from shards.errors import DataError
from shards.manifest import Manifest

_MOST_LINES: Final = 20


@dataclass(frozen=True, kw_only=True)
class RepairConfig(VerifyConfig):
    """Write shards that are damaged or missing again from the feature files, the same byte for byte."""

    features: Path
    """Folder of the feature files, where the build had them or where they are now."""


def repair_shards(config: RepairConfig, console: Console | None = None) -> list[str]:
    """Verify the dataset, write the shards with faults again, and return their names.

    Raises DataError for feature files that are missing or not what they were, all together; a shard none of
    whose files is, is written all the same.
    """
    console = console or Console()
    jobs = config.jobs or len(os.sched_getaffinity(0))
    with locked(config.shards):
        check_manifest(config.shards)
        remove_leftovers(config.shards)
        manifest = Manifest.open(config.shards)
        faults = find_faults(manifest, jobs, console)
        damaged = [name for name in faults if name in manifest.shard_names]
        if damaged and manifest.info.container == "raw":
            raise DataError(
                f"{manifest.root}: the samples are feature files, and {len(damaged):,} of these are not what they "
                "were; put them back from a copy, or run the build again with --overwrite to take them as they are"
            )
        _write(config, manifest, damaged, jobs, console)
        extra = [name for name in faults if name not in manifest.shard_names and SHARD_NAME.fullmatch(name)]
        for name in extra:
            (config.shards / name).unlink()
    console.print(f"{len(damaged):,} shards written again, {len(extra):,} removed; all is well", highlight=False)
    return damaged


def _write(config: RepairConfig, manifest: Manifest, names: list[str], jobs: int, console: Console) -> None:
    """Write these shards again; whatever is wrong with one, the others are written."""
    tasks: list[Task] = []
    faults: list[str] = []
    for name, rows in files_of(manifest):
        if name in names:
            task, missing = _task(config, manifest, name, rows)
            faults += missing
            tasks += [] if missing else [task]

    def done(task: Task, written: Written) -> None:
        faults.extend(f"{task.shard.name}: {fault.reason}" for fault in written.faults)

    with progress(console, "writing shards", sum(f.size for task in tasks for f in task.shard.features)) as show:
        ShardPool(tasks, done=done, progress=show).run(jobs)
    if faults:
        shown = [f"\n  {fault}" for fault in faults[:_MOST_LINES]]
        shown += [f"\n  ... and {len(faults) - _MOST_LINES:,} more"] if len(faults) > _MOST_LINES else []
        raise DataError(
            f"{config.shards}: of {len(names):,} damaged shards not all could be written again:{''.join(shown)}"
            "\nput these files back as they were, or run the build again with --overwrite to take them as they are"
        )


def _task(config: RepairConfig, manifest: Manifest, name: str, rows: NDArray[np.int64]) -> tuple[Task, list[str]]:
    """The task of writing one shard again, and what is wrong with its files as far as a listing tells."""
    options = manifest.info.options
    reading = Reading(**{option.name: options[option.name] for option in fields(Reading) if option.name in options})
    form = Form(manifest.info.dtype, manifest.info.frame_shape)
    files = FeatureFolder(config.features, reading)
    columns = (manifest.table.column(column).take(rows).to_pylist() for column in ("class", "item", "id", "source"))
    named = [Row(c, i, id_, None, source, int(row), "") for c, i, id_, source, row in zip(*columns, rows, strict=True)]
    features: list[Feature] = []
    faults: list[str] = []
    for row in named:
        try:
            features.append(files.estimate(row.path, form, growth=1))  # who reads it looks into it
        except DataError as error:
            faults.append(f"{name}: {config.features / row.path}: {error}")
    shard = Shard(
        name=name,
        split=Path(name).stem.rpartition("-")[0],
        rows=tuple(named),
        features=tuple(features),
        labels=tuple(manifest.labels[rows].tolist()),
        nbytes=int(manifest.nbytes[rows].sum()),
        digest="",
    )
    task = Task(
        folder=config.shards,
        features=config.features,
        spare=len(rows),
        reading=reading,
        shard=shard,
        expected=stored_in(manifest, rows),
    )
    return task, faults
