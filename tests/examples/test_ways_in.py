"""What the examples show works with the real libraries: their loaders resume ours in mid-epoch, to the batch."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from shards import BalancedSampler, Manifest
from tests.support.datasets import write_dataset

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of six classes."""
    folder = tmp_path_factory.mktemp("data")
    write_dataset(folder, classes=6, frames=(120, 150))
    return folder


def epoch_of(folder: Path) -> list[list[int]]:
    return list(BalancedSampler(Manifest.open(folder).split("train"), batch_size=8, samples_per_class=2, seed=1))


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("example", ["own_dataloader", "with_lightning", "with_accelerate"])
def test_the_epoch_is_whole_across_a_resume(folder: Path, example: str) -> None:
    """Stopped after three batches and resumed by the library's own means: every batch once, in order."""
    main = runpy.run_path(str(ROOT / "examples" / f"{example}.py"))["main"]

    assert main(str(folder)) == epoch_of(folder)


@pytest.mark.parametrize("example", ["stream_tars", "augment"])
def test_it_runs_as_its_first_lines_say(folder: Path, example: str) -> None:
    """As a script, from the root of the project."""
    done = subprocess.run(
        [sys.executable, f"examples/{example}.py", str(folder)],
        cwd=ROOT,
        env={"PYTHONPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert {"stream_tars": "36 samples", "augment": f"{len(epoch_of(folder))} batches"}[example] in done.stdout
