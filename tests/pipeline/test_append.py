"""`build --append`: what is new comes in, and nothing that is there changes."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pipeline import append
from pipeline.layout import SHARD_NAME
from pipeline.reindex import ReindexConfig, reindex_shards
from pipeline.repair import RepairConfig, repair_shards
from pipeline.split import SplitOptions
from pipeline.verify import VerifyConfig, verify_shards
from shards import ConfigError, DataError, Manifest
from shards.schema import Container
from tests.pipeline.corpus import build, contents, spoil, write_corpus, write_features, write_workbook

QUIET = Console(quiet=True)
Rows = Sequence[tuple[str, str, str]]


def rows_of(classes: Sequence[str], items: Sequence[int], samples: int = 2) -> Rows:
    return [(c, f"item {i}", f"{c}-{i}-{s}") for c in classes for i in items for s in range(samples)]


OLD = rows_of(["000", "001", "002"], [0, 1, 2])
# A class before the old ones in text order, one after them, a new item and a new sample of an old item.
NEW = [*rows_of(["0", "zoo"], [0, 1]), *rows_of(["001"], [7]), ("002", "item 1", "002-1-9")]


def add(folder: Path, rows: Rows, **features: int) -> None:
    """Write files of these rows, and an index of them."""
    write_features(folder / "features", [id_ for *_, id_ in rows], **features)
    write_workbook(folder / "index.xlsx", rows)


def samples_of(data: Manifest) -> dict[str, tuple[Any, ...]]:
    """Class, label, item, split and content of every sample, by its id."""
    ids, items, splits = (data.table.column(name).to_pylist() for name in ("id", "item", "split"))
    found: dict[str, tuple[Any, ...]] = {}
    for row, id_ in enumerate(ids):
        start = data.offsets[row]
        payload = data.shard_path(row).read_bytes()[start : start + data.nbytes[row]]
        found[id_] = data.classes[data.labels[row]], int(data.labels[row]), items[row], splits[row], payload
    return found


def assert_sound(folder: Path) -> None:
    assert verify_shards(VerifyConfig(shards=folder / "shards"), QUIET) == []
    assert not [path for path in (folder / "shards").iterdir() if path.name.startswith(".") and path.name != ".lock"]


@pytest.mark.parametrize("container", ["tar", "arrow", "raw"])
@pytest.mark.parametrize("with_old", [True, False], ids=["old and new rows", "new rows"])
def test_new_samples_come_in_and_old_ones_stay_as_they_were(
    tmp_path: Path, container: Container, *, with_old: bool
) -> None:
    """Shards, labels, splits and bytes; new classes get the labels that follow."""
    before = build(write_corpus(tmp_path), format=container)
    old, files = samples_of(before), contents(before.folder)
    add(tmp_path, [*OLD, *NEW] if with_old else NEW)
    data = build(tmp_path, format=container, append=True)

    now = samples_of(data)
    assert {id_: now[id_] for id_ in old} == old
    assert set(now) == {id_ for *_, id_ in [*OLD, *NEW]}
    assert data.classes == ("000", "001", "002", "0", "zoo")
    assert {id_: now[id_][0] for *_, id_ in NEW} == {id_: class_name for class_name, _, id_ in NEW}
    assert all(now[id_][4].endswith(np.load(tmp_path / "features" / f"{id_}.npy").tobytes()) for *_, id_ in NEW)
    after = contents(data.folder)
    assert {name: content for name, content in files.items() if SHARD_NAME.fullmatch(name)}.items() <= after.items()
    assert_sound(tmp_path)


def test_appending_again_changes_nothing(tmp_path: Path) -> None:
    """Not a byte and not a time."""
    build(write_corpus(tmp_path))
    add(tmp_path, NEW)
    build(tmp_path, append=True)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "shards").iterdir() if path.name != ".lock"}

    build(tmp_path, append=True)

    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "shards").iterdir() if path.name != ".lock"}


def test_an_item_stays_in_its_split_and_new_items_fill_the_shares_up(tmp_path: Path) -> None:
    """So nothing that was trained on is validated on, nor the other way round."""
    write_corpus(tmp_path, classes=2, items=10, samples=1)
    old = samples_of(build(tmp_path, split=SplitOptions(val=0.3)))
    new = rows_of(["000"], range(10, 20), 1)
    more = [(c, i, f"{id_}-more") for c, i, id_ in rows_of(["000"], range(10), 1)]
    add(tmp_path, [*new, *more])

    now = samples_of(build(tmp_path, split=SplitOptions(val=0.3), append=True))

    assert all(now[f"{id_}-more"][3] == old[id_][3] for *_, id_ in rows_of(["000"], range(10), 1))
    assert [now[id_][3] for *_, id_ in new].count("val") == 3
    assert_sound(tmp_path)


def test_whole_classes_that_were_held_out_stay_so(tmp_path: Path) -> None:
    """With split by class, a new sample goes where its class is."""
    write_corpus(tmp_path, classes=5)
    old = samples_of(build(tmp_path, split=SplitOptions(by="class", val=0.2)))
    add(tmp_path, [(f"{c:03d}", "item new", f"{c:03d}-new") for c in range(5)])

    now = samples_of(build(tmp_path, split=SplitOptions(by="class", val=0.2), append=True))

    assert all(now[f"{c:03d}-new"][3] == old[f"{c:03d}-0-0"][3] for c in range(5))


def test_rows_that_say_something_else_of_an_old_sample_are_refused_together(tmp_path: Path) -> None:
    """Class, item, length or id of its file; nothing is written."""
    build(write_corpus(tmp_path))
    before = contents(tmp_path / "shards")
    np.save(tmp_path / "features" / "002-0-0.npy", np.zeros((99, 4), np.float32))
    rows = [("other", "item 0", "000-0-0"), ("001", "item 9", "001-0-0"), OLD[12], ("000", "item 0", "000-0-1.npy")]
    write_workbook(tmp_path / "index.xlsx", rows)

    with pytest.raises(DataError, match="4 rows say something else than the dataset") as error:
        build(tmp_path, append=True)

    for says in (
        "index!2: id '000-0-0': class '000' is now 'other'",
        "index!3: id '001-0-0': item 'item 0' is now 'item 9'",
        "index!4: id '002-0-0': frames 5 is now 99",
        "index!5: id '000-0-1.npy': its file is that of id '000-0-1'",
    ):
        assert says in str(error.value)
    assert contents(tmp_path / "shards") == before


def test_other_options_than_the_datasets_are_refused_by_name(tmp_path: Path) -> None:
    """But for those that do not decide what a sample is."""
    build(write_corpus(tmp_path))
    add(tmp_path, NEW)
    with pytest.raises(ConfigError, match="dtype None -> float16; format tar -> arrow"):
        build(tmp_path, append=True, dtype="float16", format="arrow")
    with pytest.raises(ConfigError, match="append and overwrite"):
        build(tmp_path, append=True, overwrite=True)
    with pytest.raises(ConfigError, match=r"split \{'by': 'item', 'val': 0.1, .* -> column"):
        write_workbook(
            tmp_path / "split.xlsx", [(*row, "val") for row in NEW], header=("a_cls", "a_item", "a_id", "split")
        )
        build(tmp_path, append=True, index=tmp_path / "split.xlsx")
    assert len(build(tmp_path, append=True, shard_mb=7)) == len(OLD) + len(NEW)


def test_a_file_of_another_form_is_a_reject_even_if_most_new_ones_are_like_it(tmp_path: Path) -> None:
    """The dataset's form is settled."""
    build(write_corpus(tmp_path))
    add(tmp_path, NEW, width=5)
    with pytest.raises(
        DataError, match=r"expected float32 \(frames, 4\) as in most files, found float32 \(frames, 5\)"
    ):
        build(tmp_path, append=True)


def test_there_must_be_a_dataset_to_append_to(tmp_path: Path) -> None:
    """A first build makes it; one that is not finished is finished first."""
    with pytest.raises(DataError, match="no dataset is there"):
        build(write_corpus(tmp_path), append=True)


def test_a_lost_ledger_is_made_again_and_a_damaged_old_shard_is_repaired_first(tmp_path: Path) -> None:
    """The manifest knows what the ledger knew."""
    data = build(write_corpus(tmp_path))
    shard = data.folder / "train-00000.tar"
    whole = shard.read_bytes()
    (data.folder / "ledger.jsonl").unlink()
    shard.write_bytes(whole[:-10_000])
    add(tmp_path, NEW)
    with pytest.raises(
        DataError, match=r"1 shards are missing or cut, first train-00000.tar; run `python -m pipeline repair`"
    ):
        build(tmp_path, append=True)
    shard.write_bytes(whole)

    build(tmp_path, append=True)

    before = contents(data.folder)
    (data.folder / "manifest.arrow").unlink()
    reindex_shards(ReindexConfig(shards=data.folder), QUIET)
    assert contents(data.folder) == before


@pytest.mark.parametrize("container", ["tar", "arrow"])
def test_an_appended_dataset_can_be_reindexed_and_repaired(tmp_path: Path, container: Container) -> None:
    """Bytes are those of the append; samples that it left out stay out."""
    build(write_corpus(tmp_path), format=container)
    add(tmp_path, NEW)
    spoil(tmp_path, "zoo-0-0")
    data = build(tmp_path, append=True, format=container, max_rejects=1)
    before = contents(data.folder)
    for name in ("manifest.arrow", "dataset.json"):
        (data.folder / name).write_bytes(b"gone")
    reindexed = reindex_shards(ReindexConfig(shards=data.folder), QUIET)
    assert reindexed.classes == data.classes
    assert (data.folder / "manifest.arrow").read_bytes() == before["manifest.arrow"]
    for name in ("dataset.json", f"train-00001.{container}"):
        (data.folder / name).write_bytes(before[name] if name == "dataset.json" else b"gone")

    repair_shards(RepairConfig(shards=data.folder, features=tmp_path / "features"), QUIET)

    assert contents(data.folder) == before
    assert_sound(tmp_path)


class StopError(Exception):
    """Stands for a kill."""


@pytest.mark.parametrize(
    ("step", "container"),
    [
        ("write_report", "tar"),
        ("keep_manifest", "tar"),
        ("dataset.json", "tar"),
        ("dataset.json", "raw"),
        ("forget_manifest", "tar"),
    ],
)
def test_an_append_that_is_stopped_anywhere_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, container: Container
) -> None:
    """Also between the two files that make a dataset; until then the old one is there."""
    build(write_corpus(tmp_path), format=container)
    shutil.copytree(tmp_path / "shards", tmp_path / "other")
    add(tmp_path, NEW)
    build(tmp_path, format=container, append=True, shards=tmp_path / "other")
    stop_at(step, monkeypatch)
    with pytest.raises(StopError):
        build(tmp_path, format=container, append=True)
    monkeypatch.undo()

    build(tmp_path, format=container, append=True)

    assert contents(tmp_path / "shards") == contents(tmp_path / "other")
    assert_sound(tmp_path)


def stop_at(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise StopError

    if step == "dataset.json":
        replace: Callable[[Path, Path], Path] = Path.replace
        monkeypatch.setattr(
            Path, "replace", lambda path, to: stop() if to.name == "dataset.json" else replace(path, to)
        )
    else:
        monkeypatch.setattr(f"pipeline.build.{step}", stop)


def test_the_old_manifest_is_put_back_only_if_it_is_the_one_that_dataset_json_names(tmp_path: Path) -> None:
    """A damaged manifest stays an error that names its cure."""
    data = build(write_corpus(tmp_path))
    append.keep_manifest(data.folder)
    (data.folder / "manifest.arrow").unlink()
    (data.folder / "manifest.arrow").write_bytes(b"gone")
    add(tmp_path, NEW)
    assert len(build(tmp_path, append=True)) == len(OLD) + len(NEW)
    (data.folder / "manifest.arrow").write_bytes(b"gone")
    with pytest.raises(DataError, match=r"damaged.*reindex"):
        build(tmp_path, append=True)


SAMPLE = st.tuples(st.sampled_from("abcd"), st.sampled_from("ijk"))


@pytest.mark.slow
@settings(max_examples=25)
@given(
    parts=st.lists(st.lists(SAMPLE, min_size=1, max_size=6), min_size=2, max_size=4),
    by=st.sampled_from(["item", "class"]),
)
def test_any_corpus_in_any_parts_is_all_there_and_nothing_ever_moves(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[tuple[str, str]]], by: Literal["item", "class"]
) -> None:
    """Label, split and bytes of a sample are for good, and no item is in two splits."""
    folder = tmp_path_factory.mktemp("append")
    seen: dict[str, tuple[Any, ...]] = {}
    for number, part in enumerate(parts):
        rows = [(class_name, item, f"{number}-{n}") for n, (class_name, item) in enumerate(part)]
        add(folder, rows)
        now = samples_of(build(folder, append=number > 0, split=SplitOptions(by=by, val=0.3, test=0.2)))
        assert {id_: now[id_] for id_ in seen} == seen
        assert len(now) == len(seen) + len(rows)
        seen = now
    splits: dict[tuple[str, str], set[str]] = {}
    for class_name, _, item, split, _ in seen.values():
        splits.setdefault((class_name, item), set()).add(split)
    assert all(len(found) == 1 for found in splits.values())
    assert_sound(folder)
