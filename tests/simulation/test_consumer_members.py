"""No two members of a consumer group (KIP-848) ever read one partition, whatever befalls the brokers that coordinate it.

``OTTLA_SEEDS`` are explored.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.simulation.consumer_members import explore_members

SEEDS = int(os.environ.get("OTTLA_SEEDS", "4"))
MANY = 30
"""In so many a member is fenced."""


@pytest.mark.timeout(3600)
@pytest.mark.slow
def test_no_two_members_read_a_partition_while_coordinators_come_and_go() -> None:
    states: Counter[str] = Counter()
    for seed in range(SEEDS):
        run = explore_members(seed)
        assert not run.findings, f"seed {seed}: {run.findings}"
        states.update(run.states)
    print(dict(states))
    assert states["partitions taken by members"] > 20 * SEEDS
    assert states["commits of members"] > 20 * SEEDS
    assert states["members fenced"] > 0 or SEEDS < MANY
