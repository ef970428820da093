"""A test of the tests: planted bugs are found. ``make test`` tries one, ``make sim`` all of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from tests.simulation.mutants import MUTANTS, ROOT, hunt, names

QUICK = ["acknowledged-before-written"]


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", names() if "OTTLA_SEEDS" in os.environ else QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    assert hunt(name).startswith("FAILED")


def test_every_planted_bug_has_its_place() -> None:
    """One that has none is looked for by no test, and one that has two may be planted in another function than it was made for."""
    assert all(any(places(name)) for name in names())
    stale = [f"{name}: {path} has this {count} times:\n{place}" for name in names() for path, place, count in places(name) if count != 1]
    assert not stale, "\n".join(stale)


def places(name: str) -> Iterator[tuple[str, str, int]]:
    """Yields what each part of the patch looks for: the file, its lines there, and how often it has them."""
    text = (MUTANTS / f"{name}.patch").read_text()
    for path, parts in re.findall(r"^\+\+\+ b/(.+)\n((?:[@ +\\-].*\n|\n)+?)(?=^--- a/|\Z)", text, re.MULTILINE):
        source = "\n" + (ROOT / path).read_text()
        for part in re.split(r"^@@.*\n", parts, flags=re.MULTILINE)[1:]:
            place = "".join(line[1:] for line in part.splitlines(keepends=True) if line[0] in " -\n")
            yield path, place, source.count("\n" + place)
