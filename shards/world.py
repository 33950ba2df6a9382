"""Who is asking: one rank of several. A value that is passed in, never looked up."""

from dataclasses import dataclass
from typing import final

from shards.errors import ConfigError


@final
@dataclass(frozen=True)
class World:
    """Rank `rank` of `size`."""

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise ConfigError(f"rank {self.rank} of {self.size}: a rank is from 0 to size - 1")
