"""The table of races: each of the thirty is there, and each test that it names exists."""

from __future__ import annotations

import re
from pathlib import Path

TABLE = Path(__file__).with_name("README.md")
TESTS = TABLE.parent.parent
RACES = range(1, 31)


def rows() -> list[list[str]]:
    lines = [line for line in TABLE.read_text().splitlines() if re.match(r"\| \d", line)]
    return [line.strip("| ").split(" | ") for line in lines]


def test_every_race_has_both_orders() -> None:
    found = rows()
    assert sorted({int(row[0]) for row in found}) == list(RACES)
    assert [row for row in found if len(row) != 4] == []
    assert [row for row in found if "::test_" not in row[2] or not ("::test_" in row[3] or "the same test" in row[3])] == []


def test_every_test_of_the_table_exists() -> None:
    named = re.findall(r"`([a-z_/]+\.py)::(test_\w+)`", TABLE.read_text())
    assert len(named) > 50
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (TESTS / file).read_text()]
    assert missing == []
