"""Whole runs, started by torchrun as a person would: they learn, leave what they promise, and survive kill -9."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from shards import DataError
from tests.support.datasets import write_dataset
from tests.support.ranks import kill_tree, start_training, train_to_end
from train.checkpoint import BEST, LATEST, load_checkpoint, save_checkpoint


def options(data: Path, run: Path, **changes: object) -> list[str]:
    """A small run: 8 classes, batches of 4 x 2."""
    chosen: dict[str, object] = {
        "shards": data,
        "run-folder": run,
        "batch-size": 8,
        "samples-per-class": 2,
        "frames": 24,
        "eval-crops": 2,
        "lr": 3e-3,
        "log-every": 1,
        "model-options.channels": "[4,8]",
    }
    return [f"--{name}={value}" for name, value in (chosen | changes).items()]


def lines(run: Path, kind: str) -> list[dict[str, Any]]:
    text = (run / "metrics.jsonl").read_text() if (run / "metrics.jsonl").exists() else ""
    whole = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in whole if line["kind"] == kind]


def result(out: str) -> str:
    """The result line without its speed."""
    return next(line for line in out.splitlines() if line.startswith("result:")).split(";")[1]


def checkpoint(run: Path, name: str = LATEST) -> dict[str, Any]:
    return torch.load(run / "checkpoints" / name, weights_only=True)


def same_bits(one: object, other: object) -> bool:
    """Deep equality, tensors by their bits."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.numpy().tobytes() == other.numpy().tobytes()
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same_bits(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same_bits, one, other))  # type: ignore[arg-type]
    return one == other


@pytest.mark.slow
def test_a_run_learns_and_leaves_what_it_promises(tmp_path: Path) -> None:
    """Loss falls, top-1 beats chance by far; config, metrics of both ranks, TensorBoard, both checkpoints, a result."""
    write_dataset(tmp_path / "data", classes=8, items=5)
    run = tmp_path / "run"

    learnable = {"model-options.channels": "[8,16]", "model-options.shift": 0, "label-smoothing": 0.0, "lr": 1e-2}
    out = train_to_end(*options(tmp_path / "data", run, epochs=15, **learnable))

    epochs = lines(run, "epoch")
    assert epochs[-1]["train_loss"] < 0.8 * epochs[0]["train_loss"]
    assert epochs[-1]["top1"] > 0.5
    assert epochs[-1]["eval_samples"] == 80
    assert out.count("result: val top-1") == 1, "rank 0 alone speaks"
    assert "learning rate 0.00707 for a global batch of 16, from 0.01 for 32 (lr_scaling sqrt)" in out
    steps = lines(run, "train")
    assert [line["step"] for line in steps] == list(range(1, epochs[-1]["step"] + 1))
    assert all(len(line["ranks"]) == 2 and 0 <= rank["data_wait"] <= 1 for line in steps for rank in line["ranks"])
    assert {path.name for path in (run / "checkpoints").iterdir()} == {LATEST, BEST}
    assert list((run / "tensorboard").iterdir())
    assert "samples_per_class: 2" in (run / "config.yaml").read_text()
    assert set(checkpoint(run)["model"]) >= {"blocks.0.conv.weight", "out.weight"}, "keys of the bare model"


@pytest.mark.slow
def test_killed_in_mid_epoch_and_started_again_it_ends_bitwise_equal(tmp_path: Path) -> None:
    """Kill -9 of torchrun and all ranks, the same command again: weights, optimiser, metrics as if nothing had been."""
    write_dataset(tmp_path / "data", classes=8, items=10, per_item=4)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    common = {"epochs": 4, "checkpoint-every": 7, "eval-every": 2, "log-every": 5}  # 5 and 7: in mid-interval too
    train_to_end(*options(tmp_path / "data", whole, **common))

    process = start_training(*options(tmp_path / "data", broken, **common))
    while not (seen := lines(broken, "train")) or seen[-1]["step"] < 26:  # epoch 2 is steps 21 to 40
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    kill_tree(process.pid)
    process.communicate()
    killed_at = checkpoint(broken)["step"]
    out = train_to_end(*options(tmp_path / "data", broken, **common))

    assert 21 <= killed_at < 80
    assert f"going on from step {killed_at}" in out
    one, other = checkpoint(whole), checkpoint(broken)
    for name in ("config", "log_position"):  # the folder, and how many digits the rates in the log have
        del one[name], other[name]
    assert same_bits(one, other)
    assert same_bits(checkpoint(whole, BEST)["model"], checkpoint(broken, BEST)["model"])
    for kind, names in (("train", ("step", "epoch", "loss", "lr")), ("epoch", ("step", "train_loss", "top1", "lr"))):
        first, second = (
            [[line[name] for name in names if name in line] for line in lines(run, kind)] for run in (whole, broken)
        )
        assert first == second


@pytest.mark.slow
def test_killed_between_the_epochs_line_and_its_checkpoint_no_line_repeats(tmp_path: Path) -> None:
    """The narrowest gap: the line is written, the checkpoint is not; the next start cuts the line off."""
    write_dataset(tmp_path / "data", classes=8)
    run = tmp_path / "run"
    common = options(tmp_path / "data", run, **{"epochs": 2, "checkpoint-every": 3})
    code = (
        "import os, sys, train.run\n"
        "from train.__main__ import main\n"
        "write, writes = train.run.save_checkpoint, []\n"
        "def save(path, state):\n"
        "    writes.append(path)\n"
        "    os._exit(9) if len(writes) == 3 else write(path, state)\n"  # mid-epoch, best, latest
        "train.run.save_checkpoint = save\n"
        "main(sys.argv[1:])\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, "--device", "cpu", "--cpu-threads", "1", *common], check=False)
    assert killed.returncode == 9
    assert len(lines(run, "epoch")) == 1, "the line is there"

    train_to_end(*common, ranks=1)

    assert [line["epoch"] for line in lines(run, "epoch")] == [0, 1]
    assert [line["step"] for line in lines(run, "train")] == list(range(1, checkpoint(run)["step"] + 1))


@pytest.mark.slow
def test_two_runs_of_one_seed_are_bitwise_equal(tmp_path: Path) -> None:
    """Threads and timing decide nothing; another seed decides all."""
    write_dataset(tmp_path / "data", classes=8)
    for name, changes in (("a", {"threads": 1}), ("b", {"threads": 7, "prefetch": 2}), ("c", {"seed": 1})):
        train_to_end(*options(tmp_path / "data", tmp_path / name, epochs=2, **changes))
    first, second, other = (checkpoint(tmp_path / name)["model"] for name in "abc")

    assert same_bits(first, second)
    assert not same_bits(first, other)


@pytest.mark.slow
def test_a_finished_run_goes_on_with_more_epochs_but_not_with_another_config(tmp_path: Path) -> None:
    """More epochs are more epochs; another batch, world or data is refused with both values."""
    data, run = tmp_path / "data", tmp_path / "run"
    write_dataset(data, classes=8)
    train_to_end(*options(data, run, epochs=1), ranks=1)
    out = train_to_end(*options(data, run, epochs=2), ranks=1)
    assert "going on from step" in out
    (run / "checkpoints" / ".latest.pt.tmp-host-1").write_bytes(b"left by a killed run")
    again = train_to_end(*options(data, run, epochs=2, resume="require"), ranks=1)
    assert result(again) == result(out), "nothing left to do: the same result once more"
    assert {path.name for path in (run / "checkpoints").iterdir()} == {LATEST, BEST}

    for changes, ranks, message in (
        ({"batch-size": 4}, 1, "batch_size was 8, is 4"),
        ({}, 2, "made by 1 ranks, now there are 2: use GPUS=1"),
        ({"resume": "never"}, 1, "take another RUN folder, or --resume auto to go on"),
    ):
        process = start_training(*options(data, run, epochs=3, **changes), ranks=ranks)
        _, err = process.communicate()
        assert process.returncode != 0
        assert err.count(message) == 1, "said by one rank"
    write_dataset(data, classes=8, seed=1)
    _, err = start_training(*options(data, run, epochs=3), ranks=1).communicate()
    assert "a run goes on with the data it began with" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shards": "nowhere"}, "make shards"),
        ({"model": "train.models.Nothing"}, "give a class path that Python can import"),
        ({"model-options.wings": "2"}, "unexpected keyword argument 'wings'"),
        ({"batch-size": "64"}, "8 classes in split 'train', but a batch needs 32"),
        ({"no-such-option": "1"}, "no_such_option"),
    ],
)
def test_bad_options_are_one_message(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    """What is wrong and what to do, without a traceback of ours, and nothing written."""
    write_dataset(tmp_path / "data", classes=8)

    process = start_training(*options(tmp_path / "data", tmp_path / "run", **changes), ranks=1)
    _, err = process.communicate()

    assert process.returncode != 0
    assert message in err
    assert "/train/" not in err, "no traceback through the package"
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_failing_write_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    """What cannot be written never takes the place of what was."""
    save_checkpoint(tmp_path / LATEST, {"step": 1})

    with pytest.raises(TypeError):
        save_checkpoint(tmp_path / LATEST, {"step": (number for number in range(3))})

    assert torch.load(tmp_path / LATEST)["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == [LATEST]


def test_a_checkpoint_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    """The path, and the ways on."""
    path = tmp_path / LATEST
    save_checkpoint(path, {"step": 1})
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(DataError, match=r"latest.pt: not a readable checkpoint.*another RUN folder"):
        load_checkpoint(path)


def test_whole_samples_in_buckets_with_a_damaged_one_among_them(tmp_path: Path) -> None:
    """Every option of the loader at once: the run ends well, and the substitutes are counted in the metrics."""
    data = write_dataset(tmp_path / "data", classes=8)
    row = int(data.split("train").rows[3])
    with data.shard_path(row).open("r+b") as file:
        file.seek(int(data.offsets[row]))
        file.write(b"\xff\xff\xff\x7f")

    train_to_end(
        *options(tmp_path / "data", tmp_path / "run", epochs=2, frames="null", bucket=2, window=1, threads="auto"),
        *("--on-corrupt=substitute", "--verify-reads", "--class-weighting=1", "--io=direct"),
    )

    read = lines(tmp_path / "run", "train")[-1]
    assert sum(rank["substituted"] for rank in read["ranks"]) >= 2, "it was met in every epoch"
    assert len(lines(tmp_path / "run", "epoch")) == 2
