"""What the three command lines have in common: how options are spelled, and how errors end."""

import re
import sys
from collections.abc import Callable
from typing import Final

from shards.errors import ConfigError, DataError

_OPTION: Final = re.compile(r"--[A-Za-z][\w.-]*")
_NEVER_VALUED: Final = {"--help", "--print_config"}


def spelled(arguments: list[str]) -> list[str]:
    """Spell options as jsonargparse does: `--batch-size` is `--batch_size`, a bare `--cold` is `--cold=true`."""
    result: list[str] = []
    for position, argument in enumerate(arguments):
        option = _OPTION.match(argument)
        if option is None:
            result.append(argument)
            continue
        name, value = option[0].replace("-", "_").replace("__", "--", 1), argument[option.end() :]
        bare = not value and (position + 1 == len(arguments) or _OPTION.match(arguments[position + 1]))
        result.append(f"{name}=true" if bare and name not in _NEVER_VALUED else name + value)
    return result


def exit_status(work: Callable[[], int | None]) -> int:
    """Do `work`; what is wrong with the input is one message and status 2, an interruption is 130."""
    try:
        return work() or 0
    except (DataError, ConfigError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is the command line
        return 2
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)  # noqa: T201
        return 130
