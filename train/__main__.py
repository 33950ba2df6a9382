"""`torchrun -m train`: train a model on shards; `--help` explains every option."""

import os
import sys
from typing import Any, NoReturn

from jsonargparse import ArgumentParser, set_parsing_settings
from torch.distributed.elastic.multiprocessing.errors import record

from shards.commandline import exit_status, spelled
from train.config import TrainConfig
from train.loop import train
from train.progress import Display
from train.world import joined, said_once


@record
def main(arguments: list[str]) -> int:
    """Parse, join the other ranks, train, and say what came of it."""
    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = ArgumentParser(prog="torchrun --nproc-per-node N -m train", description=TrainConfig.__doc__)
    parser.add_argument("--config", action="config", help="YAML file with these options, such as RUN/config.yaml")
    parser.add_class_arguments(TrainConfig)
    with said_once():
        options = parser.parse_args(spelled(arguments)).as_dict()
    options.pop("config")
    return exit_status(lambda: run(options))


def run(options: dict[str, Any]) -> None:
    """Train with these options; rank 0 prints the result."""
    with said_once():
        config = TrainConfig(**options)
    with (
        joined(device=config.device, cpu_threads=config.cpu_threads, timeout_s=config.timeout_s) as place,
        Display(shown=place.first) as display,
    ):
        result = train(config, place, display)
        if result.last is not None and result.best_top1 is not None and result.best_epoch is not None:
            speed = "" if result.samples_per_second is None else f"; {result.samples_per_second:,.0f} samples/s"
            display.say(
                f"result: {config.eval_split} top-1 {result.last.top1:.2%} after {result.steps:,} steps; best "
                f"{result.best_top1:.2%} in epoch {result.best_epoch + 1}{speed}"
            )
        display.say(f"run folder: {config.run_folder} (config.yaml, metrics.jsonl, tensorboard, checkpoints)")


def leave(status: int) -> NoReturn:
    """End this process without taking the interpreter down, which has nothing left to do.

    One run of some hundreds died there of "terminate called without an active exception": a thread of
    gloo's or of autograd's asks for the interpreter while that is going away. All is closed and on disk by now.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main(sys.argv[1:]) or 0)
