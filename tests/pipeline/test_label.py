"""The one rule for cells, as a table."""

import datetime as dt

import pytest

from pipeline.label import BadCellError, label_of


@pytest.mark.parametrize(
    ("cell", "label"),
    [
        ("dog", "dog"),
        ("007", "007"),
        ("NA", "NA"),
        ("null", "null"),
        ("nan", "nan"),
        ("None", "None"),
        ("TRUE", "TRUE"),
        ("1e5", "1e5"),
        ("123e", "123e"),
        ("1-2", "1-2"),
        ("=1+1", "=1+1"),
        ("#N/A", "#N/A"),
        ("  padded\t", "padded"),
        ("\u00a0no-break\u3000", "no-break"),
        ("a\u00a0b", "a\u00a0b"),
        ("e\u0301", "\u00e9"),
        ("\uff11\uff12", "\uff11\uff12"),
        ("\u97f3\u697d", "\u97f3\u697d"),
        (12, "12"),
        (12.0, "12"),
        (-3.0, "-3"),
        (-0.0, "0"),
        (999_999_999_999_999.0, "999999999999999"),
    ],
)
def test_a_label_is_the_text_of_the_cell(cell: object, label: str) -> None:
    """Text keeps its spelling but for white space around it and Unicode's NFC; whole numbers lose their .0."""
    assert label == label_of(cell)


@pytest.mark.parametrize(
    ("cell", "says"),
    [
        ("", "blank"),
        (" \t\u00a0", "blank"),
        (None, "blank"),
        (True, "TRUE, a boolean; make the cell text"),
        (False, "FALSE, a boolean"),
        (dt.date(2026, 1, 2), "2026-01-02, a date or time"),
        (dt.datetime(2026, 1, 2, 3, 4), "2026-01-02 03:04:00, a date or time"),  # noqa: DTZ001 - as Excel has it
        (dt.time(12, 30), "12:30:00, a date or time"),
        (dt.timedelta(hours=30), "a date or time"),
        (1.5, "1.5, a number with a fraction"),
        (1e15, "1000000000000000, a number of more than 15 digits"),
        (12345678901234567.0, "more than 15 digits"),
        (float("nan"), "not a number"),
        (float("inf"), "not a number"),
        ("zero\u200bwidth", r"the invisible character U\+200B"),
        ("bell\x07", r"the invisible character U\+0007"),
        ("two\nlines", r"the invisible character U\+000A"),
        (b"bytes", "neither text nor a whole number"),
    ],
)
def test_what_excel_may_have_changed_or_nobody_can_see_is_no_label(cell: object, says: str) -> None:
    """Each cell that is refused says what it holds, and most say what to do."""
    with pytest.raises(BadCellError, match=says):
        label_of(cell)
