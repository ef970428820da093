"""A test of the tests: planted bugs are found. ``make test`` tries one, ``make sim`` all of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.simulation.mutants import MUTANTS, copy_into, hunt, names

QUICK = ["acknowledged-before-written"]


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", names() if "OTTLA_SEEDS" in os.environ else QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    assert hunt(name).startswith("FAILED")


def test_every_planted_bug_applies(tmp_path: Path) -> None:
    """One that does not is looked for by no test."""
    copy_into(str(tmp_path))
    stale: list[str] = []
    for name in names():
        patch = (MUTANTS / f"{name}.patch").read_bytes()
        tried = subprocess.run(["patch", "-p1", "--forward", "--dry-run"], input=patch, cwd=tmp_path, capture_output=True, check=False)
        if tried.returncode:
            stale.append(f"{name}: {tried.stdout.decode()}")
    assert not stale, "\n".join(stale)
