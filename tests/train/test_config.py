"""What a run is told: refused early where it makes no sense, and constructed as it says."""

from pathlib import Path

import pytest
import yaml
from torch import nn

from shards import ConfigError
from tests.support.datasets import write_dataset
from train.config import CONFIG_FILE, TrainConfig, build_model, write_config
from train.models import CNN


class Plain(nn.Module):
    """A user's model that asks for nothing."""


class Broken(nn.Module):
    """A user's model with a mistake in its constructor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear("8" + 8, 2)  # type: ignore[operator]


def config(tmp_path: Path, **changes: object) -> TrainConfig:
    return TrainConfig(shards=tmp_path / "data", run_folder=tmp_path, **changes)  # type: ignore[arg-type]


def test_the_written_config_is_the_config(tmp_path: Path) -> None:
    """What config.yaml holds makes an equal config."""
    written = config(tmp_path, epochs=3, model_options={"channels": [4, 8]})
    write_config(written)

    read = yaml.safe_load((tmp_path / CONFIG_FILE).read_text())
    paths = {name: Path(read.pop(name)) for name in ("shards", "run_folder")}

    assert TrainConfig(**paths, **read) == written


def test_what_decides_the_weights_may_not_change(tmp_path: Path) -> None:
    """All differences are listed; where files lie and how many threads read them is free."""
    saved = config(tmp_path).plain()

    config(tmp_path, epochs=99, threads=1, log_every=1).refuse_other(saved)
    with pytest.raises(ConfigError, match=r"seed was 0, is 1; lr was 0.001, is 0.1"):
        config(tmp_path, seed=1, lr=0.1).refuse_other(saved)


def test_an_option_newer_than_the_run_had_its_default(tmp_path: Path) -> None:
    """A run of an earlier version goes on, unless the new option is set to something else."""
    saved = config(tmp_path).plain()
    del saved["clip_norm"]

    config(tmp_path).refuse_other(saved)
    with pytest.raises(ConfigError, match="clip_norm was None, is 1"):
        config(tmp_path, clip_norm=1.0).refuse_other(saved)


def test_epochs_of_a_cosine_may_not_change(tmp_path: Path) -> None:
    """They decide every rate of the run."""
    saved = config(tmp_path, schedule="cosine").plain()

    with pytest.raises(ConfigError, match="epochs was 20, is 30"):
        config(tmp_path, schedule="cosine", epochs=30).refuse_other(saved)


@pytest.mark.parametrize("name", ["epochs", "frames", "eval_crops", "log_every"])
def test_counts_are_at_least_one(tmp_path: Path, name: str) -> None:
    """The option is named with its value."""
    with pytest.raises(ConfigError, match=f"{name} 0: must be at least 1"):
        config(tmp_path, **{name: 0})


def test_a_model_is_told_what_it_asks_for(tmp_path: Path) -> None:
    """frame_shape and classes go to constructors that have them, options to all."""
    data = write_dataset(tmp_path / "data")

    model = build_model(config(tmp_path, model_options={"channels": [4, 8], "shift": 1}), data)
    plain = build_model(config(tmp_path, model=f"{__name__}.Plain"), data)

    assert isinstance(model, CNN)
    assert model.out.out_features == 4
    assert type(plain).__name__ == "Plain"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("CNN", "give a class path"),
        ("train.nowhere.CNN", "No module named"),
        ("train.models.LSTM", "has no attribute 'LSTM'"),
        ("pathlib.Path", "not a torch.nn.Module"),
    ],
)
def test_a_class_path_that_is_no_model_is_refused(tmp_path: Path, model: str, message: str) -> None:
    """With what was given and what Python said."""
    data = write_dataset(tmp_path / "data")

    with pytest.raises(ConfigError, match=message):
        build_model(config(tmp_path, model=model), data)


def test_an_option_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    """With all that the constructor would have been given."""
    data = write_dataset(tmp_path / "data")

    with pytest.raises(ConfigError, match=r"train.models.CNN with .*'wings': 2.*unexpected keyword argument 'wings'"):
        build_model(config(tmp_path, model_options={"wings": 2}), data)


def test_a_mistake_inside_a_constructor_keeps_its_traceback(tmp_path: Path) -> None:
    """It is the user's code that is wrong, not an option."""
    data = write_dataset(tmp_path / "data")

    with pytest.raises(TypeError, match="can only concatenate str"):
        build_model(config(tmp_path, model=f"{__name__}.Broken"), data)
