"""All that a run consists of, made from its config, and how it is saved and goes on."""

from dataclasses import asdict
from typing import Any, Literal, final

import torch
from torch import nn

from shards import BalancedSampler, ConfigError, Crop, EvaluationSampler, Manifest, World
from shards.atomic import remove_leftovers
from shards.loader import Loader
from train.checkpoint import BEST, LATEST, gather_plain, load_checkpoint, save_checkpoint
from train.config import TrainConfig, build_model
from train.evaluate import Evaluation, check_scores
from train.guard import GuardedDDP
from train.metrics import Meter, RunLog
from train.objective import Objective
from train.optim import Schedule, adamw, scaled_lr
from train.progress import Display
from train.randomness import random_state, seed_rank, set_random_state
from train.world import Place, agreed


@final
class Run:
    """The parts of a run, and how far it has come: step, loss of the epoch so far, best evaluation."""

    def __init__(self, config: TrainConfig, place: Place, display: Display) -> None:
        self.config, self.place, self.display = config, place, display
        with agreed(place):
            saved = self._saved()
            self.data = Manifest.open(config.shards)
            self.loader = self._training_loader()
            self.objective = self._objective()
            self.eval_loader = self._evaluation_loader()
            if saved is not None:
                self._check(saved)
        on_cuda = place.device.type == "cuda"
        self.ddp = GuardedDDP(
            self.objective, device_ids=[place.device] if on_cuda else None, gradient_as_bucket_view=True
        )
        self.optimizer = adamw(self.objective, lr=self._lr(), weight_decay=config.weight_decay)
        self.schedule = Schedule(
            self.optimizer,
            config.schedule,
            warmup_steps=config.warmup_steps,
            total_steps=config.epochs * len(self.loader),
            patience=config.patience,
            factor=config.factor,
        )
        self.step = 0
        self.loss = torch.zeros(2, dtype=torch.float64, device=place.device)  # this epoch's sum and samples, this rank
        self.last: Evaluation | None = None
        self.best_top1: float | None = None
        self.best_epoch: int | None = None
        self.samples, self.seconds = 0, 0.0  # trained on by all ranks since this start, and the time it took
        self.meter = Meter(self.loader, place.device)
        seed_rank(config.seed, place.world)
        if saved is not None:
            self._load(saved)
        if place.first:
            for folder in (config.run_folder, config.run_folder / "checkpoints"):
                remove_leftovers(folder)
        position = saved["log_position"] if saved is not None else 0
        self.log = RunLog(config.run_folder, first=place.first, step=self.step, position=position)

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return self.loader.sampler.epoch

    def save(self, *, best: bool = False) -> None:
        """Gather what only the ranks themselves know; rank 0 writes the latest checkpoint, and the `best` if it is."""
        own = {
            "random": random_state(self.place.device),
            "loss": self.loss.tolist(),
            "interval": self.meter.state(),
        }
        ranks = gather_plain(own)
        if not self.place.first:
            return
        state = {
            "config": self.config.plain(),
            "fingerprint": self.data.fingerprint,
            "world_size": self.place.world.size,
            "model": self.objective.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "loader": self.loader.state_dict(),
            "step": self.step,
            "ranks": ranks,
            "last": None if self.last is None else asdict(self.last),
            "best_top1": self.best_top1,
            "best_epoch": self.best_epoch,
            "log_position": self.log.position,
        }
        for name in (BEST, LATEST) if best else (LATEST,):
            save_checkpoint(self.config.run_folder / "checkpoints" / name, state)

    def _saved(self) -> dict[str, Any] | None:
        """The latest checkpoint of the run folder, as `resume` wants it."""
        path = self.config.run_folder / "checkpoints" / LATEST
        if not path.exists():
            if self.config.resume == "require":
                raise ConfigError(
                    f"{path}: no such checkpoint, and resume is require; use --resume auto to begin a run"
                )
            return None
        if self.config.resume == "never":
            raise ConfigError(
                f"{path} is there, and resume is never: take another RUN folder, or --resume auto to go on"
            )
        return load_checkpoint(path)

    def _check(self, saved: dict[str, Any]) -> None:
        """Refuse a checkpoint of other data, ranks, options or network; takes over its weights."""
        folder = self.config.run_folder
        if saved["fingerprint"] != self.data.fingerprint:
            raise ConfigError(
                f"{folder} holds a run made with data {saved['fingerprint']}, but the shards now are "
                f"{self.data.fingerprint}: a run goes on with the data it began with; point SHARDS at that, or take "
                "another RUN folder"
            )
        if saved["world_size"] != self.place.world.size:
            raise ConfigError(
                f"{folder} holds a run made by {saved['world_size']} ranks, now there are {self.place.world.size}: use "
                f"GPUS={saved['world_size']}, or take another RUN folder"
            )
        self.config.refuse_other(saved["config"])
        try:
            self.objective.model.load_state_dict(saved["model"])
        except RuntimeError as error:
            raise ConfigError(f"{folder} holds weights of another network: {error}") from error

    def _load(self, saved: dict[str, Any]) -> None:
        """Go on from a checkpoint whose weights are in place."""
        own = saved["ranks"][self.place.world.rank]
        self.optimizer.load_state_dict(saved["optimizer"])
        self.schedule.load_state_dict(saved["schedule"])
        self.loader.load_state_dict(saved["loader"])
        self.step = saved["step"]
        self.loss.copy_(torch.tensor(own["loss"], dtype=torch.float64))
        self.meter.load_state(own["interval"])
        self.last = None if saved["last"] is None else Evaluation(**saved["last"])
        self.best_top1, self.best_epoch = saved["best_top1"], saved["best_epoch"]
        set_random_state(own["random"], self.place.device)
        self.display.say(f"going on from step {self.step} in epoch {self.epoch + 1} of {self.config.run_folder}")

    def _training_loader(self) -> Loader:
        config = self.config
        sampler = BalancedSampler(
            self.data.split(config.train_split),
            batch_size=config.batch_size,
            samples_per_class=config.samples_per_class,
            world=self.place.world,
            seed=config.seed,
            class_weighting=config.class_weighting,
            disjoint=config.disjoint,
            window=config.window,
            bucket=config.bucket,
        )
        loader = self._loader(sampler, self._crop(), on_corrupt=config.on_corrupt)
        for line in (repr(self.data), *sampler.describe(), *loader.describe()):
            self.display.say(line)
        return loader

    def _evaluation_loader(self) -> Loader | None:
        config = self.config
        if config.eval_split not in self.data.splits:
            self.display.say(f"no split {config.eval_split!r} in this dataset: nothing is evaluated")
            return None
        obstacle = check_scores(self.objective, self.data, frames=self._frames(), device=self.place.device)
        if obstacle is not None:
            self.display.say(f"{obstacle}: nothing is evaluated")
            return None
        selection = self.data.split(config.eval_split)
        sampler = EvaluationSampler(selection, batch_size=config.eval_batch_size, world=self.place.world)
        crop = (
            self._crop()
            if config.frames is None
            else Crop(frames=self._frames(), where="even", count=config.eval_crops)
        )
        return self._loader(sampler, crop)

    def _crop(self) -> Crop:
        return Crop(frames=None, where="whole") if self.config.frames is None else Crop(frames=self._frames())

    def _frames(self) -> int:
        """Frames of a crop: more than the longest sample has would be zeros in every batch."""
        longest = int(self.data.frames.max())
        return min(self.config.frames or longest, longest)

    def _loader(
        self,
        sampler: BalancedSampler | EvaluationSampler,
        crop: Crop,
        *,
        on_corrupt: Literal["raise", "substitute"] = "raise",
    ) -> Loader:
        return Loader(
            self.data,
            sampler,
            crop=crop,
            device=self.place.device,
            threads=self.config.threads,
            prefetch=self.config.prefetch,
            io=self.config.io,
            on_corrupt=on_corrupt,
            verify_reads=self.config.verify_reads,
            timeout=self.config.read_timeout_s,
        )

    def _objective(self) -> Objective:
        """The network and its loss on the device; every rank makes the same weights."""
        seed_rank(self.config.seed, World())
        model = self._with_batchnorm(build_model(self.config, self.data))
        return Objective(model, label_smoothing=self.config.label_smoothing).to(self.place.device)

    def _with_batchnorm(self, model: nn.Module) -> nn.Module:
        """On several GPUs BatchNorm sees the global batch; torch has that for CUDA alone."""
        has_any = any(isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) for child in model.modules())
        if not (self.config.sync_batchnorm and has_any and self.place.world.size > 1):
            return model
        if self.place.device.type != "cuda":
            self.display.say("SyncBatchNorm needs CUDA: each rank normalises with its own batch")
            return model
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)

    def _lr(self) -> float:
        config = self.config
        batch = config.batch_size * self.place.world.size
        lr = scaled_lr(config.lr, config.lr_scaling, global_batch=batch, base_batch=config.base_batch)
        self.display.say(
            f"learning rate {lr:.3g} for a global batch of {batch}, from {config.lr:.3g} for {config.base_batch} "
            f"(lr_scaling {config.lr_scaling})"
        )
        return lr
