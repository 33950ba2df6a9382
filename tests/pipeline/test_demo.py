"""The demo corpus: the same every time, indexed in Excel, learnable."""

from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pipeline import DemoConfig, make_demo, read_index
from shards import ConfigError

QUIET = Console(quiet=True)


def small(out: Path, **options: int) -> Path:
    given = {"classes": 3, "items": 2, "samples": 2, "min_frames": 200, "max_frames": 260, "width": 16}
    return make_demo(DemoConfig(out=out, **{**given, **options}), QUIET)


def test_the_index_names_every_file_and_labels_are_text(tmp_path: Path) -> None:
    """Classes are spelled with zeros in front, to show that they are kept."""
    index = read_index(small(tmp_path), tmp_path / "features")

    assert len(index.rows) == 12
    assert not index.rejects
    assert {row.class_name for row in index.rows} == {"000", "001", "002"}
    for row in index.rows:
        array = np.load(tmp_path / "features" / row.path)
        assert array.dtype == np.float32
        assert 200 <= len(array) <= 260
        assert array.shape[1] == 16


def test_the_same_options_give_the_same_files_on_any_number_of_processes(tmp_path: Path) -> None:
    """And another seed others. The larger corpus goes through the pool."""
    for folder, seed, jobs in (("a", 0, 1), ("b", 0, 2), ("c", 1, 1)):
        small(tmp_path / folder, seed=seed, jobs=jobs, min_frames=270_000, max_frames=280_000)
    files = [{path.name: path.read_bytes() for path in (tmp_path / f / "features").iterdir()} for f in "abc"]

    assert files[0] == files[1]
    assert files[0] != files[2]


def test_a_new_item_can_be_told_by_its_class(tmp_path: Path) -> None:
    """The nearest mean spectrum of the other items names the class far above chance, though not always."""
    make_demo(DemoConfig(out=tmp_path), QUIET)
    index = read_index(tmp_path / "index.xlsx", tmp_path / "features")
    spectra = np.stack([np.load(tmp_path / "features" / row.path).mean(0) for row in index.rows])
    spectra -= spectra.mean(1, keepdims=True)
    classes = np.array([int(row.class_name) for row in index.rows])
    held_out = np.array([row.item == "take-05" for row in index.rows])
    means = np.stack([spectra[(classes == c) & ~held_out].mean(0) for c in range(16)])

    named = ((spectra[held_out, None] - means) ** 2).sum(2).argmin(1)

    assert (named == classes[held_out]).mean() > 0.7


@pytest.mark.parametrize("options", [{"classes": 0}, {"min_frames": 9, "max_frames": 8}, {"width": 3}])
def test_options_that_make_no_corpus_are_refused(tmp_path: Path, options: dict[str, int]) -> None:
    """At once."""
    with pytest.raises(ConfigError):
        small(tmp_path, **options)
