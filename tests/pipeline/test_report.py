"""The page beside the shards: complete, harmless, the same for the same input."""

import re
import time
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipeline import build_shards
from pipeline.chart import edges_of, histogram, throughput
from pipeline.rejects import Reject
from pipeline.report import TIMES, Report, Run, page, write_report
from pipeline.summary import Spread, Summary
from pipeline.values import CastLoss
from pipeline.verify import VerifyConfig, verify_shards
from tests.pipeline.corpus import build, config_for, spoil, write_corpus, write_features, write_workbook

HOSTILE = ("<script>alert(1)</script>", "<!-- /times -->", "\"'><img src=x onerror=alert(1)>", "[/red]", "&amp;", "]]>")


class Reader(HTMLParser):
    """Collects tags, attributes and text, and holds that every tag is closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in {"meta", "line"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def summary_of(sizes: list[int], names: list[str] | None = None) -> Summary:
    """One class a size, each sample an item, of 100 frames and more."""
    count = sum(sizes)
    names = names or [f"{label:05d}" for label in range(len(sizes))]
    return Summary.of(
        class_names=[name for name, size in zip(names, sizes, strict=True) for _ in range(size)],
        items=[f"{sample % 7}" for sample in range(count)],
        splits=["train"] * count,
        frames=range(100, 100 + count),
        nbytes=range(400, 400 + count),
    )


def report_of(names: list[str]) -> Report:
    rejects = [Reject(name, row, name, name) for row, name in enumerate(names, start=2)]
    facts = dict(zip(names, names, strict=True))
    return Report(
        title=names[0], facts=facts, summary=summary_of([2] * len(names), names), notes=names, rejects=rejects
    )


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5, unique=True))
def test_no_text_from_outside_becomes_markup(names: list[str]) -> None:
    """Whatever classes, items, notes and rejects are called, the page has the same tags."""
    harmless = Reader(page(report_of([f"{number}" for number in range(len(names))])))
    found = Reader(page(report_of([f"{number}{name}" for number, name in enumerate(names)])))

    assert found.tags == harmless.tags
    assert [name for name, _ in found.attributes] == [name for name, _ in harmless.attributes]


def test_hostile_names_are_shown_as_they_are_spelled(tmp_path: Path) -> None:
    """In the page, and on the terminal of every command, where brackets are markup otherwise."""
    rows = [(name, f"i{number}", f"{number}-{copy}") for number, name in enumerate(HOSTILE) for copy in range(2)]
    write_features(tmp_path / "features", [row[2] for row in rows])
    write_workbook(tmp_path / "index.xlsx", [*rows, (HOSTILE[3].upper(), "i", "0-0"), ("a", "i", "[/x]")])
    console = Console(record=True, quiet=True)

    build_shards(config_for(tmp_path, dry_run=True, max_rejects=9), console)
    build_shards(config_for(tmp_path, max_rejects=9), console)
    verify_shards(VerifyConfig(shards=tmp_path / "shards"), console)

    text = (tmp_path / "shards" / "report.html").read_text()
    found = Reader(text)
    assert set(HOSTILE) <= set(found.texts)
    assert text.count(TIMES[0]) == text.count(TIMES[1]) == 1
    assert "script" not in found.tags


def test_the_page_asks_for_nothing_and_runs_nothing(tmp_path: Path) -> None:
    """No address, no script, no handler; a policy in the page forbids them besides."""
    build(write_corpus(tmp_path))
    text = (tmp_path / "shards" / "report.html").read_text()
    found = Reader(text)

    assert not {"script", "link", "img", "iframe", "a", "base", "object"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in {"src", "href", "srcset"}]
    assert not re.search(r"https?:|url\(|@import", text)
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'") in found.attributes


def test_a_page_says_what_was_made_of_what(tmp_path: Path) -> None:
    """Rows, classes, lengths, splits, the loss of a cast, rejects, throughput."""
    spoil(write_corpus(tmp_path, classes=4), "000-0-0")
    build(tmp_path, max_rejects=1, dtype="float16")

    text = (tmp_path / "shards" / "report.html").read_text()
    read = " ".join(Reader(text).texts)
    for said in (
        "24 rows read, 23 kept, 1 rejected",
        "23 samples, 1.1 kB, float16 (frames, 4), in 2 shards",
        "samples (ids) per class 5 6 6",
        "items per class 3 3 3",
        "frames per sample 5 6 7",
        "largest relative error 0.0004",
        "1 rows are left out.",
        "1 values are NaN or infinite, the first in frame 3",
        "MB/s",
    ):
        assert said in re.sub(r"\s+", " ", read), said
    for split in ("train", "val"):
        assert f"<td>{split}</td>" in text


def test_the_same_input_gives_the_same_page_but_for_the_times(tmp_path: Path) -> None:
    """They stand in one place, which can be cut out."""
    write_corpus(tmp_path)
    pages: list[str] = []
    for name in ("one", "other"):
        build(tmp_path, shards=tmp_path / name)
        pages.append((tmp_path / name / "report.html").read_text())
        time.sleep(1.1)

    assert pages[0] != pages[1]
    one, other = (re.split(f"{TIMES[0]}.*?{TIMES[1]}", text, flags=re.DOTALL) for text in pages)
    assert len(one) == 2
    assert one == other


def test_a_page_of_a_million_rows_stays_small(tmp_path: Path) -> None:
    """From the columns of the manifest to the file: it tells of classes, not of rows."""
    count = 1_000_000
    rng = np.random.default_rng(0)
    names = [f"class {label}" for label in rng.zipf(1.3, count) % 10_000]
    items = [f"item {item}" for item in rng.integers(0, 30, count)]
    frames = rng.integers(10_000, 14_000, count)
    rejects = [Reject("index", row, f"{row}", f"no file /features/{row}.npy") for row in range(20_000)]

    summary = Summary.of(
        class_names=names, items=items, splits=["train"] * count, frames=frames.tolist(), nbytes=(frames * 512).tolist()
    )
    write_report(tmp_path / "r.html", Report(title="x", facts={}, summary=summary, notes=(), rejects=rejects))

    assert (tmp_path / "r.html").stat().st_size < 4 << 20


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_bars_stand_out_from_the_ground(scheme: str) -> None:
    """In light and in dark: 4.5 to 1 for text, 3 to 1 for bars, as WCAG asks."""
    blocks = re.findall(r":root \{([^}]*)\}", page(report_of(["x"])))
    colours = dict(re.findall(r"--(\w+): (#\w{6})", blocks[scheme == "dark"]))

    def luminance(name: str) -> float:
        parts = [int(colours[name][at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))

    def contrast(name: str) -> float:
        low, high = sorted((luminance(name), luminance("ground")))
        return (high + 0.05) / (low + 0.05)

    assert min(contrast("ink"), contrast("faint")) >= 4.5
    assert contrast("bar") >= 3


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50) | st.lists(st.integers(0, 100), min_size=1))
def test_every_value_lies_in_exactly_one_bar(values: list[int]) -> None:
    """Few bars, whatever the values; their heights add up."""
    array = np.array(values)
    edges = edges_of(array)

    assert 1 <= len(edges) - 1 <= 43
    assert all(low < high for low, high in pairwise(edges))
    assert edges[0] <= array.min()
    assert array.max() < edges[-1]
    drawn = histogram(array, unit="frames", of="samples")
    heights = [int(count.replace(",", "")) for count in re.findall(r": ([\d,]+) samples</title>", drawn)]
    assert sum(heights) == len(values)


@pytest.mark.parametrize(
    ("values", "edges"),
    [
        ([3, 5], [3, 4, 5, 6]),
        ([0, 399], list(range(0, 401, 10))),
        ([1, 1, 1, 900], [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]),
        ([0, 0, 0, 70], [0, 1, 2, 4, 8, 16, 32, 64, 128]),
    ],
)
def test_bars_are_single_numbers_or_round_or_doubling(values: list[int], edges: list[int]) -> None:
    """As the spread asks for."""
    assert edges_of(np.array(values)).tolist() == edges


def test_nothing_to_draw_is_no_figure() -> None:
    """No sample, or a run that wrote nothing."""
    assert histogram(np.zeros(0, np.int64), unit="frames", of="samples") == ""
    assert throughput([]) == throughput([(1.0, 5)]) == throughput([(1.0, 5), (1.0, 6)]) == ""
    assert Spread.of(np.zeros(0)).cells() == ("0", "0", "0")


def test_a_long_run_keeps_few_points_and_its_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day of five looks a second is thinned out; the first and the last stay, and so does the speed."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    run, seen = Run(), list[int]()
    note = run.watched(seen.append)
    for tick in range(100_000):
        now = tick / 5
        note(tick * 2_000_000)

    assert len(seen) == 100_000
    assert len(run.points) <= 401
    assert run.points[0] == (0.0, 0)
    assert run.points[-1] == (now, seen[-1])
    assert set(re.findall(r": ([\d,]+) MB/s</title>", throughput(run.points))) == {"10"}


def test_a_small_class_and_a_large_one_are_named_when_there_are_many() -> None:
    """Twenty at each end, by size; the loss of a cast only if something was cast."""
    text = page(Report(title="x", facts={}, summary=summary_of(list(range(1, 101))), notes=(), rejects=()))
    cells = re.findall(r"<td>(\d{5})</td><td>(\d+)</td>", text)

    assert [name for name, _ in cells] == [f"{n:05d}" for n in (*range(99, 79, -1), *range(19, -1, -1))]
    assert "60 classes of sizes between" in text
    assert "Cast" not in text
    loss = CastLoss(values=10, overflowed=1)
    assert "Cast" in page(Report(title="x", facts={}, summary=summary_of([1]), notes=(), rejects=(), loss=loss))


def test_an_item_belongs_to_its_class() -> None:
    """Two classes with an item of one name have an item each."""
    summary = Summary.of(
        class_names="abb", items=["1", "1", "1"], splits=["train", "val", "val"], frames=[1] * 3, nbytes=[4] * 3
    )

    assert summary.class_items.tolist() == [1, 1]
    assert [part[:4] for part in summary.parts] == [("train", 1, 1, 1), ("val", 2, 1, 1)]
