"""`python -m pipeline inspect|build|verify|repair|reindex|demo`; every option is explained by --help."""

import sys
from typing import Any

from pipeline.build import build_shards
from pipeline.demo import DemoConfig, make_demo
from pipeline.inspect import InspectConfig, inspect_corpus
from pipeline.plan import BuildConfig
from pipeline.reindex import ReindexConfig, reindex_shards
from pipeline.repair import RepairConfig, repair_shards
from pipeline.verify import VerifyConfig, verify_shards
from shards.commandline import exit_status, spelled
from shards.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status: 1 for what inspect or verify has found, 2 for an error."""
    # Imported here because every process of a build imports this file again.
    from jsonargparse import auto_cli, set_parsing_settings  # noqa: PLC0415

    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    commands: dict[str, Any] = {
        "inspect": InspectConfig,
        "build": BuildConfig,
        "verify": VerifyConfig,
        "repair": RepairConfig,
        "reindex": ReindexConfig,
        "demo": DemoConfig,
    }
    return exit_status(
        lambda: run(auto_cli(commands, args=spelled(arguments), as_positional=False, prog="python -m pipeline"))
    )


def run(config: object) -> int:
    """Do what one of the commands' configs says."""
    match config:
        case InspectConfig():
            return 1 if inspect_corpus(config).rejects else 0
        case BuildConfig():
            build_shards(config)
            return 0
        case DemoConfig():
            make_demo(config)
            return 0
        case ReindexConfig():
            reindex_shards(config)
            return 0
        case RepairConfig():
            repair_shards(config)
            return 0
        case VerifyConfig():
            return 1 if verify_shards(config) else 0
        case _:
            raise ConfigError(f"no such command: {config!r}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
