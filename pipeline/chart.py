"""Numbers as pictures: figures to stand inside a page, SVG without a script, in the page's own colours.

The page's style gives colours to `rect`, `line` and `text`; a bar says what it stands for when pointed at.
"""

import math
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_MOST_BARS: Final = 40
_WIDTH, _HEIGHT = 640, 180
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 10, 24  # room for the numbers at the axes
_TICKS: Final = 5
_SKEWED: Final = 50  # times the median: from here on bars of equal width would all but hide most values


def edges_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ascending bounds of bins that hold all of `values`, the last one above them; bin i is [e[i], e[i + 1]).

    One bin a number where that is possible, otherwise bins of a round width, and where a few values are
    far above the others, bins that double.
    """
    low, high = int(values.min()), int(values.max())
    if high - low < _MOST_BARS:
        return np.arange(low, high + 2)
    if high > _SKEWED * max(1.0, float(np.median(values))):
        first = max(low, 1).bit_length() - 1
        doubling = [1 << power for power in range(first, high.bit_length() + 1)]
        return np.array(doubling if low else [0, *doubling])
    step = _round_up((high - low + 1) / _MOST_BARS)
    return np.arange(low // step * step, high + step + 1, step)


def _round_up(number: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50, ..."""
    power = 10 ** max(0, math.floor(math.log10(number)))
    return next(int(factor * power) for factor in (1, 2, 5, 10) if factor * power >= number)


def histogram(values: NDArray[np.int64], *, unit: str, of: str, show: Callable[[int], str] = "{:,}".format) -> str:
    """How many `of` (samples, classes) have how many `unit` (frames, bytes); `show` writes such a number."""
    if not len(values):
        return ""
    edges = edges_of(values)
    counts = np.diff(np.searchsorted(np.sort(values), edges))
    names = [_range(int(low), int(high) - 1, show) for low, high in pairwise(edges)]
    titles = [f"{name} {unit}: {count:,} {of}" for name, count in zip(names, counts, strict=True)]
    ticks = [show(int(low)) for low in edges[:-1]]
    return _bars(counts, titles, ticks, caption=f"{of} by {unit}")


def _range(low: int, high: int, show: Callable[[int], str]) -> str:
    return show(low) if low == high else f"{show(low)} to {show(high)}"


def throughput(points: Sequence[tuple[float, int]]) -> str:
    """MB/s over time, from (second, bytes done by then), both ascending."""
    if len(points) < 2:
        return ""
    seconds, done = (np.array(column, float) for column in zip(*points, strict=True))
    length = seconds[-1] - seconds[0]
    if length <= 0:
        return ""
    at = np.linspace(seconds[0], seconds[-1], min(_MOST_BARS, len(points) - 1) + 1)
    rates = np.diff(np.interp(at, seconds, done)) / np.diff(at) / 1e6
    titles = [f"second {start:,.0f}: {rate:,.0f} MB/s" for start, rate in zip(at[:-1], rates, strict=True)]
    ticks = [f"{start:,.0f}" if length > 10 * _TICKS else f"{start:,.1f}" for start in at[:-1]]
    return _bars(rates, titles, ticks, caption="MB/s by seconds since the start")


def _bars(heights: NDArray[Any], titles: Sequence[str], ticks: Sequence[str], *, caption: str) -> str:
    """One bar a height, with some of the ticks below them; a bar of anything is at least visible."""
    top = float(heights.max()) or 1.0
    room = _HEIGHT - _TOP - _BOTTOM
    step = (_WIDTH - _LEFT - _RIGHT) / len(heights)
    parts: list[str] = []
    for share in (0.0, 0.5, 1.0):
        y = _TOP + room * (1 - share)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_level(share * top)}</text>')
    for number, (height, title) in enumerate(zip(heights, titles, strict=True)):
        if height > 0:
            tall = max(1.0, room * float(height) / top)
            place = f'x="{_LEFT + number * step:.1f}" y="{_TOP + room - tall:.1f}"'
            size = f'width="{max(1.0, step - 1):.1f}" height="{tall:.1f}"'
            parts.append(f"<rect {place} {size}><title>{escape(title)}</title></rect>")
    for number in range(0, len(ticks), math.ceil(len(ticks) / _TICKS)):
        x = _LEFT + (number + 0.5) * step
        parts.append(
            f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{escape(ticks[number])}</text>'
        )
    drawn = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'
    return f"<figure><figcaption>{escape(caption)}</figcaption>{drawn}</figure>"


def _level(height: float) -> str:
    return f"{height:,.0f}" if height >= 10 or height.is_integer() else f"{height:,.1f}"
