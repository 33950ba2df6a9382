"""Seconds and memory of one epoch plan: 400,000 samples, ten and a hundred times as many, skewed classes, 4 ranks.

    python benchmarks/plan.py [--json FILE]

Class sizes follow a Zipf law. CPU seconds of one process on one thread; the peak is that of the
plan alone (tracemalloc sees numpy's allocations), over the columns it is made from.
"""

import argparse
import json
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa

from shards import BalancedSampler, Manifest, World
from shards.schema import SCHEMA, DatasetInfo, column_array


def skewed(samples: int, classes: int) -> Manifest:
    """A manifest in memory: class sizes fall as 1 / rank ** 0.7, two samples an item.

    Only what a plan is made from is real: files and ids are empty, and names are numbers without words.
    """
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, classes + 1) ** 0.7
    labels = np.sort(rng.choice(classes, samples, p=share / share.sum())).astype(np.int32)
    zeros = np.zeros(samples, np.int64)
    numbers = {"label": labels, "class": labels, "item": np.arange(samples, dtype=np.int32) // 2}

    def column(field: pa.Field) -> pa.Array:
        values = numbers.get(field.name, zeros)
        if pa.types.is_dictionary(field.type):
            words = pa.array(["train"], field.type.value_type)
            return pa.DictionaryArray.from_arrays(pa.array(values, pa.int32()), words, safe=False)
        if pa.types.is_large_string(field.type):
            return pa.Array.from_buffers(
                field.type, samples, [None, pa.py_buffer(np.zeros(samples + 1, np.int64)), pa.py_buffer(b"")]
            )
        return column_array(values, field.type)

    info = DatasetInfo(
        dtype="float32", frame_shape=(128,), classes=tuple(f"class {label}" for label in range(classes)), options={}
    )
    table = pa.RecordBatch.from_arrays([column(field) for field in SCHEMA], schema=SCHEMA)
    return Manifest(Path(), info, table, "0" * 32)


def measure(samples: int, classes: int, weighting: float) -> dict[str, float]:
    """CPU seconds to construct the sampler and to plan an epoch, and the peak of both in MB."""
    selection = skewed(samples, classes).split("train")
    options = {"batch_size": 32, "samples_per_class": 4, "world": World(0, 4), "class_weighting": weighting}
    times = []
    for _ in range(5 if samples < 10**7 else 1):
        began = time.process_time()
        sampler = BalancedSampler(selection, **options)
        made = time.process_time()
        sampler.plan(0)
        times.append((made - began, time.process_time() - made))
    tracemalloc.start()
    BalancedSampler(selection, **options).plan(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    construct, plan = np.median(times, axis=0)
    return {
        "samples": samples,
        "classes": classes,
        "class_weighting": weighting,
        "steps": len(sampler),
        "construct_seconds": construct,
        "plan_seconds": plan,
        "peak_mb": peak / 1e6,
    }


def main() -> None:
    """Print one line a case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cases = [(400_000, 10_000), (4_000_000, 10_000), (4_000_000, 100_000), (40_000_000, 100_000)]
    results = [measure(samples, classes, weighting) for samples, classes in cases for weighting in (0.0, 1.0)]
    for r in results:
        print(
            f"{r['samples']:>10,} samples {r['classes']:>7,} classes weighting {r['class_weighting']}: "
            f"construct {r['construct_seconds']:.3f} s, plan {r['plan_seconds']:.3f} s, peak {r['peak_mb']:.0f} MB, "
            f"{r['peak_mb'] * 1e6 / r['samples']:.0f} bytes a sample"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
