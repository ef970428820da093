"""A share of the crash states of each recorded run; ``make torture`` tries 100,000."""

from __future__ import annotations

import pytest
from tests.storage.crash_states import explore
from tests.storage.recorded_runs import RUNS


@pytest.mark.parametrize("name", RUNS)
def test_what_a_power_cut_leaves_is_recovered_as_promised(name: str) -> None:
    assert explore(RUNS[name](), seed=1, states=600) >= 600
