"""Carry out a plan: write the shards, then the manifest.

Shards come first, each durable before its line in the ledger; `dataset.json` comes last and makes the
dataset exist. A build that is killed anywhere and run again gives the same bytes.
"""

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields
from functools import reduce
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.filesize import decimal

from pipeline.append import entries_before, forget_manifest, keep_manifest, open_before, with_old_rows
from pipeline.cluster import ClusterPool
from pipeline.features import Form
from pipeline.index import Index
from pipeline.layout import SHARD_NAME, Shard
from pipeline.ledger import Entry, Ledger, locked
from pipeline.plan import BuildConfig, Plan, make_plan, root_of
from pipeline.pool import ShardPool
from pipeline.progress import layout_table, progress
from pipeline.rejects import Reject, allowed_rejects, listing, plain, write_rejects
from pipeline.report import REPORT_FILE, Run, report_of_build, write_report
from pipeline.shard import Task, Written
from pipeline.values import CastLoss
from shards.atomic import fsync_folder, remove_leftovers
from shards.errors import ConfigError, DataError
from shards.manifest import Manifest, write_manifest
from shards.sample import Stored
from shards.schema import DATASET_FILE, SCHEMA, DatasetInfo

__all__ = ["BuildConfig", "build_shards"]

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def build_shards(config: BuildConfig, console: Console | None = None) -> Manifest | None:
    """Make the dataset that `config` describes and open it; None after a dry run.

    Raises DataError for what is wrong on disk, all bad rows together, and ConfigError for options.
    """
    console = console or Console()
    run = Run()
    with ExitStack() as held:
        if config.append:
            held.enter_context(locked(config.shards))
        plan = make_plan(config, open_before(config.shards) if config.append else None)
        for note in plan.notes:
            console.print(f"note: {plain(note)}", style="yellow", markup=False, soft_wrap=True)
        if plan.before is not None:
            new = sum(len(shard.rows) for shard in plan.layout.shards)
            console.print(f"{len(plan.before):,} samples are there and stay; {new:,} are new", highlight=False)
        if config.dry_run:
            console.print(layout_table(plan.layout))
            return None
        if plan.before is not None and not plan.layout.shards:
            return plan.before
        if not config.append:
            held.enter_context(locked(config.shards))
        manifest, index = _build(config, plan, console, run)
    _summarise(console, index, manifest, run)
    return manifest


def _build(config: BuildConfig, plan: Plan, console: Console, run: Run) -> tuple[Manifest, Index]:
    """Write what is missing, then make the dataset exist; returns it and the index without samples found bad."""
    remove_leftovers(config.shards)
    ledger = Ledger(config.shards)
    whole = ledger.whole(plan.layout.shards)
    _check_rejects(config, plan, _late(plan, whole), whole)
    _refuse_to_change(config, plan, ledger, len(whole))
    missing = [shard for shard in plan.layout.shards if shard.name not in whole]
    if missing and config.format != "raw":
        _check_space(config.shards, missing)
    kept = whole if plan.before is None else {**entries_before(plan.before, ledger), **whole}
    if missing or kept.keys() != ledger.entries.keys():
        ledger.keep(kept)
    if missing:
        total = sum(feature.size for shard in missing for feature in shard.features)
        with progress(console, "writing shards", total) as show:
            _write(config, plan, missing, ledger, run.watched(show))
    index = plan.index.reject(_late(plan, ledger.entries))
    run.end(len(missing), sum(ledger.entries[shard.name].nbytes for shard in missing))
    return _commit(config, plan, index, ledger, run), index


def _refuse_to_change(config: BuildConfig, plan: Plan, ledger: Ledger, whole: int) -> None:
    """Raise ConfigError if a finished dataset would become another; with --overwrite, unmake it first."""
    path = config.shards / DATASET_FILE
    if plan.before is not None or not path.exists():
        return
    planned = {shard.name: shard.digest for shard in plan.layout.shards}
    there = {name: entry.digest for name, entry in ledger.entries.items()}
    if planned == there:
        return
    if not config.overwrite:
        options: Mapping[str, Any] = {}
        with suppress(ValueError, KeyError):  # a damaged one is still somebody's
            options = json.loads(path.read_bytes())["options"]
        changed = [f"{key} {options.get(key)} -> {new}" for key, new in plan.options.items() if options.get(key) != new]
        raise ConfigError(
            f"{config.shards}: holds a finished dataset that this build would change: of {len(planned):,} shards "
            f"{whole:,} stay as they are ({'; '.join(changed) or 'files or labels differ, or the ledger is damaged'}); "
            "give --append to add samples, --overwrite to change it, or another folder as --shards"
        )
    path.unlink()
    fsync_folder(config.shards)


def _check_space(folder: Path, missing: list[Shard]) -> None:
    """Raise DataError now if the disk would be full later."""
    needed = sum(shard.nbytes for shard in missing)
    replaced = sum((folder / shard.name).stat().st_size for shard in missing if (folder / shard.name).exists())
    free = shutil.disk_usage(folder).free
    if needed - replaced > free:
        raise DataError(
            f"{folder}: the shards need {decimal(needed - replaced)}, but {decimal(free)} are free; nothing was "
            "written; make room, or choose another folder as --shards"
        )


def _late(plan: Plan, whole: Mapping[str, Entry | Written]) -> list[Reject]:
    """The samples that turned out to be bad when their shards, those of `whole`, were written."""
    faults = [(shard.rows, whole[shard.name].faults) for shard in plan.layout.shards if shard.name in whole]
    bad = [(rows[fault.position], fault.reason) for rows, of_shard in faults for fault in of_shard]
    return [Reject(row.sheet, row.row, row.id, reason) for row, reason in bad]


def _check_rejects(config: BuildConfig, plan: Plan, late: list[Reject], whole: Mapping[str, Entry]) -> None:
    """Raise DataError if more rows than may be, or all, had to be left out."""
    index = plan.index
    count = len(index.rejects) + len(late)
    if count > allowed_rejects(config.max_rejects, index.rows_read) or count == index.rows_read:
        raise DataError(
            f"{config.index}: {count:,} of {index.rows_read:,} rows cannot be used, --max-rejects is "
            f"{config.max_rejects}; found while writing:\n{listing(late)}\ncorrect them and run the same build again, "
            f"or give a larger --max-rejects to leave them out and go on; {len(whole):,} finished shards are kept"
        )


def _write(config: BuildConfig, plan: Plan, missing: list[Shard], ledger: Ledger, show: Callable[[int], None]) -> None:
    """Write the missing shards; finished ones stay whatever happens to the others."""
    late = _late(plan, ledger.entries)

    def done(task: Task, written: Written) -> None:
        shard = task.shard
        if len(written.stored) + len(written.faults) == len(shard.rows):
            ledger.append(
                Entry(
                    shard=shard.name,
                    digest=shard.digest,
                    nbytes=written.nbytes,
                    samples=written.stored,
                    loss=written.loss,
                    faults=written.faults,
                )
            )
        late.extend(_late(plan, {shard.name: written}))
        _check_rejects(config, plan, late, ledger.entries)

    spare = allowed_rejects(config.max_rejects, plan.index.rows_read) - len(plan.index.rejects) - len(late)
    tasks = [
        Task(
            folder=config.shards,
            features=config.features,
            spare=spare,
            reading=plan.reading,
            shard=shard,
        )
        for shard in missing
    ]
    try:
        if config.scheduler is None:
            ShardPool(tasks, done=done, progress=show).run(config.jobs or len(os.sched_getaffinity(0)))
        else:
            ClusterPool(tasks, done=done, progress=show).run(config.scheduler)
    except OSError as error:
        raise _disk_error(config.shards, missing, ledger, error) from error


def _disk_error(folder: Path, missing: list[Shard], ledger: Ledger, error: OSError) -> DataError:
    left = sum(shard.nbytes for shard in missing if shard.name not in ledger.entries)
    what = "the disk is full" if error.errno in _FULL else f"writing failed ({error.strerror})"
    return DataError(
        f"{folder}: {what}: {decimal(left)} are still to be written, {decimal(shutil.disk_usage(folder).free)} are "
        f"free; {len(ledger.entries):,} finished shards are kept; make room and run the same build again"
    )


def _columns(shards: Sequence[Shard], ledger: Ledger) -> dict[str, list[Any]]:
    """The manifest's columns: what was planned and has been written."""
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for shard in shards:
        samples = ledger.entries[shard.name].samples
        bad = {fault.position for fault in ledger.entries[shard.name].faults}
        kept = [position for position in range(len(shard.rows)) if position not in bad]
        columns["split"] += [shard.split] * len(samples)
        raw = shard.name.endswith(".raw")
        columns["shard"] += [shard.rows[position].path if raw else shard.name for position in kept]
        columns["label"] += [shard.labels[position] for position in kept]
        columns["class"] += [shard.rows[position].class_name for position in kept]
        columns["item"] += [shard.rows[position].item for position in kept]
        columns["id"] += [shard.rows[position].id for position in kept]
        columns["source"] += [shard.rows[position].path for position in kept]
        for field in fields(Stored):
            columns[field.name] += [getattr(sample, field.name) for sample in samples]
    return columns


def _commit(config: BuildConfig, plan: Plan, index: Index, ledger: Ledger, run: Run) -> Manifest:
    """Make the dataset exist, then remove what it does not list: old shards, and what killed workers left."""
    folder = config.shards
    columns = _columns(plan.layout.shards, ledger)
    if plan.before is not None:
        columns = with_old_rows(plan.before, columns)
    info = DatasetInfo(
        dtype=plan.form.dtype,
        frame_shape=plan.form.frame_shape,
        classes=plan.layout.classes,
        container=config.format,
        root=root_of(config),
        options={**plan.options, "rows_kept": len(index.rows), "rows_rejected": len(index.rejects)},
    )
    write_rejects(folder, index.rejects)
    loss = reduce(CastLoss.and_also, (entry.loss for entry in ledger.entries.values()))
    report = report_of_build(info=info, index=index, notes=plan.notes, columns=columns, loss=loss, run=run)
    write_report(folder / REPORT_FILE, report)
    if plan.before is not None:
        keep_manifest(folder)
    manifest = write_manifest(folder, info, columns)
    if plan.before is not None:
        forget_manifest(folder)
    for path in folder.iterdir():
        if SHARD_NAME.fullmatch(path.name) and path.name not in manifest.shard_names:
            path.unlink()
    remove_leftovers(folder)
    return manifest


def _summarise(console: Console, index: Index, manifest: Manifest, run: Run) -> None:
    console.print(
        index.counts + f"\n{len(manifest.classes):,} classes, {len(manifest.shard_names):,} shards, "
        f"{decimal(int(manifest.nbytes.sum()))} of features, {Form(manifest.info.dtype, manifest.info.frame_shape)}"
        f"\n{run}\nreport: {manifest.folder / REPORT_FILE}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
