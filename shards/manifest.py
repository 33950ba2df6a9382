"""The manifest: for every sample its file, offset, length and label. All that training knows of the data.

`row` is a position in the whole manifest, `label` a position in `classes`; a *frame* is one time
step of a sample, an array of `frame_shape`.
Two files: `dataset.json` (one small object, with a checksum of itself and one of the other file) and
`manifest.arrow` (Arrow IPC, one record batch, memory-mapped, so that opening costs the same for a thousand
rows and for a million).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, final

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from shards.atomic import atomic_file
from shards.errors import DataError
from shards.schema import DATASET_FILE, MANIFEST_FILE, SCHEMA, VERSION, DatasetInfo, column_array, info_of, numbers

if TYPE_CHECKING:  # they read through the manifest
    from shards.crop import Crop, Transform
    from shards.dataset import SampleDataset

# What a sample *is*. Where it lies (shard, offset) is left out, so that the same samples in other
# containers, or in shards of another size, are the same data.
_CONTENT: Final = ("split", "label", "class", "item", "id", "frames", "checksum")
CURE: Final = "`python -m pipeline reindex` makes it again from the shards"
_UNSEALED: Final = "0" * 16
_PIECE: Final = 4 << 20


@final
@dataclass(frozen=True, kw_only=True)
class Selection:
    """Some rows of a manifest, most often one split; `rows` is int64 and ascending."""

    data: "Manifest"
    name: str
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def labels(self) -> NDArray[np.int32]:
        """Label of each selected row."""
        return self.data.labels[self.rows]

    @cached_property
    def items(self) -> NDArray[np.int32]:
        """Code of each selected row's item; equal codes within one class are one item."""
        return self.data.items[self.rows]


@final
class Manifest:
    """A dataset on disk, opened for reading. Columns are read-only numpy arrays over the map."""

    def __init__(self, folder: Path, info: DatasetInfo, table: pa.RecordBatch, fingerprint: str) -> None:
        self.folder = folder
        self.info = info
        self.table = table
        self.fingerprint = fingerprint
        self.root = folder if info.root is None else Path(info.root)

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Open the dataset in `folder`; raises DataError if there is none, or a half-made one."""
        folder = Path(folder)
        raw = read_dataset_json(folder)
        path = folder / MANIFEST_FILE
        try:
            with pa.memory_map(str(path)) as source:
                reader = pa.ipc.open_file(source)
                schema, table = reader.schema, reader.get_batch(0)
        except (OSError, ValueError) as error:  # pyarrow's own errors are both
            raise DataError(f"{path}: not a readable manifest ({error}); {CURE}") from error
        fingerprint = (schema.metadata or {}).get(b"fingerprint", b"").decode()
        if not schema.equals(SCHEMA):
            raise DataError(f"{path}: columns are {schema.names}, expected {SCHEMA.names}; {CURE}")
        if fingerprint != raw["fingerprint"] or table.num_rows != raw["samples"]:
            raise DataError(
                f"{path}: fingerprint {fingerprint or 'missing'} and {table.num_rows} rows, but "
                f"{DATASET_FILE} says {raw['fingerprint']} and {raw['samples']}: "
                f"the two files are from different builds; {CURE}"
            )
        return cls(folder, info_of(raw), table, fingerprint)

    def __len__(self) -> int:
        return self.table.num_rows

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the dataset itself: a path is sent, not the rows."""
        return type(self).open, (self.folder,)

    def __repr__(self) -> str:
        return (
            f"Manifest({str(self.folder)!r}: {len(self):,} samples, {len(self.classes):,} classes, "
            f"{self.info.dtype}{list(self.info.frame_shape)}, {self.fingerprint})"
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in label order."""
        return self.info.classes

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """First byte of each payload in its shard."""
        return self._numbers("offset")

    @cached_property
    def nbytes(self) -> NDArray[np.int64]:
        """Bytes of each payload: frames * frame_bytes."""
        return self._numbers("nbytes")

    @cached_property
    def frames(self) -> NDArray[np.int64]:
        """Frames (time steps) of each sample."""
        return self._numbers("frames")

    @cached_property
    def labels(self) -> NDArray[np.int32]:
        """Label of each sample."""
        return self._numbers("label")

    @cached_property
    def checksums(self) -> NDArray[np.uint64]:
        """xxh3-64 of each payload."""
        return self._numbers("checksum")

    @cached_property
    def arounds(self) -> NDArray[np.uint64]:
        """xxh3-64 of the bytes around each payload, as `shards.sample` defines them."""
        return self._numbers("around")

    @cached_property
    def items(self) -> NDArray[np.int32]:
        """Code of each sample's item name."""
        return self._codes("item")

    @cached_property
    def shards(self) -> NDArray[np.int32]:
        """Position in `shard_names` of each sample's file."""
        return self._codes("shard")

    @cached_property
    def shard_names(self) -> list[str]:
        """Paths of the files of samples, below `root`."""
        return self._names("shard")

    @cached_property
    def splits(self) -> list[str]:
        """Names of the splits, in row order."""
        return self._names("split")

    def id(self, row: int) -> str:
        """The id of one sample, as the index spelled it."""
        return self.table.column("id")[row].as_py()

    def shard_path(self, row: int) -> Path:
        """The file that holds `row`."""
        return self.root / self.shard_names[self.shards[row]]

    def describe(self, row: int) -> str:
        """Where a sample is, for messages: file, row and id."""
        return f"{self.shard_path(row)}: row {row} (id {self.id(row)!r})"

    def dataset(self, crop: "Crop", *, seed: int = 0, transform: "Transform | None" = None) -> "SampleDataset":
        """A map-style dataset of all rows, for a DataLoader of your own with our sampler."""
        from shards.dataset import SampleDataset  # noqa: PLC0415 - as above

        return SampleDataset(self, crop, seed=seed, transform=transform)

    def split(self, name: str) -> Selection:
        """The rows of one split; raises DataError naming the splits there are."""
        if name not in self.splits:
            raise DataError(f"{self.folder}: no split {name!r}; this dataset has {', '.join(self.splits)}")
        rows = np.flatnonzero(self._codes("split") == self.splits.index(name))
        return Selection(data=self, name=name, rows=rows)

    def _numbers(self, name: str) -> NDArray[Any]:
        return numbers(self.table.column(name))

    def _codes(self, name: str) -> NDArray[np.int32]:
        return numbers(self.table.column(name).indices)

    def _names(self, name: str) -> list[str]:
        return self.table.column(name).dictionary.to_pylist()


def write_manifest(folder: Path, info: DatasetInfo, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> Manifest:
    """Write both files and return the manifest opened; `dataset.json` comes last and makes it exist.

    `columns` has the names of SCHEMA, one entry per row: strings for split, shard, class, item and
    id, integers for the rest.
    """
    arrays = [column_array(columns[field.name], field.type) for field in SCHEMA]
    table = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    fingerprint = content_fingerprint(info, table)
    schema = SCHEMA.with_metadata({"fingerprint": fingerprint, "version": str(VERSION)})
    with atomic_file(folder / MANIFEST_FILE) as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(table)
    head = {
        "format": "headrace",
        "version": VERSION,
        "fingerprint": fingerprint,
        "samples": table.num_rows,
        "manifest": file_checksum(folder / MANIFEST_FILE),
    }
    with atomic_file(folder / DATASET_FILE) as file:
        file.write(_sealed(json.dumps(head | asdict(info) | {"checksum": _UNSEALED}, ensure_ascii=False, indent=1)))
    return Manifest.open(folder)


def file_checksum(path: Path) -> str:
    """xxh3-128 of a whole file, in hexadecimal; raises OSError."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def content_fingerprint(info: DatasetInfo, table: pa.RecordBatch) -> str:
    """xxh3-128 of what the samples are, in row order: names as JSON, numbers and codes as bytes.

    Nothing of Arrow's own encoding goes in, which may change from one release to the next.
    """
    digest = xxhash.xxh3_128()

    def add_json(value: Any) -> None:
        digest.update(json.dumps(value, ensure_ascii=False).encode())

    add_json([info.dtype, info.frame_shape, info.classes])
    for name in _CONTENT:
        column = table.column(name)
        if isinstance(column, pa.DictionaryArray):
            add_json(column.dictionary.to_pylist())
            column = column.indices
        if pa.types.is_large_string(column.type):
            add_json(column.to_pylist())
        else:
            digest.update(numbers(column).data)
    return digest.hexdigest()


def read_dataset_json(folder: Path) -> dict[str, Any]:
    """The object of `dataset.json`; raises DataError if there is none, or not one that this program wrote."""
    path = folder / DATASET_FILE
    try:
        written = path.read_bytes()
    except FileNotFoundError:
        hint = (
            "a build is not finished there; run the same build again to finish it"
            if (folder / "ledger.jsonl").exists()
            else "no dataset is there; make one with `make shards` or `python -m pipeline build`"
        )
        raise DataError(f"{path}: no such file: {hint}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the disk and the permissions") from error
    try:
        text = written.decode()
        raw: dict[str, Any] = dict(json.loads(text))
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: not valid JSON ({error}); {CURE}") from error
    if raw.get("format") != "headrace" or raw.get("version") != VERSION:
        raise DataError(
            f"{path}: format {raw.get('format')!r} version {raw.get('version')!r}; this program reads "
            f"'headrace' version {VERSION}; build the shards again or install a matching headrace"
        )
    if written != _sealed(text):
        raise DataError(f"{path}: was changed by hand or damaged, its checksum is not that of its text; {CURE}")
    return raw


def _sealed(text: str) -> bytes:
    """The text of `dataset.json` with its last value, 16 hexadecimal digits, set to the xxh3-64 of the text in
    which they are zeros.
    """
    end = len('"\n}')
    unsealed = text[: -end - len(_UNSEALED)] + _UNSEALED + text[-end:]
    seal = xxhash.xxh3_64_hexdigest(unsealed.encode())
    return (text[: -end - len(_UNSEALED)] + seal + text[-end:]).encode()
