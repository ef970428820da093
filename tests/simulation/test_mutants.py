"""A test of the exploration: planted bugs are found. ``make test`` tries one, ``make sim`` all of them."""

from __future__ import annotations

import os
import re

import pytest
from tests.simulation.mutants import hunt, names

QUICK = ["acknowledged-before-written"]


@pytest.mark.timeout(700)
@pytest.mark.parametrize("name", names() if "OTTLA_SEEDS" in os.environ else QUICK)
def test_a_planted_bug_is_found(name: str) -> None:
    assert re.match(r"Plan\(|FAILED", hunt(name))
