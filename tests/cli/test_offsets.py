"""The offset language."""

from __future__ import annotations

import re

import pytest

from ottla.cli.offsets import Base, OffsetPoint, OffsetRange, parse_offsets
from ottla.errors import KafkaError

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", OffsetRange(OffsetPoint(Base.START))),
        ("end", OffsetRange(OffsetPoint(Base.END))),
        (":end", OffsetRange(OffsetPoint(Base.START), OffsetPoint(Base.END))),
        ("7", OffsetRange(OffsetPoint(Base.OFFSET, 7))),
        ("5:9", OffsetRange(OffsetPoint(Base.OFFSET, 5), OffsetPoint(Base.OFFSET, 9))),
        ("+10", OffsetRange(OffsetPoint(Base.START, 10))),
        ("-10", OffsetRange(OffsetPoint(Base.END, -10))),
        ("-10:end", OffsetRange(OffsetPoint(Base.END, -10), OffsetPoint(Base.END))),
        (":9", OffsetRange(OffsetPoint(Base.START), OffsetPoint(Base.OFFSET, 9))),
        ("@now", OffsetRange(OffsetPoint(Base.TIME, NOW))),
        ("@-1h", OffsetRange(OffsetPoint(Base.TIME, NOW - 3_600_000))),
        ("@-30m", OffsetRange(OffsetPoint(Base.TIME, NOW - 1_800_000))),
        ("@-30m:now", OffsetRange(OffsetPoint(Base.TIME, NOW - 1_800_000), OffsetPoint(Base.TIME, NOW))),
        ("@1600000000", OffsetRange(OffsetPoint(Base.TIME, 1_600_000_000_000))),
        ("@1600000000123", OffsetRange(OffsetPoint(Base.TIME, 1_600_000_000_123))),
        ("@1600000000.5", OffsetRange(OffsetPoint(Base.TIME, 1_600_000_000_500))),
        ("@2020-09-13", OffsetRange(OffsetPoint(Base.TIME, 1_599_955_200_000))),
        ("@2020-09-13T12:26:40", OffsetRange(OffsetPoint(Base.TIME, 1_600_000_000_000))),
        ("@2020-09-13T12:26:40+00:00:-1s", OffsetRange(OffsetPoint(Base.TIME, 1_600_000_000_000), OffsetPoint(Base.TIME, NOW - 1000))),
        ("@2020-09-13:2020-09-14", OffsetRange(OffsetPoint(Base.TIME, 1_599_955_200_000), OffsetPoint(Base.TIME, 1_600_041_600_000))),
    ],
)
def test_a_text_means_a_range(text: str, expected: OffsetRange) -> None:
    assert parse_offsets(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "x", "1.5", "5:x", "@", "@yesterday", "@-1y", "++1", "@1:2:3:4x"])
def test_anything_else_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(KafkaError, match="expected"):
        parse_offsets(text, NOW)


@pytest.mark.parametrize("text", ["5:2", "+5:+2", "-1:-5", "@-1h:-2h", "@2020-09-14:2020-09-13"])
def test_a_range_that_ends_before_its_start_is_refused(text: str) -> None:
    with pytest.raises(KafkaError, match=f"offset {re.escape(repr(text))}: the range ends before its start"):
        parse_offsets(text, NOW)


def test_an_empty_range_is_one() -> None:
    assert parse_offsets("5:5", NOW) == OffsetRange(OffsetPoint(Base.OFFSET, 5), OffsetPoint(Base.OFFSET, 5))
