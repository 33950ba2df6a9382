"""Accelerate saves the position of our loader with the rest, and goes on from there in mid-epoch.

    python examples/with_accelerate.py data/demo/shards

The loader isn't given to `prepare`: it is rank-aware already. Needs `pip install accelerate`.
"""

import sys
import tempfile

import torch
from accelerate import Accelerator
from torch import nn

from shards import BalancedSampler, Crop, Manifest, World
from shards.loader import Loader


def main(folder: str) -> list[list[int]]:
    """Train three steps, save, and go on from what was saved; returns the rows of one whole epoch."""
    data = Manifest.open(folder)
    rows: list[list[int]] = []

    def train(saved: str, *, stop: bool) -> None:
        accelerator = Accelerator(cpu=True)
        world = World(accelerator.process_index, accelerator.num_processes)
        sampler = BalancedSampler(data.split("train"), batch_size=8, samples_per_class=2, world=world, seed=1)
        loader = Loader(data, sampler, crop=Crop(frames=100), device=accelerator.device)
        net = nn.Linear(data.info.frame_bytes // 4, len(data.classes))
        net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.01))
        accelerator.register_for_checkpointing(loader)
        if not stop:
            accelerator.load_state(saved)
        for batch in loader:
            loss = nn.functional.cross_entropy(net(batch.features.flatten(2).mean(1)), batch.labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            rows.append(batch.rows.tolist())
            if stop and len(rows) == 3:
                accelerator.save_state(saved)
                return

    with tempfile.TemporaryDirectory() as saved:
        train(saved, stop=True)
        train(saved, stop=False)
    print(f"{len(rows)} steps, the last {len(rows) - 3} after a resume")
    return rows


if __name__ == "__main__":
    main(sys.argv[1])
