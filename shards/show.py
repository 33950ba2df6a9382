"""What a dataset holds, for people: its shards, one of its samples, the order of an epoch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import numpy as np
from rich.table import Table

from shards.errors import ConfigError, DataError
from shards.manifest import Manifest
from shards.quality import PlanQuality
from shards.sampler import BalancedSampler
from shards.world import World


@final
@dataclass(frozen=True, kw_only=True)
class ListConfig:
    """Which dataset `ls` lists."""

    shards: Path
    """folder of the dataset"""


@final
@dataclass(frozen=True, kw_only=True)
class ShowConfig:
    """What `show` shows: one sample, or with --plan the order of an epoch."""

    shards: Path
    """folder of the dataset"""
    row: int | None = None
    """sample at this position of the manifest"""
    id: str | None = None
    """samples with this id"""
    plan: bool = False
    """how well an epoch is mixed, and what it asks of the storage"""

    split: str = "train"
    """plan: split that is sampled"""
    batch_size: int = 32
    """plan: samples in one rank's batch"""
    samples_per_class: int = 4
    """plan: samples of each class in a batch"""
    class_weighting: float = 0.0
    """plan: 0: every class equally often; 1: every sample once an epoch"""
    disjoint: Literal["auto", "class", "sample"] = "auto"
    """plan: what ranks never share in an epoch"""
    window: int | None = None
    """plan: shards that a rank has in play at a time; none: all"""
    bucket: int | None = None
    """plan: groups among which samples of like length are drawn; none: length does not matter"""
    ranks: int = 1
    """plan: number of ranks"""
    rank: int = 0
    """plan: the rank that is shown"""
    seed: int = 0
    """plan: order of the samples"""
    epoch: int = 0
    """plan: which epoch"""


def shard_table(config: ListConfig) -> Table:
    """One row a shard: split, samples, classes, size."""
    data = Manifest.open(config.shards)
    table = Table(title=repr(data))
    table.add_column("shard", no_wrap=True)
    table.add_column("split")
    for heading in ("samples", "classes", "frames, median", "GB"):
        table.add_column(heading, justify="right")
    of_split = {split: data.split(split).rows for split in data.splits}
    for split, rows in of_split.items():
        shards = data.shards[rows]
        for shard in np.unique(shards).tolist():
            own = rows[shards == shard]
            table.add_row(
                data.shard_names[shard],
                split,
                f"{len(own):,}",
                f"{len(np.unique(data.labels[own])):,}",
                f"{np.median(data.frames[own]):,.0f}",
                f"{data.nbytes[own].sum() / 1e9:,.3f}",
            )
    table.add_section()
    table.add_row("", "", f"{len(data):,}", f"{len(data.classes):,}", "", f"{data.nbytes.sum() / 1e9:,.3f}")
    return table


def show_lines(config: ShowConfig) -> list[str]:
    """The chosen samples, or the plan, in lines of text; raises ConfigError if nothing is chosen."""
    data = Manifest.open(config.shards)
    if config.plan:
        return plan_lines(data, config)
    if config.row is None and config.id is None:
        raise ConfigError("nothing to show: give --row N, --id ID or --plan (`ls` lists the shards)")
    if config.row is not None:
        if not 0 <= config.row < len(data):
            raise DataError(f"{config.shards}: no row {config.row}; rows go from 0 to {len(data) - 1}")
        return sample_lines(data, config.row)
    rows = [row for row, name in enumerate(data.table.column("id").to_pylist()) if name == config.id]
    if not rows:
        raise DataError(f"{config.shards}: no sample has the id {config.id!r}")
    return [line for row in rows for line in sample_lines(data, row)]


def sample_lines(data: Manifest, row: int) -> list[str]:
    """Every column of one row."""
    values = {name: data.table.column(name)[row].as_py() for name in data.table.schema.names}
    values |= {name: f"{values[name]:016x}" for name in ("checksum", "around")}
    return [f"row {row}", *(f"  {name:<9}{value}" for name, value in values.items())]


def plan_lines(data: Manifest, config: ShowConfig) -> list[str]:
    """What the sampler says of itself, and the quality of its epoch."""

    def sampler(window: int | None) -> BalancedSampler:
        made = BalancedSampler(
            data.split(config.split),
            batch_size=config.batch_size,
            samples_per_class=config.samples_per_class,
            world=World(config.rank, config.ranks),
            seed=config.seed,
            class_weighting=config.class_weighting,
            disjoint=config.disjoint,
            window=window,
            bucket=config.bucket,
        )
        made.set_epoch(config.epoch)
        return made

    chosen = sampler(config.window)
    return [*chosen.describe(), *PlanQuality.of(chosen, sampler(None)).lines()]
