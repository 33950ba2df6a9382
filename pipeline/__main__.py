"""`python -m pipeline build|verify|demo`; every option is explained by --help."""

import sys
from typing import Any

from pipeline.build import build_shards
from pipeline.demo import DemoConfig, make_demo
from pipeline.plan import BuildConfig
from pipeline.verify import VerifyConfig, verify_shards
from shards.errors import ConfigError, DataError

# A flag is said by its name alone; the parser wants a value.
_FLAGS = {"--dry-run": "--dry_run=true", "--overwrite": "--overwrite=true"}


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status: 1 for faults found by verify, 2 for an error."""
    # Imported here because every process of a build imports this file again.
    from jsonargparse import auto_cli, set_parsing_settings  # noqa: PLC0415

    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    commands: dict[str, Any] = {"build": BuildConfig, "verify": VerifyConfig, "demo": DemoConfig}
    arguments = [_FLAGS.get(argument, argument) for argument in arguments]
    try:
        config = auto_cli(commands, args=arguments, as_positional=False, prog="python -m pipeline")
        if isinstance(config, VerifyConfig):
            return 1 if verify_shards(config) else 0
        if isinstance(config, BuildConfig):
            build_shards(config)
        if isinstance(config, DemoConfig):
            make_demo(config)
    except (DataError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
