"""A run, from the first step or the last checkpoint to its result; reads from top to bottom."""

import sys
import time
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from shards import BalancedSampler, ConfigError, Crop, DataError, EvaluationSampler, Manifest
from shards.loader import Batch, Loader
from train.checkpoint import (
    BEST,
    LATEST,
    gather,
    load_checkpoint,
    random_states,
    save_checkpoint,
    seed_rank,
    set_random_state,
)
from train.config import TrainConfig, build_model, write_config
from train.evaluate import Evaluation, evaluate, share_buffers
from train.fingerprint import CHECKED_STEPS, check_ranks
from train.guard import GuardedDDP
from train.metrics import Meter, RunLog
from train.objective import Objective
from train.optim import Schedule, adamw, scaled_lr
from train.progress import Display
from train.world import Place


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a run; evaluations are None where the data has no split to evaluate."""

    last: Evaluation | None
    best_top1: float | None
    best_epoch: int | None
    steps: int


def train(config: TrainConfig, place: Place, display: Display) -> Result:
    """Train until `config.epochs` are done; goes on by itself where the run folder has a checkpoint."""
    try:
        run = Run(config, place, display)
    except (DataError, ConfigError):
        if place.first:
            raise
        sys.exit(2)  # every rank reads the same files with the same options: rank 0 says what is wrong
    if place.first:
        write_config(config)
    try:
        while run.loader.sampler.epoch < config.epochs:
            epoch = run.loader.sampler.epoch
            run.train_epoch(epoch)
            run.end_epoch(epoch)
    finally:
        run.log.close()
    return Result(last=run.last, best_top1=run.best_top1, best_epoch=run.best_epoch, steps=run.step)


@final
class Run:
    """All that a run consists of, and how far it has come."""

    def __init__(self, config: TrainConfig, place: Place, display: Display) -> None:
        self.config, self.place, self.display = config, place, display
        self.data = Manifest.open(config.shards)
        self.loader = self._training_loader()
        self.eval_loader = self._evaluation_loader()
        torch.manual_seed(config.seed)
        model = build_model(config, self.data)
        self.objective = Objective(self._with_batchnorm(model), label_smoothing=config.label_smoothing)
        self.objective.to(place.device)
        on_cuda = place.device.type == "cuda"
        self.ddp = GuardedDDP(
            self.objective, device_ids=[place.device] if on_cuda else None, gradient_as_bucket_view=True
        )
        lr = scaled_lr(
            config.lr,
            config.lr_scaling,
            global_batch=config.batch_size * place.world.size,
            base_batch=config.base_batch,
        )
        self.optimizer = adamw(self.objective, lr=lr, weight_decay=config.weight_decay)
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
        seed_rank(config.seed, place.world)
        self._resume()
        config.run_folder.mkdir(parents=True, exist_ok=True)
        self.log = RunLog(config.run_folder, first=place.first, step=self.step)
        self.meter = Meter(self.loader, place.device)

    def train_epoch(self, epoch: int) -> None:
        """Every batch of the epoch that has not been trained on yet."""
        self.objective.train()
        done = self.loader.sampler.step
        self.display.begin_epoch(epoch, self.config.epochs, done, len(self.loader))
        self.meter.restart()
        for batch in self.loader:
            loss = self._train_step(batch)
            self.meter.add(loss, len(batch.labels))
            self.display.step()
            if self.step in CHECKED_STEPS:
                check_ranks(self.objective, self.place.device, when=f"step {self.step}")
            if self.step % self.config.log_every == 0:
                self._report(epoch)
            if self.config.checkpoint_every and self.step % self.config.checkpoint_every == 0:
                self._save(LATEST)

    def end_epoch(self, epoch: int) -> None:
        """Agree on the loss, check the ranks, evaluate, and save."""
        total = torch.stack(gather(self.loss)).sum(0)
        loss = float(total[0] / total[1])
        self.loss.zero_()
        self.schedule.end_epoch(loss)
        share_buffers(self.objective)
        check_ranks(self.objective, self.place.device, when=f"end of epoch {epoch + 1}", buffers=True)
        values: dict[str, Any] = {"epoch": epoch, "train_loss": loss, "lr": self.schedule.lr}
        line = f"epoch {epoch + 1}/{self.config.epochs} step {self.step}: train loss {loss:.4f}"
        due = (epoch + 1) % self.config.eval_every == 0 or epoch + 1 == self.config.epochs
        best = False
        if due and self.eval_loader is not None:
            began = time.perf_counter()
            self.last = evaluate(self.objective, self.eval_loader, self.place.device)
            best = self.best_top1 is None or self.last.top1 > self.best_top1
            if best:
                self.best_top1, self.best_epoch = self.last.top1, epoch
            values |= {"top1": self.last.top1, "eval_loss": self.last.loss, "eval_samples": self.last.samples}
            line += (
                f", {self.config.eval_split} top-1 {self.last.top1:.2%} of {self.last.samples:,} "
                f"(loss {self.last.loss:.4f}, {time.perf_counter() - began:.1f} s)"
            )
        self.log.write(self.step, "epoch", values)
        self.display.say(line)
        if best:
            self._save(BEST)
        self._save(LATEST)

    def _train_step(self, batch: Batch) -> torch.Tensor:
        loss = self.ddp(batch.features, batch.lengths, batch.labels)
        loss.backward()
        if self.config.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.objective.parameters(), self.config.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.schedule.end_step()
        self.step += 1
        count = len(batch.labels)
        self.loss += torch.stack([loss.detach().double() * count, torch.full_like(self.loss[0], count)])
        return loss

    def _report(self, epoch: int) -> None:
        reading = self.meter.read()
        self.log.write_reading(self.step, epoch, reading, self.schedule.lr)
        self.display.show(epoch, self.step, reading, self.schedule.lr)

    def _save(self, name: str) -> None:
        """Gather what only the ranks themselves know; rank 0 writes."""
        states, losses = random_states(self.place.device), gather(self.loss)
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
            "losses": losses,
            "random": states,
            "best_top1": self.best_top1,
            "best_epoch": self.best_epoch,
        }
        save_checkpoint(self.config.run_folder / "checkpoints" / name, state)

    def _resume(self) -> None:
        """Go on from the latest checkpoint, if the run folder has one."""
        path = self.config.run_folder / "checkpoints" / LATEST
        if not path.exists():
            return
        rank, world = self.place.world.rank, self.place.world
        state = load_checkpoint(path, fingerprint=self.data.fingerprint, world=world)
        self.config.refuse_other(state["config"])
        self.objective.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.loader.load_state_dict(state["loader"])
        self.step = state["step"]
        self.loss.copy_(state["losses"][rank])
        self.best_top1, self.best_epoch = state["best_top1"], state["best_epoch"]
        set_random_state(state["random"][rank], self.place.device)
        self.display.say(f"going on from step {self.step} in epoch {self.loader.sampler.epoch + 1} of {path}")

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
        )
        for line in (repr(self.data), *sampler.describe()):
            self.display.say(line)
        crop = Crop(frames=config.frames)
        return self._loader(sampler, crop)

    def _evaluation_loader(self) -> Loader | None:
        config = self.config
        if config.eval_split not in self.data.splits:
            self.display.say(f"no split {config.eval_split!r} in this dataset: nothing is evaluated")
            return None
        selection = self.data.split(config.eval_split)
        sampler = EvaluationSampler(selection, batch_size=config.eval_batch_size, world=self.place.world)
        return self._loader(sampler, Crop(frames=config.frames, where="even", count=config.eval_crops))

    def _loader(self, sampler: BalancedSampler | EvaluationSampler, crop: Crop) -> Loader:
        return Loader(
            self.data,
            sampler,
            crop=crop,
            device=self.place.device,
            threads=self.config.threads,
            prefetch=self.config.prefetch,
        )

    def _with_batchnorm(self, model: nn.Module) -> nn.Module:
        """On several GPUs BatchNorm sees the global batch; torch has that for CUDA alone."""
        has_any = any(isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d) for child in model.modules())
        if not (self.config.sync_batchnorm and has_any and self.place.world.size > 1):
            return model
        if self.place.device.type != "cuda":
            self.display.say("SyncBatchNorm needs CUDA: each rank normalises with its own batch")
            return model
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
