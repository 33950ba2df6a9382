"""Lightning trains on our loader, saves its position in the checkpoint, and goes on from there in mid-epoch.

    python examples/with_lightning.py data/demo/shards

The sampler is told the ranks itself: `use_distributed_sampler=False`, or Lightning would put its own in its place.
Needs `pip install lightning`.
"""

import sys
import tempfile
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn

from shards import BalancedSampler, Crop, Manifest
from shards.loader import Loader
from shards.transfer import Batch


class Net(lightning.LightningModule):
    """Mean over time, then one linear layer; keeps a note of the rows it has seen."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, classes)
        self.rows: list[list[int]] = []

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Cross entropy of a batch."""
        self.rows.append(batch.rows.tolist())
        return nn.functional.cross_entropy(self.head(batch.features.flatten(2).mean(1)), batch.labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main(folder: str) -> list[list[int]]:
    """Stop after three steps, go on from the checkpoint; returns the rows of one whole epoch."""
    data = Manifest.open(folder)

    def fit(checkpoint: Path | None, *, max_steps: int) -> tuple[Net, lightning.Trainer]:
        sampler = BalancedSampler(data.split("train"), batch_size=8, samples_per_class=2, seed=1)
        loader = Loader(data, sampler, crop=Crop(frames=100))
        net = Net(width=data.info.frame_bytes // 4, classes=len(data.classes))
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=1,
            max_steps=max_steps,
            use_distributed_sampler=False,
            callbacks=[ModelCheckpoint(checkpoints, every_n_train_steps=3, save_top_k=-1)],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(net, loader, ckpt_path=checkpoint)
        return net, trainer

    with tempfile.TemporaryDirectory() as checkpoints:
        stopped, _ = fit(None, max_steps=3)
        [saved] = Path(checkpoints).iterdir()
        resumed, _ = fit(saved, max_steps=-1)
    rows = stopped.rows + resumed.rows
    print(f"{len(rows)} steps, the last {len(resumed.rows)} after a resume")
    return rows


if __name__ == "__main__":
    main(sys.argv[1])
