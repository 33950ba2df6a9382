"""The course of a run, from the first step or the last checkpoint to its result; reads from top to bottom."""

import time
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn

from shards.transfer import Batch
from train.checkpoint import gather
from train.config import TrainConfig, write_config
from train.evaluate import Evaluation, evaluate, share_buffers
from train.fingerprint import CHECKED_STEPS, check_ranks
from train.progress import Display
from train.run import Run
from train.world import Place


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """What came of a run; None where nothing was evaluated, or nothing was left to train."""

    last: Evaluation | None
    best_top1: float | None
    best_epoch: int | None
    steps: int
    samples_per_second: float | None


def train(config: TrainConfig, place: Place, display: Display) -> Result:
    """Train until `config.epochs` are done; goes on by itself where the run folder has a checkpoint."""
    run = Run(config, place, display)
    try:
        if place.first:
            write_config(config)
        while run.epoch < config.epochs:
            epoch = run.epoch
            train_epoch(run, epoch)
            end_epoch(run, epoch)
    finally:
        run.log.close()
    return Result(
        last=run.last,
        best_top1=run.best_top1,
        best_epoch=run.best_epoch,
        steps=run.step,
        samples_per_second=run.samples / run.seconds if run.samples else None,
    )


def train_epoch(run: Run, epoch: int) -> None:
    """Every batch of the epoch that has not been trained on yet."""
    config, began = run.config, time.perf_counter()
    run.objective.train()
    run.display.begin_epoch(epoch, config.epochs, run.loader.sampler.step, len(run.loader))
    run.meter.start_clock()
    for batch in run.loader:
        loss = train_step(run, batch)
        run.meter.add(loss, len(batch.labels))
        run.samples += len(batch.labels) * run.place.world.size
        del batch  # its memory is read into while the next one is trained on
        run.display.step()
        if run.step in CHECKED_STEPS:
            check_ranks(run.objective, run.place.device, when=f"step {run.step}")
        if run.step % config.log_every == 0:
            reading = run.meter.read()
            run.log.write_reading(run.step, epoch, reading, run.schedule.lr)
            run.display.show(epoch, run.step, reading, run.schedule.lr)
        if config.checkpoint_every and run.step % config.checkpoint_every == 0:
            run.save()
    run.seconds += time.perf_counter() - began


def train_step(run: Run, batch: Batch) -> Tensor:
    """Forward, backward and one step of the optimiser; the loss is this rank's."""
    loss: Tensor = run.ddp(batch.features, batch.lengths, batch.labels)
    loss.backward()
    run.step += 1
    if run.step in CHECKED_STEPS:
        run.ddp.check_gradients()
    if run.config.clip_norm is not None:
        nn.utils.clip_grad_norm_(run.objective.parameters(), run.config.clip_norm)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    run.schedule.end_step()
    count = len(batch.labels)
    run.loss += torch.stack([loss.detach().double() * count, torch.full_like(run.loss[0], count)])
    return loss


def end_epoch(run: Run, epoch: int) -> None:
    """Agree on the loss, check the ranks, evaluate, and save."""
    config, device = run.config, run.place.device
    total = torch.stack(gather(run.loss)).sum(0)
    loss = float(total[0] / total[1])
    run.loss.zero_()
    run.schedule.end_epoch(loss)
    share_buffers(run.objective)
    check_ranks(run.objective, device, when=f"end of epoch {epoch + 1}", buffers=True)
    values: dict[str, Any] = {"epoch": epoch, "train_loss": loss, "lr": run.schedule.lr}
    line = f"epoch {epoch + 1}/{config.epochs} step {run.step}: train loss {loss:.4f}"
    due = (epoch + 1) % config.eval_every == 0 or epoch + 1 == config.epochs
    best = False
    if due and run.eval_loader is not None:
        began = time.perf_counter()
        run.last = evaluate(run.objective, run.eval_loader, device)
        best = run.best_top1 is None or run.last.top1 > run.best_top1
        if best:
            run.best_top1, run.best_epoch = run.last.top1, epoch
        values |= {"top1": run.last.top1, "eval_loss": run.last.loss, "eval_samples": run.last.samples}
        line += (
            f", {config.eval_split} top-1 {run.last.top1:.2%} of {run.last.samples:,} "
            f"(loss {run.last.loss:.4f}, {time.perf_counter() - began:.1f} s)"
        )
    run.log.write(run.step, "epoch", values)
    run.display.say(line)
    run.meter.restart()
    run.save(best=best)
