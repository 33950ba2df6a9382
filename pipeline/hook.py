"""The user's own function path -> array (`--features-from module:function`)."""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pipeline.formats.registry import Look, user_format
from shards.errors import ConfigError


@lru_cache
def hook_format(name: str) -> Look:
    """The hook as a format of files; raises ConfigError if there is no such function."""
    return user_format(_function(name), name)


def _function(name: str) -> Callable[[Path], Any]:
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigError(f"features_from {name!r}: expected module:function, such as my_features:read")
    try:
        found = getattr(import_module(module), function)
    except Exception as error:  # importing runs the user's code
        raise ConfigError(
            f"features_from {name!r}: {type(error).__name__}: {error}; the module must be importable from here "
            "and from every worker"
        ) from error
    if not callable(found):
        raise ConfigError(f"features_from {name!r}: {function} is a {type(found).__name__}, expected a function")
    return found
