"""What is seen of a long run where there is no terminal: a line now and then."""

import io
import re

import pytest
from rich.console import Console

from pipeline import progress as module
from pipeline.progress import progress


def test_without_a_terminal_a_line_is_printed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes done, of how many, speed and time left; nothing before the first byte, and not every time."""
    text = io.StringIO()
    with progress(Console(file=text), "writing", 4_000_000) as show:
        show(1_000_000)
        assert text.getvalue() == ""
        monkeypatch.setattr(module, "_SECONDS_BETWEEN_LINES", 0.0)
        show(0)
        assert text.getvalue() == ""
        show(2_000_000)
        show(5_000_000)

    lines = text.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == ["writing: 2.0 MB of 4.0 MB", "writing: 4.0 MB of 4.0 MB"]
    assert all(re.search(r", [\d.,]+ \w+/s, \d+ s left$", line) for line in lines)


def test_on_a_terminal_there_is_a_bar_with_speed_and_time_left() -> None:
    """And it ends full."""
    text = io.StringIO()
    with progress(Console(file=text, force_terminal=True, width=120), "writing", 4_000_000) as show:
        show(4_000_000)

    assert "4.0/4.0 MB" in text.getvalue()
    assert "left" in text.getvalue()
