"""A share of the refusals of ``refusals.py``: those of operations where one has taken more with it than itself."""

from __future__ import annotations

from functools import cache
from typing import get_args

import pytest
from tests.simulation.refusals import Life, Operation, Place, live, refusals

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


IN_ZOOKEEPER: tuple[Operation, ...] = (("rename", "/D/P"),)
TRIED: list[tuple[Place, Operation]] = [("broker", operation) for operation in OPERATIONS]
TRIED += [("zookeeper", operation) for operation in IN_ZOOKEEPER]


@cache
def undisturbed(place: Place) -> Life:
    return live(None, place=place)


@pytest.mark.parametrize("place", get_args(Place))
def test_a_life_without_a_refusal_is_judged_to_be_well(place: Place) -> None:
    assert undisturbed(place).findings == []


@pytest.mark.parametrize(("place", "operation"), TRIED, ids=lambda part: part if isinstance(part, str) else " ".join(part))
def test_what_is_refused_once_is_done_in_the_end_and_takes_nothing_with_it(place: Place, operation: Operation) -> None:
    quiet = undisturbed(place)
    last = quiet.seen[operation]
    tried = [refusal for refusal in refusals(quiet) if refusal.operation == operation and refusal.nth == last]
    assert tried
    lives = {str(refusal): live(refusal, place=place) for refusal in tried}
    assert {name: life.findings for name, life in lives.items()} == {name: [] for name in lives}
    assert sum(life.has_struck for life in lives.values()) > 1, "the moment of one differs from that of an undisturbed life"
