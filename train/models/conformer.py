"""A Conformer: convolution for what is near, attention for what is far (Gulati et al. 2020)."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from shards import ConfigError
from train.models.masking import mask_time, time_mask


@final
class Conformer(nn.Module):
    """Class scores of (B, T, D) features, by attention pooling over the encoded frames.

    width    of the encoder; heads divide it
    depth    number of Conformer blocks
    kernel   of the depthwise convolution, in encoded frames (4 input frames each); odd
    Frames beyond a sample's length are masked in every convolution, in attention and in pooling.
    """

    def __init__(
        self,
        *,
        frame_shape: tuple[int, ...],
        classes: int,
        width: int = 144,
        depth: int = 4,
        heads: int = 4,
        kernel: int = 15,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if len(frame_shape) != 1:
            raise ConfigError(f"Conformer takes frames of one dimension, (bins,), found {frame_shape}")
        if width % (2 * heads) or kernel % 2 == 0:
            raise ConfigError(f"width {width}, heads {heads}, kernel {kernel}: width / heads must be even, kernel odd")
        self.subsample = _Subsample(frame_shape[0], width)
        self.blocks = nn.ModuleList(_Block(width, heads, kernel, dropout) for _ in range(depth))
        self.pool = nn.Linear(width, 1)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, classes)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """(B, classes) logits of (B, T, D) features, of which the first `lengths` (B,) frames are data."""
        x = mask_time(features, lengths)
        x = mask_time(x - x.sum(1, keepdim=True) / lengths[:, None, None], lengths)
        x, lengths = self.subsample(x, lengths)
        mask = time_mask(lengths, x.shape[1])
        for block in self.blocks:
            x = block(x, mask)
        weight = self.pool(x).squeeze(2).masked_fill(~mask, -torch.inf).softmax(1)
        return self.out(self.dropout(torch.einsum("bt,btd->bd", weight, x)))


@final
class _Subsample(nn.Module):
    """Two strided convolutions: a quarter of the frames, a quarter of the bins, then `width`."""

    def __init__(self, bins: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width // 4, 3, 2, 1)
        self.second = nn.Conv2d(width // 4, width // 4, 3, 2, 1)
        quarter = ((bins + 1) // 2 + 1) // 2
        self.project = nn.Linear(width // 4 * quarter, width)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, D) -> (B, T / 4, width), and the lengths after it."""
        x = x[:, None]
        for convolution in (self.first, self.second):
            lengths = (lengths - 1) // 2 + 1
            x = mask_time(convolution(x).relu(), lengths, axis=2)
        return self.project(x.transpose(1, 2).flatten(2)), lengths


@final
class _Block(nn.Module):
    """Half feed-forward, attention, convolution, half feed-forward; each added to its input."""

    def __init__(self, width: int, heads: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.feed_before = _feed_forward(width, dropout)
        self.attention = _Attention(width, heads, dropout)
        self.convolution = _Convolution(width, kernel, dropout)
        self.feed_after = _feed_forward(width, dropout)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, T, width) with (B, T) mask -> the same shape."""
        x = x + self.feed_before(x) / 2
        x = x + self.attention(x, mask)
        x = x + self.convolution(x, mask)
        x = x + self.feed_after(x) / 2
        return self.norm(x)


def _feed_forward(width: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(width),
        nn.Linear(width, 4 * width),
        nn.SiLU(),
        nn.Dropout(dropout),
        nn.Linear(4 * width, width),
        nn.Dropout(dropout),
    )


@final
class _Attention(nn.Module):
    """Self-attention with rotary positions (Su et al. 2021): only the distance of two frames counts."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, T, width) with (B, T) mask of the frames that may be attended to."""
        query, key, value = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.project(self.norm(x)).chunk(3, 2)
        )
        attended = functional.scaled_dot_product_attention(
            _rotated(query), _rotated(key), value, attn_mask=mask[:, None, None, :]
        )
        return self.dropout(self.out(attended.transpose(1, 2).flatten(2)))


def _rotated(x: Tensor) -> Tensor:
    """(B, heads, T, size) with each pair of channels turned by an angle proportional to its frame."""
    half = x.shape[3] // 2
    speed = 10_000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(x.shape[2], device=x.device)[:, None] * speed
    sine, cosine = angle.sin().to(x.dtype), angle.cos().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], 3)


@final
class _Convolution(nn.Module):
    """Gated pointwise, depthwise over time, batch normalisation, pointwise."""

    def __init__(self, width: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.gate = nn.Linear(width, 2 * width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width, bias=False)
        self.batch_norm = nn.BatchNorm1d(width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, T, width) with (B, T) mask; padding does not reach the frames beside it."""
        x = functional.glu(self.gate(self.norm(x)), 2)
        x = torch.where(mask[..., None], x, 0).transpose(1, 2)
        x = functional.silu(self.batch_norm(self.depthwise(x))).transpose(1, 2)
        return self.dropout(self.out(x))
