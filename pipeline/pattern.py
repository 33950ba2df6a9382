"""Where a sample's file lies below the feature folder: `{id}.npy`, or `{cls}/{item}/{id}.pt`."""

import unicodedata
from string import Formatter
from typing import Final, final

from shards.errors import ConfigError

DEFAULT_PATTERN: Final = "{id}.npy"
_NAMES: Final = ("cls", "item", "id")


@final
class Pattern:
    """A path with the names of labels in braces.

    suffix    what every path ends in, `ending` what every file's name does
    deep      whether every path leads into a subfolder
    """

    def __init__(self, text: str) -> None:
        try:
            parts = list(Formatter().parse(text))
        except ValueError as error:
            raise ConfigError(f"pattern {text!r}: {error}; expected a path such as {{cls}}/{{id}}.npy") from error
        names = [name for _, name, _, _ in parts if name is not None]
        if (
            "id" not in names
            or not set(names) <= set(_NAMES)
            or any(spec or conversion for *_, spec, conversion in parts)
        ):
            raise ConfigError(
                f"pattern {text!r}: expected a path with {{id}}, and {{cls}} and {{item}} if you like, such as "
                "{cls}/{id}.npy"
            )
        if text.startswith("/") or ".." in text.split("/"):
            raise ConfigError(f"pattern {text!r}: leads out of the feature folder; give a path below --features")
        self.text = unicodedata.normalize("NFC", text)
        literal, last, *_ = parts[-1]
        self.suffix = literal if last is None else ""
        self.ending = self.suffix.rpartition("/")[2]
        self.deep = "/" in text

    def path(self, class_name: str, item: str, id_: str) -> str:
        """The path of one sample's file; an id may carry the suffix."""
        if self.suffix and id_.endswith(self.suffix):
            id_ = id_[: -len(self.suffix)]
        return self.text.format(cls=class_name, item=item, id=id_)
