"""A share of the refusals of ``refusals.py``: those of operations where one has taken more with it than itself."""

from __future__ import annotations

from functools import cache

import pytest
from tests.simulation.refusals import Life, Operation, live, refusals

OPERATIONS: tuple[Operation, ...] = (
    ("append", "/D/METADATA/N.checkpoint.tmp"),
    ("append", "/D/METADATA/leader-epoch-checkpoint.tmp"),
    ("append", "/D/P/N.log.cleaned"),
    ("append", "/D/recovery-point-offset-checkpoint.tmp"),
    ("list_dir", "/D/P"),
    ("rename", "/D/P"),
    ("rename", "/D/P/N.index.cleaned"),
    ("rename", "/D/P.N-future"),
)


@cache
def undisturbed() -> Life:
    return live(None)


def test_a_life_without_a_refusal_is_judged_to_be_well() -> None:
    assert undisturbed().findings == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=" ".join)
def test_what_is_refused_once_is_done_in_the_end_and_takes_nothing_with_it(operation: Operation) -> None:
    last = undisturbed().seen[operation]
    tried = [refusal for refusal in refusals(undisturbed()) if refusal.operation == operation and refusal.nth == last]
    assert tried
    lives = {str(refusal): live(refusal) for refusal in tried}
    assert {name: life.findings for name, life in lives.items()} == {name: [] for name in lives}
    assert sum(life.has_struck for life in lives.values()) > 1, "the moment of one differs from that of an undisturbed life"
