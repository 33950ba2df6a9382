"""docs/FORMAT.md says what is so: its readers read, its fingerprint is the one on disk."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from shards import Manifest
from shards.schema import Container
from tests.pipeline.corpus import build, write_corpus

PAGE = (Path(__file__).parents[2] / "docs" / "FORMAT.md").read_text(encoding="utf-8")


@pytest.fixture
def dataset(tmp_path: Path) -> Manifest:
    """Eighteen samples, some held out."""
    return build(write_corpus(tmp_path))


@pytest.mark.parametrize("container", ["arrow", "raw"])
def test_the_ten_line_reader_reads_the_other_containers_too(
    tmp_path: Path, documented: dict[str, Any], container: Container
) -> None:
    """A sample is a byte range."""
    data = build(write_corpus(tmp_path), format=container)
    for row in range(len(data)):
        array, _ = documented["read_sample"](data.folder, row)
        assert np.array_equal(array, np.load(tmp_path / "features" / f"{data.id(row)}.npy"))


@pytest.fixture
def documented() -> dict[str, Any]:
    """The functions that the page defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, names)
    return names


def test_the_ten_line_reader_reads_every_sample(dataset: Manifest, documented: dict[str, Any], tmp_path: Path) -> None:
    """From the page as it stands, with numpy and pyarrow alone."""
    for row in range(len(dataset)):
        array, name = documented["read_sample"](dataset.folder, row)
        assert np.array_equal(array, np.load(tmp_path / "features" / f"{dataset.id(row)}.npy"))
        assert name == dataset.classes[dataset.labels[row]]


def test_the_reader_of_shards_alone_reads_every_sample(
    dataset: Manifest, documented: dict[str, Any], tmp_path: Path
) -> None:
    """In the manifest's order."""
    found = [sample for name in dataset.shard_names for sample in documented["read_shard"](dataset.folder / name)]

    assert len(found) == len(dataset)
    for row, (array, label, described) in enumerate(found):
        assert described["id"] == dataset.id(row)
        assert label == dataset.labels[row]
        assert np.array_equal(array, np.load(tmp_path / "features" / described["source"]))


def test_the_fingerprint_is_computed_as_the_page_says(dataset: Manifest) -> None:
    """So that others can write datasets too."""

    def as_json(value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False).encode()

    raw = json.loads((dataset.folder / "dataset.json").read_bytes())
    parts = [as_json([raw["dtype"], raw["frame_shape"], raw["classes"]])]
    for name in ("split", "label", "class", "item", "id", "frames", "checksum"):
        values = dataset.table.column(name).to_pylist()
        if name in {"split", "class", "item"}:
            names = list(dict.fromkeys(values))
            parts += [as_json(names), np.array([names.index(value) for value in values], "<i4").tobytes()]
        elif name == "id":
            parts.append(as_json(values))
        else:
            parts.append(np.array(values, {"label": "<i4", "frames": "<i8", "checksum": "<u8"}[name]).tobytes())

    assert xxhash.xxh3_128_hexdigest(b"".join(parts)) == raw["fingerprint"] == dataset.fingerprint


def test_the_page_names_every_column_with_its_type(dataset: Manifest) -> None:
    """The table of the manifest is complete and in order."""
    rows = re.findall(r"^\| `(\w+)` \| ([\w<>, ]+?) \|", PAGE.partition("## manifest.arrow")[2], re.MULTILINE)
    columns = [row for row in rows if re.match(r"(dictionary|u?int|large_string)", row[1])][: len(dataset.table.schema)]

    assert columns == [
        (field.name, str(field.type).replace("values=", "").replace("indices=int32, ordered=0", "").strip())
        if not str(field.type).startswith("dictionary")
        else (field.name, "dictionary<int32, large_string>")
        for field in dataset.table.schema
    ]
