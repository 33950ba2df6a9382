"""Tar, Arrow and untouched files hold the same data: the same rows, the same batches, bit for bit."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import datasets
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from rich.console import Console
from webdataset import tariterators

from pipeline.verify import VerifyConfig, verify_shards
from shards import BalancedSampler, Crop, DataError, Manifest, World
from shards.loader import Loader
from shards.reader import Reader
from shards.schema import storage_dtype
from tests.pipeline.corpus import build, contents, write_corpus, write_workbook

CONTAINERS = ("tar", "arrow", "raw")


def built(folder: Path, **options: Any) -> dict[str, Manifest]:
    """The corpus in `folder`, in all three containers."""
    return {name: build(folder, shards=folder / name, format=name, shard_mb=1, **options) for name in CONTAINERS}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Forty-eight samples of four classes."""
    return write_corpus(tmp_path, classes=4, items=4, samples=3, frames=30)


def test_the_three_containers_are_the_same_dataset(corpus: Path) -> None:
    """Row for row; only where the bytes lie differs."""
    tar, arrow, raw = built(corpus).values()

    assert tar.fingerprint == arrow.fingerprint == raw.fingerprint
    for name in ("split", "label", "class", "item", "id", "frames", "nbytes", "source", "checksum"):
        assert tar.table.column(name).to_pylist() == arrow.table.column(name).to_pylist()
        assert tar.table.column(name).to_pylist() == raw.table.column(name).to_pylist()
    for data in (tar, arrow, raw):
        with Reader(data) as reader:
            for row in range(len(data)):
                source = corpus / "features" / f"{data.id(row)}.npy"
                assert reader.read(row).tobytes() == np.load(source).tobytes()


@pytest.mark.parametrize("world", [World(), World(1, 2)])
def test_the_three_containers_give_the_same_batches(corpus: Path, world: World) -> None:
    """The same sampler, the same crops: every batch of an epoch is equal bit for bit."""
    epochs = []
    for data in built(corpus).values():
        sampler = BalancedSampler(data.split("train"), batch_size=4, samples_per_class=2, world=world, seed=7)
        loader = Loader(data, sampler, crop=Crop(frames=20, where="random"), device="cpu", threads=2)
        epochs.append([(b.features.numpy().tobytes(), b.labels.tolist(), b.rows.tolist()) for b in loader])

    assert epochs[0] == epochs[1] == epochs[2]
    assert len(epochs[0]) > 2


@pytest.mark.parametrize("container", CONTAINERS)
def test_a_build_is_the_same_each_time_and_sound(corpus: Path, container: str) -> None:
    """Byte for byte, and verify finds nothing."""
    first, second = (build(corpus, shards=corpus / name, format=container) for name in "ab")

    assert contents(first.folder) == contents(second.folder)
    assert verify_shards(VerifyConfig(shards=first.folder), Console(quiet=True)) == []
    again = build(corpus, shards=corpus / "a", format=container)
    assert again.fingerprint == first.fingerprint


def test_arrow_shards_are_read_by_pyarrow_polars_and_datasets(corpus: Path) -> None:
    """Plain IPC files with six columns; no extension of ours is needed."""
    data = build(corpus, shards=corpus / "arrow", format="arrow")
    paths = [str(data.folder / name) for name in data.shard_names]
    expected = [np.load(corpus / "features" / f"{data.id(row)}.npy") for row in range(len(data))]

    table = pa.concat_tables([pa.ipc.open_file(path).read_all() for path in paths])
    frame = pl.concat([pl.read_ipc(path) for path in paths])
    loaded = datasets.Dataset(datasets.table.InMemoryTable(table))

    for row, array in enumerate(expected):
        assert np.array_equal(np.array(table["features"][row].as_py(), np.float32), array)
        assert np.array_equal(np.array(frame["features"][row].to_list(), np.float32), array)
        assert np.array_equal(np.array(loaded[row]["features"], np.float32), array)
        assert table["id"][row].as_py() == frame["id"][row] == loaded[row]["id"] == data.id(row)
        assert table["label"][row].as_py() == frame["label"][row] == data.labels[row]


def test_payloads_of_arrow_shards_lie_on_pages(tmp_path: Path) -> None:
    """Larger samples each, small ones the first of their batch; and pyarrow's own map shows them there."""
    write_corpus(tmp_path, classes=2, items=2, samples=2, width=128, frames=3000)
    data = build(tmp_path, format="arrow")

    assert np.all(data.offsets % 4096 == 0)
    for name in data.shard_names:
        with pa.memory_map(str(data.folder / name)) as source:
            start = pa.py_buffer(source.read_buffer(1)).address
            reader = pa.ipc.open_file(source)
            rows = np.flatnonzero(np.asarray(data.shard_names)[data.shards] == name)
            for batch, row in enumerate(rows):
                values = reader.get_batch(batch).column("features").values.values
                assert values.buffers()[1].address - start == data.offsets[row]


def test_small_samples_share_a_batch(tmp_path: Path) -> None:
    """A batch's message costs kilobytes: a thousand samples of 100 bytes have few."""
    data = build(write_corpus(tmp_path, classes=10, items=10, samples=10), format="arrow")

    path = data.folder / data.shard_names[0]
    assert pa.ipc.open_file(str(path)).num_record_batches == 1
    assert path.stat().st_size < 3 * int(data.nbytes[data.shards == 0].sum())


def test_raw_writes_nothing_but_a_manifest(corpus: Path) -> None:
    """The feature files stay where they are, untouched."""
    before = {path: path.stat().st_mtime_ns for path in (corpus / "features").iterdir()}

    data = build(corpus, format="raw")

    assert data.root == (corpus / "features").resolve()
    assert data.shard_path(0) == data.root / f"{data.id(0)}.npy"
    assert {path.name for path in data.folder.iterdir() if not path.name.startswith(".")} == {
        "dataset.json", "manifest.arrow", "ledger.jsonl", "report.html",
    }  # fmt: skip
    assert before == {path: path.stat().st_mtime_ns for path in (corpus / "features").iterdir()}


@pytest.mark.parametrize(
    "array",
    [np.asfortranarray(np.ones((5, 4), np.float32)), np.ones((5, 4), ">f4")],
    ids=["Fortran order", "big-endian"],
)
def test_raw_refuses_what_must_be_converted(corpus: Path, array: np.ndarray[Any, Any]) -> None:
    """Tar would convert it; where it lies, a crop of it is no range of its bytes."""
    np.save(corpus / "features" / "000-0-0.npy", array)

    with pytest.raises(DataError, match=r"000-0-0\.npy: cannot be used where it is: .*build with --format tar"):
        build(corpus, format="raw")
    assert len(build(corpus, format="tar")) == 48


def test_raw_with_a_cast_is_refused(corpus: Path) -> None:
    """Every file would have to be written anew."""
    with pytest.raises(DataError, match="48 of 48 rows cannot be used"):
        build(corpus, format="raw", dtype="float16")


def test_another_format_is_another_dataset(corpus: Path) -> None:
    """A finished dataset is not changed into another container without --overwrite; then old shards go last."""
    build(corpus, format="tar")

    with pytest.raises(ValueError, match="format tar -> arrow"):
        build(corpus, format="arrow")
    data = build(corpus, format="arrow", overwrite=True)

    assert {path.suffix for path in data.folder.iterdir() if path.name.startswith(("train", "val"))} == {".arrow"}


@pytest.mark.parametrize("container", ["arrow", "raw"])
def test_verify_finds_any_flipped_bit_in_other_containers(corpus: Path, container: str) -> None:
    """Names the file, the row and the id, in payload and header alike."""
    data = build(corpus, format=container)
    for row, place in ((0, 9), (3, int(data.offsets[3])), (47, int(data.offsets[47] + data.nbytes[47] - 1))):
        path = data.shard_path(row)
        whole = path.read_bytes()
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        (fault,) = verify_shards(VerifyConfig(shards=data.folder), Console(quiet=True))
        assert fault.startswith(f"{data.shard_names[data.shards[row]]} row {row} id {data.id(row)!r}: ")
        path.write_bytes(whole)


def arrays() -> st.SearchStrategy[list[np.ndarray[Any, Any]]]:
    """Some samples of one form: any storage type, 1-D to 3-D, of any finite bits."""

    def of_form(form: tuple[str, tuple[int, ...]]) -> st.SearchStrategy[list[np.ndarray[Any, Any]]]:
        dtype, frame = form
        # numpy saves bfloat16 without its name; its bits are drawn instead, exponents below infinity.
        elements = (
            st.integers(0, 0xFFFF).filter(lambda bits: bits & 0x7F80 != 0x7F80)
            if dtype == "bfloat16"
            else st.floats(allow_nan=False, allow_infinity=False, width={"float16": 16, "float32": 32}.get(dtype, 64))
        )
        bits = np.dtype(np.uint16) if dtype == "bfloat16" else np.dtype(dtype)
        one = st.integers(1, 9).flatmap(lambda frames: npst.arrays(bits, (frames, *frame), elements=elements))
        return st.lists(one.map(lambda array: array.view(storage_dtype(dtype))), min_size=1, max_size=12)

    frames = st.sampled_from([(), (1,), (5,), (2, 3)])
    return st.tuples(st.sampled_from(["float16", "float32", "float64", "bfloat16"]), frames).flatmap(of_form)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(arrays(), st.sampled_from([1, 100]))
def test_any_corpus_comes_back_bit_for_bit_through_all_three(world: list[np.ndarray[Any, Any]], classes: int) -> None:
    """Whatever the type, the shape and the values; by our reader and by those of numpy, webdataset and pyarrow."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "features").mkdir()
        by_id = {f"s{number}": array for number, array in enumerate(world)}
        for key, array in by_id.items():
            np.save(folder / "features" / f"{key}.npy", array)
        rows = [(f"c{number % classes}", f"i{number}", key) for number, key in enumerate(by_id)]
        write_workbook(folder / "index.xlsx", rows)
        bfloat16 = world[0].dtype.name == "bfloat16"
        options: dict[str, Any] = {"dtype": "bfloat16"} if bfloat16 else {}
        tar, arrow, raw = built(folder, **options).values()

        for data in (tar, arrow, raw):
            with Reader(data) as reader:
                found = {data.id(row): reader.read(row) for row in range(len(data))}
            assert found.keys() == by_id.keys()
            assert all(found[key].tobytes() == array.tobytes() for key, array in by_id.items())
            assert all(found[key].shape == array.shape for key, array in by_id.items())
        assert dict(through_webdataset(tar)) == {key: array.tobytes() for key, array in by_id.items()}
        assert dict(through_pyarrow(arrow)) == {key: array.tobytes() for key, array in by_id.items()}


def through_webdataset(data: Manifest) -> Iterator[tuple[str, bytes]]:
    for name in data.shard_names:
        with (data.folder / name).open("rb") as file:
            members = ({**member, "__url__": name} for member in tariterators.tar_file_iterator(file))
            for sample in tariterators.group_by_keys(members):
                yield json.loads(sample["json"])["id"], np.load(io.BytesIO(sample["npy"])).tobytes()


def through_pyarrow(data: Manifest) -> Iterator[tuple[str, bytes]]:
    for name in data.shard_names:
        for batch in pa.ipc.open_file(str(data.folder / name)).read_all().to_batches():
            for row in range(batch.num_rows):
                values = batch["features"][row].values
                while isinstance(values, pa.FixedSizeListArray):
                    values = values.flatten()
                yield batch["id"][row].as_py(), values.to_numpy(zero_copy_only=False).tobytes()
