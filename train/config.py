"""What a run is told; written resolved into its folder as config.yaml, which `--config` reads back."""

from dataclasses import asdict, dataclass, field, fields
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Final, Literal, final

import yaml
from torch import nn

from shards import ConfigError, Manifest
from shards.atomic import atomic_file
from train.optim import Course, LRScaling
from train.world import Device

CONFIG_FILE: Final = "config.yaml"

# May change when a run goes on: they change neither the weights nor what they were made from.
_FREE: Final = {
    *("epochs", "shards", "run_folder", "threads", "prefetch", "device", "cpu_threads", "eval_batch_size"),
    *("log_every", "checkpoint_every", "timeout_s", "resume", "io", "verify_reads", "read_timeout_s"),
}


@final
@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a model on shards, with one process a GPU."""

    shards: Path
    """folder of the dataset"""
    run_folder: Path
    """folder of the run: config, metrics, checkpoints"""
    resume: Literal["auto", "never", "require"] = "auto"
    """auto: go on if the run folder has a checkpoint; never: refuse then; require: refuse if it has none"""

    model: str = "train.models.CNN"
    """class path of the network: train.models.CNN, train.models.Conformer or your own"""
    model_options: dict[str, Any] = field(default_factory=dict[str, Any])
    """arguments of the network's constructor, such as --model-options.dropout 0.1"""

    epochs: int = 20
    """passes over the data"""
    batch_size: int = 32
    """samples in one rank's batch"""
    samples_per_class: int = 4
    """samples of each class in a batch, which so has batch_size / samples_per_class classes"""
    class_weighting: float = 0.0
    """0: every class equally often; 1: every sample once an epoch; between: between"""
    disjoint: Literal["auto", "class", "sample"] = "auto"
    """what ranks never share in an epoch: classes, or groups of samples; auto: classes if they suffice"""
    window: int | None = None
    """shards that a rank has in play at a time, for storage that seeks; none: all"""
    bucket: int | None = None
    """samples of like length come together, drawn among those of so many groups; none: length does not matter"""
    frames: int | None = 1000
    """frames of a crop, or of the longest sample if that is less; shorter ones are padded with zeros; none: samples are
    taken whole, padded to the longest of their batch"""
    train_split: str = "train"
    """split that is trained on"""
    seed: int = 0
    """decides weights, order, crops and augmentation"""

    lr: float = 1e-3
    """learning rate for a global batch of base_batch samples"""
    lr_scaling: LRScaling = "sqrt"
    """how the rate grows with the global batch (batch_size times ranks) over base_batch"""
    base_batch: int = 32
    """global batch that lr was chosen for"""
    schedule: Course = "plateau"
    """course of the rate; plateau watches the training loss of each epoch over all ranks"""
    patience: int = 5
    """plateau: epochs without a better loss before the rate falls"""
    factor: float = 0.5
    """plateau: what the rate is multiplied with then"""
    warmup_steps: int = 0
    """steps of linear rise at the beginning"""
    weight_decay: float = 0.05
    """AdamW's, on matrices only"""
    label_smoothing: float = 0.1
    """of the cross entropy"""
    clip_norm: float | None = None
    """largest norm of the averaged gradient; none: no clipping"""
    sync_batchnorm: bool = True
    """on several GPUs, BatchNorm over the global batch"""

    eval_split: str = "val"
    """split that is evaluated"""
    eval_every: int = 1
    """epochs between evaluations; the last epoch is always evaluated"""
    eval_crops: int = 8
    """evenly spaced crops of each sample whose probabilities are averaged"""
    eval_batch_size: int = 8
    """samples in one rank's evaluation batch"""

    threads: int | Literal["auto"] = 4
    """reading threads of each rank; auto: as many as help"""
    prefetch: int | Literal["auto"] = "auto"
    """batches read ahead; auto: as many as 256 MB hold, from 1 to 16"""
    io: Literal["auto", "buffered", "direct"] = "auto"
    """through the page cache, or past it (O_DIRECT); auto: past it if an epoch does not fit in free memory"""
    on_corrupt: Literal["raise", "substitute"] = "raise"
    """substitute: another sample of the class takes the place of one that cannot be read, and is counted"""
    verify_reads: bool = False
    """check the checksum of every sample that is read whole"""
    read_timeout_s: float = 600
    """seconds that a batch may take before its read counts as hanging"""
    device: Device = "auto"
    """auto: GPUs if there are any"""
    cpu_threads: int | None = None
    """torch threads of each rank on the CPU; by default the cores are shared evenly"""
    timeout_s: float = 600
    """seconds that ranks wait for each other"""
    log_every: int = 10
    """steps between lines of metrics"""
    checkpoint_every: int | None = None
    """steps between checkpoints within an epoch; every epoch ends with one anyway"""

    def __post_init__(self) -> None:
        for name in ("epochs", "frames", "base_batch", "eval_every", "eval_crops", "eval_batch_size", "log_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} {getattr(self, name)}: must be at least 1")

    def plain(self) -> dict[str, Any]:
        """The config as YAML and checkpoints hold it."""
        return {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}

    def refuse_other(self, saved: dict[str, Any]) -> None:
        """Raise ConfigError if `saved`, the config a run began with, differs in what decides its weights.

        An option that is newer than `saved` had its default then.
        """
        free = _FREE - {"epochs"} if self.schedule == "cosine" else _FREE
        before = {entry.name: entry.default for entry in fields(self)} | saved
        differ = [
            f"{name} was {before[name]!r}, is {value!r}"
            for name, value in self.plain().items()
            if name not in free and before[name] != value
        ]
        if differ:
            raise ConfigError(
                f"{self.run_folder} holds a run with another config: {'; '.join(differ)}. "
                "Take another RUN folder, or the old values to go on"
            )


def write_config(config: TrainConfig) -> None:
    """Leave the resolved config in the run folder."""
    with atomic_file(config.run_folder / CONFIG_FILE) as file:
        file.write(yaml.safe_dump(config.plain(), sort_keys=False).encode())


def build_model(config: TrainConfig, data: Manifest) -> nn.Module:
    """Construct the network; one that has `frame_shape` or `classes` arguments is told them."""
    kind = _at(config.model)
    known = {"frame_shape": data.info.frame_shape, "classes": len(data.classes)}
    told = {key: value for key, value in known.items() if key in signature(kind).parameters} | config.model_options
    try:
        signature(kind).bind(**told)  # before the call, whose own TypeErrors are bugs with a traceback
    except TypeError as error:
        raise ConfigError(f"--model {config.model} with {told}: {error}") from error
    model = kind(**told)
    if not isinstance(model, nn.Module):
        raise ConfigError(f"--model {config.model}: found {type(model).__name__}, which is not a torch.nn.Module")
    return model


def _at(path: str) -> Any:
    """What a class path names; refuses one that Python cannot import, or that names nothing."""
    module, _, name = path.rpartition(".")
    hint = "give a class path that Python can import from here, as in train.models.CNN or my_package.my_file.Net"
    try:
        home = import_module(module)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"--model {path}: {error}; {hint}") from error
    if not hasattr(home, name):
        raise ConfigError(f"--model {path}: module {module!r} has no attribute {name!r}; {hint}")
    return getattr(home, name)
