"""Damaged replicas beside all other trouble: nothing acknowledged is lost, and they are in sync again."""

from __future__ import annotations

import pytest
from tests.simulation.damaged_replicas import explore_damage


@pytest.mark.parametrize("seed", [2, 5])
@pytest.mark.slow
def test_damaged_replicas_are_fetched_again(seed: int) -> None:
    result = explore_damage(seed)
    assert not result.findings
    assert result.states["damaged replicas"]
