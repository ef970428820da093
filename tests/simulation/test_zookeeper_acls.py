"""In ZooKeeper mode, too, a broker enforces what it has acknowledged, and all come to the ACLs of the znodes, which a tool changes as well.

``make sim`` explores OTTLA_SEEDS seeds.
"""

from __future__ import annotations

import os
from typing import Final

import pytest
from tests.simulation.acl_changes import explore_acls

SEEDS: Final = int(os.environ.get("OTTLA_SEEDS", "2"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_is_enforced(seed: int) -> None:
    rights = explore_acls(seed, is_in_zookeeper=True)
    assert rights.findings == []
    assert rights.states["judged"] >= 100
    assert rights.states["changes"] >= 20
    assert rights.states["changes of a tool"] >= 5
