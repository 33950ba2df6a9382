"""Excel index and feature files -> shards and manifest; no torch, no knowledge of training.

    xlsx --index--> Index --split, layout--> Layout --build--> shards on disk + Manifest

table      CSV or Parquet -> rows of raw cells              workbook   the same for Excel
ooxml      what a workbook hides from its reader            label      the one rule: a cell -> a label
pattern    a row's labels -> the path of its file           files      one listing of the feature folder
matching   each row its file, each file its row             index      rows, labels and files -> `Index`
features   one file -> one checked array                    formats    what each kind of file holds
hook       the user's own function in their place           values     types, finite values, casts
scan       one look at every file                           rejects    rows left out, and why
split      train, val, test by keyed hash (pure)            layout     which sample goes where (pure)
plan       all that is decided before the first byte        build      carries it out
shard      one shard, written by one process                direct     past the page cache
pool       shards on the processes of this machine          cluster    the same on those of a dask cluster
ledger     which shards are whole already                   append     what an addition keeps of what is there
verify     every checksum, and what is wrong                extents    a file's bytes against what was stored
repair     damaged shards, written again                    reindex    the manifest, made from the shards
catalogue  what a shard tells of itself                     inspect    what was understood, before a build
summary    a corpus in numbers                              chart      numbers as SVG
report     the page beside the shards                       progress   what a person sees meanwhile
demo       a corpus to try it on

`python -m pipeline inspect|build|verify|repair|reindex|demo --help` teaches the options.
The format is in docs/FORMAT.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.build import BuildConfig, build_shards
    from pipeline.demo import DemoConfig, make_demo
    from pipeline.index import Columns, Index, read_index
    from pipeline.inspect import InspectConfig, inspect_corpus
    from pipeline.verify import VerifyConfig, verify_shards

__all__ = [
    "BuildConfig",
    "Columns",
    "DemoConfig",
    "Index",
    "InspectConfig",
    "VerifyConfig",
    "build_shards",
    "inspect_corpus",
    "make_demo",
    "read_index",
    "verify_shards",
]

_HOMES = {
    "build": ("BuildConfig", "build_shards"),
    "demo": ("DemoConfig", "make_demo"),
    "index": ("Columns", "Index", "read_index"),
    "inspect": ("InspectConfig", "inspect_corpus"),
    "verify": ("VerifyConfig", "verify_shards"),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that `import pipeline` costs nothing."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"pipeline.{home}"), name)
    raise AttributeError(f"module 'pipeline' has no attribute {name!r}")
