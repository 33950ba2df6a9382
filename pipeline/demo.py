"""A corpus to try things on: melodies as log-mel-like features, and an Excel index of them.

class = a melody, item = one way to play it (tempo, brightness, loudness, noise), id = one recording of it
(where it begins, how long it lasts). A model that meets some items of a melody can name the others.
Every file is a function of (seed, class, item, sample), so the same options give the same corpus.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.filesize import decimal

from pipeline.features import SUFFIX
from pipeline.progress import progress
from shards.errors import ConfigError

_NOTES: Final = 12  # notes of a melody
_NOTE_FRAMES: Final = 8  # frames of a note at tempo 1
_HARMONICS: Final = 3
_SILENCE: Final = -8.0  # about log(1e-4), where log-mel features of music lie when nothing sounds
_WORTH_A_POOL: Final = 200_000_000


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Make a learnable corpus with an Excel index: OUT/index.xlsx and OUT/features."""

    out: Path = Path("data/demo")
    """Folder to write to."""
    classes: int = 16
    """Melodies."""
    items: int = 6
    """Ways to play each."""
    samples: int = 2
    """Recordings of each way."""
    min_frames: int = 300
    """Shortest recording, in frames."""
    max_frames: int = 500
    """Longest recording. 10000 to 14000 frames, 128 wide, are real files of 5-7 MB."""
    width: int = 64
    """Bands of a frame."""
    seed: int = 0
    """Another seed makes other melodies."""
    jobs: int | None = None
    """Processes for a large corpus. Default: one a CPU."""

    def __post_init__(self) -> None:
        if min(self.classes, self.items, self.samples, self.min_frames) < 1 or self.max_frames < self.min_frames:
            raise ConfigError("classes, items, samples and min_frames are at least 1, max_frames at least min_frames")
        if self.width < 4 * _HARMONICS:
            raise ConfigError(f"width {self.width}: a melody needs at least {4 * _HARMONICS} bands")


class _Recording(NamedTuple):
    config: DemoConfig
    class_: int
    item: int
    sample: int

    @property
    def labels(self) -> tuple[str, str, str]:
        """Class, item and id as the index spells them: text, with zeros in front."""
        item = f"take-{self.item:02d}"
        return f"{self.class_:03d}", item, f"{self.class_:03d}_{item}_{self.sample:02d}"


def make_demo(config: DemoConfig, console: Console | None = None) -> Path:
    """Write the corpus and return the path of its index."""
    console = console or Console()
    (config.out / "features").mkdir(parents=True, exist_ok=True)
    recordings = list(_recordings(config))
    nbytes = len(recordings) * (config.min_frames + config.max_frames) // 2 * config.width * 4
    with progress(console, "making features", nbytes) as show:
        done = 0
        for size in _written(recordings, nbytes, config.jobs or len(os.sched_getaffinity(0))):
            done += size
            show(done)
    path = config.out / "index.xlsx"
    _write_index(path, recordings)
    console.print(
        f"{len(recordings):,} files of {config.classes:,} classes, {decimal(done)}, and {path}",
        highlight=False,
        soft_wrap=True,
    )
    return path


def _recordings(config: DemoConfig) -> Iterator[_Recording]:
    for class_ in range(config.classes):
        for item in range(config.items):
            for sample in range(config.samples):
                yield _Recording(config, class_, item, sample)


def _written(recordings: list[_Recording], nbytes: int, jobs: int) -> Iterator[int]:
    """Write all files, one after another or on several processes; yield the size of each."""
    if nbytes < _WORTH_A_POOL or jobs == 1:
        yield from map(_write, recordings)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_write, recordings, chunksize=4)


def _write(recording: _Recording) -> int:
    array = _features(recording)
    np.save(recording.config.out / "features" / f"{recording.labels[2]}{SUFFIX}", array)
    return array.nbytes


def _features(recording: _Recording) -> NDArray[np.float32]:
    """(frames, width) log energies of one recording."""
    config, class_, item, sample = recording
    melody = np.random.default_rng([config.seed, class_]).integers(0, config.width // 2, _NOTES)
    player = np.random.default_rng([config.seed, class_, item, 1])
    tempo, bright, loud = player.uniform(0.8, 1.25), player.uniform(0.3, 1.0), player.uniform(-1.0, 1.0)
    rng = np.random.default_rng([config.seed, class_, item, sample, 2])
    frames = int(rng.integers(config.min_frames, config.max_frames + 1))
    begin = rng.uniform(0, _NOTES * _NOTE_FRAMES)
    note = ((begin + np.arange(frames) * tempo) / _NOTE_FRAMES).astype(np.int64) % _NOTES
    noise = rng.standard_normal((frames, config.width), np.float32)
    return noise + _spectra(melody, config.width, bright, loud)[note]


def _spectra(melody: NDArray[np.int64], width: int, bright: float, loud: float) -> NDArray[np.float32]:
    """(notes, width): what each note of the melody looks like when played this way."""
    bands = np.arange(width)
    energy = np.zeros((len(melody), width))
    for harmonic in range(_HARMONICS):
        centre = melody[:, None] + harmonic * width / 6
        energy += bright**harmonic * np.exp(-(((bands - centre) / 1.2) ** 2))
    return (np.log(energy + np.exp(_SILENCE)) + loud).astype(np.float32)


def _write_index(path: Path, recordings: list[_Recording]) -> None:
    # Slow to import, and only wanted here.
    from openpyxl import Workbook  # noqa: PLC0415

    book = Workbook(write_only=True)
    sheet = book.create_sheet("index")
    sheet.append(["a_cls", "a_item", "a_id"])
    for recording in recordings:
        sheet.append(recording.labels)
    book.save(path)
