"""Audio becomes shards without feature files in between."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from examples.mel_from_audio import HOP, MELS, RATE, WINDOW, filters, log_mel
from tests.pipeline.corpus import build, write_workbook


def write_tone(path: Path, hertz: float, seconds: float, rate: int, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    wave = 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)
    soundfile.write(path, np.repeat(wave[:, None], channels, axis=1), rate)


@pytest.mark.parametrize(("rate", "channels"), [(RATE, 1), (44_100, 2)])
@pytest.mark.parametrize("hertz", [440, 2000])
def test_a_tone_is_loudest_in_the_band_that_it_lies_in(tmp_path: Path, hertz: int, rate: int, channels: int) -> None:
    """Whatever the rate and the number of channels."""
    write_tone(tmp_path / "x.wav", hertz, 0.5, rate, channels)
    mel = log_mel(tmp_path / "x.wav")
    assert mel.shape == ((RATE // 2 - WINDOW) // HOP + 1, MELS)
    assert set(mel.argmax(axis=1)) <= {filters()[round(hertz * WINDOW / RATE)].argmax() + near for near in (-1, 0, 1)}


def test_audio_files_become_shards(tmp_path: Path) -> None:
    """By one command; nothing else is written, and lengths need not be known before."""
    rows = [(f"{hertz} Hz", f"take {take}", f"{hertz}/{take}") for hertz in (300, 900) for take in range(3)]
    for number, (*_, id_) in enumerate(rows):
        write_tone(tmp_path / "audio" / f"{id_}.flac", float(id_.split("/")[0]), 0.3 + number / 10, 22_050)
    write_workbook(tmp_path / "index.xlsx", rows)

    data = build(
        tmp_path,
        features=tmp_path / "audio",
        pattern="{id}.flac",
        features_from="examples.mel_from_audio:log_mel",
    )

    for row in range(len(data)):
        start = data.offsets[row]
        payload = data.shard_path(row).read_bytes()[start : start + data.nbytes[row]]
        assert payload == log_mel(tmp_path / "audio" / f"{data.id(row)}.flac").tobytes()
    assert sorted(path.suffix for path in (tmp_path / "audio").rglob("*.*")) == [".flac"] * 6
