"""Frames that are data, and frames that are padding."""

import torch
from torch import Tensor


def time_mask(lengths: Tensor, frames: int) -> Tensor:
    """(B, frames) bool: true on the first `lengths` frames of each sample."""
    return torch.arange(frames, device=lengths.device) < lengths[:, None]


def mask_time(x: Tensor, lengths: Tensor, *, axis: int = 1) -> Tensor:
    """`x` with zeros beyond `lengths` (B,) along `axis`; the batch is axis 0. Also removes NaN there."""
    shape = [1] * x.ndim
    shape[0], shape[axis] = x.shape[0], x.shape[axis]
    return torch.where(time_mask(lengths, x.shape[axis]).view(shape), x, 0)
