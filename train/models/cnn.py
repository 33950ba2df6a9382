"""A small convolutional network over time and frequency."""

from typing import final

import torch
from torch import Tensor, nn

from shards import ConfigError
from train.models.masking import mask_time


@final
class CNN(nn.Module):
    """Class scores of (B, T, D) log-mel features, whatever their gain and spectral tilt.

    channels    of the blocks; each halves time and frequency, the first takes a quarter of the frames
    shift       in training each sample is moved up or down by at most this many bins (other pitches)
    dropout     before the last layer
    Each bin has its mean over the sample taken off first: what does not change in time says
    nothing of the content. Frames beyond a sample's length count for nothing.
    """

    def __init__(
        self,
        *,
        frame_shape: tuple[int, ...],
        classes: int,
        channels: tuple[int, ...] = (16, 32, 64, 128),
        shift: int = 3,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        if len(frame_shape) != 1:
            raise ConfigError(f"CNN takes frames of one dimension, (bins,), found {frame_shape}")
        self.shift = shift
        sizes = (1, *channels)
        self.blocks = nn.ModuleList(
            _Block(inputs, outputs, kernel=(7, 5), stride=(4, 2))
            if inputs == 1
            else _Block(inputs, outputs, kernel=(3, 3), stride=(2, 2))
            for inputs, outputs in zip(sizes, channels, strict=False)
        )
        bins = frame_shape[0]
        for _ in channels:
            bins = (bins + 1) // 2
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(2 * bins * channels[-1], classes)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """(B, classes) logits of (B, T, D) features, of which the first `lengths` (B,) frames are data."""
        x = mask_time(features, lengths)
        x = mask_time(x - x.sum(1, keepdim=True) / lengths[:, None, None], lengths)
        if self.training and self.shift:
            x = _shifted(x, self.shift)
        # channels_last is 1.3 times faster on the CPU and no slower on CUDA.
        x = x[:, None].contiguous(memory_format=torch.channels_last)
        for block in self.blocks:
            x, lengths = block(x, lengths)
        x = x.transpose(2, 3).flatten(1, 2)  # (B, channels * bins, T'), none negative, padding 0
        mean, peak = x.sum(2) / lengths[:, None], x.amax(2)
        return self.out(self.dropout(torch.cat([mean, peak], 1)))


@final
class _Block(nn.Module):
    """Convolution, batch normalisation, ReLU; kernel and stride are (time, frequency)."""

    def __init__(self, inputs: int, outputs: int, *, kernel: tuple[int, int], stride: tuple[int, int]) -> None:
        super().__init__()
        padding = (kernel[0] // 2, kernel[1] // 2)
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.stride = stride[0]

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, T, F) with zeros beyond `lengths` -> the same, and the lengths, after the stride."""
        x = self.norm(self.conv(x)).relu()
        lengths = (lengths - 1) // self.stride + 1
        return mask_time(x, lengths, axis=2), lengths


def _shifted(x: Tensor, limit: int) -> Tensor:
    """Each sample of (B, T, D) moved along D by its own random number of bins, the edge repeated."""
    moves = torch.randint(-limit, limit + 1, (len(x), 1), device=x.device)
    bins = (torch.arange(x.shape[2], device=x.device) + moves).clamp(0, x.shape[2] - 1)
    return x.gather(2, bins[:, None].expand_as(x))
