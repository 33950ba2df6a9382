"""All that is decided before the first byte is written: rows, form, splits, layout.

Everything that a listing and the headers of the files can tell is found out here, and all that is wrong
is reported together.
"""

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import compress
from pathlib import Path
from typing import Any, Final, Literal

from pipeline.append import check_options, first_numbers, new_samples, splits_of
from pipeline.features import Feature, Form, Reading, check_form
from pipeline.index import Columns, Index, read_index
from pipeline.layout import Layout, lay_out
from pipeline.pattern import DEFAULT_PATTERN, Pattern
from pipeline.rejects import Reject, allowed_rejects, listing
from pipeline.scan import common_form, look_at_all
from pipeline.split import SplitOptions, assign
from shards.errors import ConfigError, DataError
from shards.manifest import Manifest
from shards.schema import Container

_PT_OVERHEAD: Final = 1 << 16  # bytes of a torch file around its tensor, well rounded up


@dataclass(frozen=True, kw_only=True)
class CorpusConfig(Reading):
    """An index and a folder of feature files."""

    index: Path
    """The index: .xlsx, .csv or .parquet, one row a sample."""
    features: Path
    """Folder of the feature files."""
    pattern: str = DEFAULT_PATTERN
    """Path of a sample's file below FEATURES, such as {id}.pt or {cls}/{item}/{id}.npy. Its suffix says how files are
    read: .npy, .npz, .pt, .pth, .safetensors, .h5, .hdf5, or one of your own."""
    sheet: list[str] | str | None = None
    """Sheet of the workbook; several as [one, two]. Default: all visible ones that have the columns."""
    fill_merged: bool = False
    """Give class and item cells that are merged downwards to every row that they span."""
    encoding: str | None = None
    """Encoding of a .csv index, such as gb18030. Default: UTF-8, or what its byte-order mark says."""
    columns: Columns = field(default_factory=Columns)
    """Names of the index's columns."""

    def __post_init__(self) -> None:
        super().__post_init__()
        Pattern(self.pattern)
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ConfigError(f"encoding {self.encoding!r}: not known; such as gb18030, utf-16 or cp1252") from None


@dataclass(frozen=True, kw_only=True)
class BuildConfig(CorpusConfig):
    """Turn an index and a folder of feature files into shards."""

    shards: Path = Path("data/shards")
    """Folder to write to; made if it is not there. A build that was cut short goes on there."""
    format: Container = "tar"
    """What samples are packed in: tar shards (of .npy files), arrow shards (IPC files), or raw: nothing is written
    but a manifest over the feature files, which must be .npy files that hold what would be stored."""
    split: SplitOptions = field(default_factory=SplitOptions)
    """Which samples are held out."""
    max_rejects: int | str = 0
    """Rows and files that cannot be used: how many may be left out and listed in rejects.csv and .xlsx, a
    count (20) or a share of the rows (1%). One more stops the build."""
    shard_mb: int = 1024
    """About how many MiB a shard has."""
    jobs: int | None = None
    """Processes, each writing one shard at a time. Default: one a CPU."""
    engine: Literal["local", "dask"] = "local"
    """Where shards are written: by processes of this machine, or by the workers of a dask cluster that all see the
    same folders (pip install 'headrace[cluster]' there and here)."""
    scheduler: str | None = None
    """With --engine dask: the address of its scheduler, tcp://host:port. Each of its workers' threads writes one
    shard at a time."""
    overwrite: bool = False
    """Change a finished dataset in SHARDS; shards that stay the same are kept."""
    append: bool = False
    """Add the index's new samples and classes to the dataset in SHARDS; no old shard is written again, no old label
    or split changes. The index may hold the old samples too."""
    dry_run: bool = False
    """Print the layout and write nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed_rejects(self.max_rejects, 0)
        if self.shard_mb < 1:
            raise ConfigError(f"shard_mb {self.shard_mb}: a shard has at least 1 MiB")
        if self.append and self.overwrite:
            raise ConfigError("append and overwrite: one keeps what is there, the other replaces it; give one of them")
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"jobs {self.jobs}: at least one process must write")
        if self.engine == "dask" and not self.scheduler:
            raise ConfigError("engine dask without scheduler: give the address of yours, --scheduler tcp://host:port")
        if self.engine == "dask" and self.jobs is not None:
            raise ConfigError(f"jobs {self.jobs} with engine dask: its workers have their own --nthreads; leave it out")
        if self.engine != "dask" and self.scheduler is not None:
            raise ConfigError(f"scheduler {self.scheduler} with engine {self.engine}: give --engine dask to use it")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """What an index and its files' headers say: the rows that can be used, and their files in the same order."""

    index: Index
    features: Sequence[Feature]
    form: Form | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All that is decided before the first byte is written.

    before    the dataset that this one is added to, none of whose samples is in `layout`
    """

    index: Index
    reading: Reading
    form: Form
    layout: Layout
    options: Mapping[str, Any]
    notes: Sequence[str]
    before: Manifest | None = None


def reading_of(config: CorpusConfig) -> Reading:
    """How arrays are taken out of their files, apart from where these are."""
    return Reading(**{option.name: getattr(config, option.name) for option in fields(Reading)})


def read_corpus(config: CorpusConfig, *, in_place: bool = False, form: Form | None = None) -> Corpus:
    """Read the index and every file's header; what is wrong with a file makes its row a reject.

    in_place    the files must hold what would be stored, byte for byte
    form        what they must be of; None: of what most are
    """
    index = read_index(
        config.index,
        config.features,
        columns=config.columns,
        sheets=[config.sheet] if isinstance(config.sheet, str) else config.sheet,
        fill_merged=config.fill_merged,
        encoding=config.encoding,
        pattern=config.pattern,
    )
    found = look_at_all(config.features, [row.path for row in index.rows], reading_of(config))
    form = form or common_form(found)
    if in_place:
        found = [_in_place(feature) for feature in found]
    features, faults = _sound(index, found, form)
    index = index.reject(faults)
    if config.dtype is None:
        index = replace(index, notes=(*index.notes, *_large_files(features)))
    return Corpus(index=index, features=features, form=form)


def _large_files(features: Sequence[Feature]) -> list[str]:
    """A note on torch files that hold much more than what is taken from them."""
    large = [f for f in features if f.path.endswith((".pt", ".pth")) and f.size > 1.5 * f.nbytes + _PT_OVERHEAD]
    if not large:
        return []
    sizes = f"{large[0].path!r} has {large[0].size:,} bytes for {large[0].nbytes:,}"
    return [
        f"torch files that hold more than their array, the whole of which it is a view perhaps: {len(large):,}, {sizes}"
    ]


def make_plan(config: BuildConfig, before: Manifest | None = None) -> Plan:
    """Read the index and every file's header, split and lay out; writes nothing.

    before    the dataset to add to: only samples that it has not are laid out
    """
    form = None
    if before is not None:
        check_options(before, {**asdict(reading_of(config)), "format": config.format}, root_of(config))
        form = Form(before.info.dtype, before.info.frame_shape)
    corpus = read_corpus(config, in_place=config.format == "raw", form=form)
    index, features, form = corpus.index, corpus.features, corpus.form
    if form is None or not index.rows or len(index.rejects) > allowed_rejects(config.max_rejects, index.rows_read):
        cure = f"leave them out with --max-rejects {len(index.rejects)}" if index.rows else "give another --features"
        raise DataError(
            f"{config.index}: {len(index.rejects):,} of {index.rows_read:,} rows cannot be used, --max-rejects is "
            f"{config.max_rejects}; nothing was written\n{listing(index.rejects)}\ncorrect them, or {cure}"
        )
    reading = reading_of(config)
    options = _options(config, index)
    rows = index.rows
    if before is not None:
        check_options(before, {"split": options["split"]}, root_of(config))
        new = new_samples(before, index, features, exact=config.features_from is None)
        rows, features = tuple(compress(rows, new)), tuple(compress(features, new))
    splits, notes = assign(rows, config.split, splits_of(before))
    layout = lay_out(
        rows,
        features,
        splits,
        form=form,
        shard_bytes=config.shard_mb << 20,
        reading=reading,
        container=config.format,
        classes=() if before is None else before.classes,
        numbers=first_numbers(before),
    )
    return Plan(
        index=index,
        reading=reading,
        form=form,
        layout=layout,
        options=options,
        notes=(*index.notes, *notes),
        before=before,
    )


def _options(config: BuildConfig, index: Index) -> dict[str, Any]:
    """How the shards are made, for `dataset.json`."""
    return {
        "index": config.index.name,
        "sheets": list(index.sheets),
        "pattern": config.pattern,
        "split": "column" if index.rows[0].split is not None else asdict(config.split),
        **asdict(reading_of(config)),
        "format": config.format,
        "shard_mb": config.shard_mb,
        "rows_read": index.rows_read,
        "rows_kept": len(index.rows),
        "rows_rejected": len(index.rejects),
    }


def root_of(config: BuildConfig) -> str | None:
    """The folder that the manifest's file names are below, if it is not that of the shards."""
    return str(config.features.resolve()) if config.format == "raw" else None


def _in_place(feature: Feature | DataError) -> Feature | DataError:
    if isinstance(feature, DataError) or feature.in_place:
        return feature
    return DataError(
        f"cannot be used where it is: a .npy file in C order, little-endian, of {feature.form.dtype} and with time "
        "first could; build with --format tar"
    )


def _sound(index: Index, found: Sequence[Feature | DataError], form: Form | None) -> tuple[list[Feature], list[Reject]]:
    """The files that can be used, and the rows of those that are damaged or not like most."""
    features: list[Feature] = []
    faults: list[Reject] = []
    for row, feature in zip(index.rows, found, strict=True):
        try:
            if isinstance(feature, DataError):
                raise feature
            if form is not None:
                check_form(feature.form, form)
            features.append(feature)
        except DataError as error:
            faults.append(Reject(row.sheet, row.row, row.id, f"{index.features / row.path}: {error}"))
    return features, faults
