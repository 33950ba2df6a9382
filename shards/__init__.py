"""The shard format, the sampler and the loader; imports neither `pipeline` nor `train`.

    Manifest --sampler(world, seed, epoch)--> plan[step, slot] --reader--> bytes --loader--> Batch

row     position in the whole manifest          label   position in `classes`
step    position in this epoch, same on all ranks    slot    position in this rank's batch
frame   one time step of a sample               world   (rank, size), a value that is passed in

Torch is imported by `shards.loader` and `shards.transfer` alone, so `from shards.loader import Loader`.
The format is specified in docs/FORMAT.md, the order of samples in docs/SAMPLING.md.
"""

from shards.crop import Crop
from shards.errors import ConfigError, DataError
from shards.evaluation import EvaluationSampler
from shards.manifest import Manifest, Selection
from shards.sampler import BalancedSampler
from shards.world import World

__all__ = [
    "BalancedSampler",
    "ConfigError",
    "Crop",
    "DataError",
    "EvaluationSampler",
    "Manifest",
    "Selection",
    "World",
]
