"""Log-mel features straight from audio files: no `.npy` in between.

    python -m pipeline build --index index.xlsx --features audio --pattern "{id}.ogg" \
        --features-from examples.mel_from_audio:log_mel --shards data/shards

`log_mel` runs in the processes that write the shards. Needs `pip install soundfile`.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

RATE: Final = 16_000
WINDOW: Final = 512  # samples: 32 ms
HOP: Final = 160  # samples: one frame each 10 ms
MELS: Final = 128


def log_mel(path: Path) -> NDArray[np.float32]:
    """(frames, MELS) log-mel energies of an audio file, channels averaged, resampled to RATE."""
    import soundfile  # noqa: PLC0415

    wave, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return log_mel_of(resampled(wave.mean(axis=1), rate))


def resampled(wave: NDArray[np.float32], rate: int) -> NDArray[np.float32]:
    """(samples,) at `rate` -> (samples,) at RATE, by linear interpolation."""
    times = np.arange(len(wave) * RATE // rate) * (rate / RATE)
    return np.interp(times, np.arange(len(wave)), wave).astype(np.float32)


def log_mel_of(wave: NDArray[np.float32]) -> NDArray[np.float32]:
    """(samples,) at RATE -> (frames, MELS)."""
    frames = np.lib.stride_tricks.sliding_window_view(wave, WINDOW)[::HOP]
    parts: list[NDArray[Any]] = []
    for start in range(0, len(frames), 2000):  # 2000 windows at once fit in the CPU's cache
        spectrum = np.fft.rfft(frames[start : start + 2000] * np.hanning(WINDOW), axis=1)
        parts.append(np.log(np.abs(spectrum) ** 2 @ filters() + 1e-6).astype(np.float32))
    return np.concatenate(parts)


@cache
def filters() -> NDArray[np.float64]:
    """(WINDOW // 2 + 1, MELS) triangles, evenly spaced on the HTK mel scale from 30 Hz to 7.6 kHz."""
    lowest, highest = (2595 * np.log10(1 + hertz / 700) for hertz in (30, 7600))
    edges = 700 * (10 ** (np.linspace(lowest, highest, MELS + 2) / 2595) - 1)
    hertz = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    rising = (hertz - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hertz) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling))
