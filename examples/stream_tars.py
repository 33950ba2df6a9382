"""The tar shards from end to end, through webdataset: for storage behind pipes or URLs.

python examples/stream_tars.py data/demo/shards
python examples/stream_tars.py "pipe:curl -s https://host/train-00000.tar" "pipe:curl -s https://host/train-00001.tar"
"""

import sys

from torch.utils.data import DataLoader

from shards import Crop, Manifest
from shards.stream import stream


def main(*source: str) -> int:
    """Read one epoch; returns the number of samples."""
    local = len(source) == 1 and ":" not in source[0]
    shards = Manifest.open(source[0]).split("train") if local else list(source)
    samples = stream(shards, crop=Crop(frames=100), shuffle=500, seed=1)
    count = 0
    for batch in DataLoader(samples, batch_size=16, num_workers=2):
        count += len(batch["label"])
    print(
        f"{count} samples; the last batch: features {tuple(batch['features'].shape)}, classes {batch['class'][:4]} ..."
    )
    return count


if __name__ == "__main__":
    main(*sys.argv[1:])
