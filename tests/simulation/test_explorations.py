"""The cluster simulator: whatever befalls nodes and clients, no promise is broken.

``OTTLA_SEEDS`` are explored of each kind, in three blocks; those of ``make test`` and ``make test-slow`` are in the table.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from tests.simulation.crash_points import POINTS
from tests.simulation.draws import NAMES
from tests.simulation.explorations import EXPLORATIONS, QUORUM, ZOOKEEPER
from tests.simulation.explorer import Trial, explore
from tests.simulation.trying import KEPT, never_met, replay, shrunk, try_seed

from ottla.sim.cluster import Simulation
from ottla.sim.schedule.fault import Kind, from_text, to_text

SEEDS: Final = int(os.environ.get("OTTLA_SEEDS", "0"))
BLOCKS: Final = 3
CONTENT_SHARE: Final = 0.97
"""Of runs: in very few no change of leaders cuts a record."""
PER_API, PER_MOMENT = 33, 11
SOME_OF_EVERYTHING: Final = [len(POINTS) * (api % 3) + PER_API * api + PER_MOMENT * (api % 3) + 4 * api % PER_MOMENT for api in range(7)]
SHARES: Final[Mapping[tuple[str, str], Sequence[int]]] = {
    ("alone", QUORUM): range(18),
    ("steps", QUORUM): range(200),
    ("crowd", QUORUM): range(2),
    ("leaders", QUORUM): range(2),
    ("metadata", QUORUM): range(3),
    ("replicated", QUORUM): range(3),
    ("following", QUORUM): range(3),
    ("replicated", ZOOKEEPER): range(2),
    ("moments", QUORUM): range(3),
    ("moments", ZOOKEEPER): range(2),
    ("hard", QUORUM): range(1),
    ("hard", ZOOKEEPER): range(1),
    ("transactions", QUORUM): range(1),
    ("hard-transactions", QUORUM): range(1),
    ("moves", QUORUM): range(1),
    ("moves", ZOOKEEPER): range(1),
    ("busy", QUORUM): range(1),
    ("busy", ZOOKEEPER): range(1),
    ("crash-points", QUORUM): SOME_OF_EVERYTHING,
    ("members", QUORUM): range(4),
    ("damage", QUORUM): [2, 5],
    ("acls", QUORUM): range(3),
    ("acls", ZOOKEEPER): range(2),
    ("guarded-acls", QUORUM): range(1),
}
QUICK: Final = (
    *(("leaders", QUORUM), ("metadata", QUORUM), ("replicated", QUORUM), ("acls", QUORUM), ("acls", ZOOKEEPER)),
    ("guarded-acls", QUORUM),
)
WATCHED: Final = dict.fromkeys(("markers sent", "stable offsets looked at", "transactional batches", "decisions committed"), 20)
TRANSACTED: Final = WATCHED | {"transactions committed": 20, "transactions aborted": 5}
MOVED: Final = {"acknowledged records": 500, "replicas moved": 50}
LEAST: Final[Mapping[tuple[str, str], Mapping[str, float]]] = {
    ("alone", QUORUM): {"acknowledged records": 100, "troubles": 1},
    ("steps", QUORUM): {"acknowledged records": 100, "triggered": 0.8},
    ("leaders", QUORUM): {"acknowledged records": 300, "asked while it is led elsewhere": 5, "coordinators that load": 1},
    ("metadata", QUORUM): {"acknowledged topics": 20, "controller_active": 1},
    ("following", QUORUM): {"acknowledged records": 800, "offsets committed": 1, "troubles": 3},
    ("replicated", ZOOKEEPER): {"acknowledged records": 500, "controller_elected": 1.1},
    ("moments", QUORUM): {"triggered": 3},
    ("moments", ZOOKEEPER): {"triggered": 3},
    ("transactions", QUORUM): TRANSACTED,
    ("hard-transactions", QUORUM): TRANSACTED,
    ("moves", QUORUM): TRANSACTED | {"replicas moved": 50},
    ("moves", ZOOKEEPER): MOVED,
    ("busy", QUORUM): TRANSACTED | {"replicas moved": 50},
    ("busy", ZOOKEEPER): MOVED,
    ("crash-points", QUORUM): {"triggered": 1},
    ("members", QUORUM): {"partitions taken by members": 20, "commits of members": 20},
    ("damage", QUORUM): {"damaged replicas": 1},
    ("acls", QUORUM): {"judged": 100, "changes": 20},
    ("acls", ZOOKEEPER): {"judged": 100, "changes": 20, "changes of a tool": 5},
    ("guarded-acls", QUORUM): {"judged": 100, "changes": 20, "authenticated again": 5},
}
"""So much of each a run has met on the average: otherwise it says nothing about it."""


def rows() -> list[Any]:
    return [
        pytest.param(key, block, id=f"{'-in-'.join(key)}-{block}", marks=[] if key in QUICK else [pytest.mark.slow])
        for key in EXPLORATIONS
        for block in range(min(BLOCKS, SEEDS or len(SHARES[key])))
    ]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("key", "block"), rows())
def test_no_promise_is_broken(key: tuple[str, str], block: int) -> None:
    met = Counter[str]()
    for seed in (range(SEEDS) or SHARES[key])[block::BLOCKS]:
        _, findings, states = try_seed(*key, seed)
        assert not findings, f"seed {seed}: {findings[0]}\n{findings[1:4]}"
        met += states
    print(dict(met))
    assert met["with content"] >= CONTENT_SHARE * met["runs"]
    assert all(met[state] >= least * met["runs"] for state, least in LEAST.get(key, {}).items()), LEAST[key]
    assert not never_met(key, met), met


@pytest.mark.parametrize(
    "key",
    [
        ("metadata", QUORUM),
        *(pytest.param(key, marks=pytest.mark.slow) for key in (("replicated", ZOOKEEPER), ("moments", QUORUM))),
    ],
    ids="-in-".join,
)
def test_the_text_of_the_schedule_of_a_seed_leads_to_the_same_run(key: tuple[str, str]) -> None:
    first = explore(EXPLORATIONS[key], 7)
    again = explore(EXPLORATIONS[key], 7, from_text(to_text(first.schedule, "seed 7")))
    assert again.digest == first.digest
    assert again.schedule == first.schedule


def test_a_seed_leads_to_the_same_run() -> None:
    exploration = EXPLORATIONS["metadata", QUORUM]
    assert explore(exploration, 7).digest == explore(exploration, 7).digest


def test_who_looks_at_exchanges_and_operations_changes_nothing() -> None:
    """Triggers that nothing springs, of each kind, leave the run as it is."""
    exploration = EXPLORATIONS["metadata", QUORUM]
    first = explore(exploration, 3)
    waiting = from_text("0 when 1000000 FETCH sent: kill node-1\n0 when 1000000 step node-1: kill node-1\n")
    again = explore(exploration, 3, [*waiting, *first.schedule])
    assert again.states["never triggered"] == len(waiting)
    assert again.digest == first.digest


def test_a_run_that_never_starts_ends_with_a_finding() -> None:
    class Unprepared:
        async def prepare(self) -> None:
            await asyncio.Event().wait()

        def tasks(self) -> list[Any]:
            return []

    found = explore(replace(EXPLORATIONS["metadata", QUORUM], work_of=lambda trial: Unprepared()), 3)
    assert found.findings == ["TimeoutError()"]


@pytest.mark.parametrize("key", EXPLORATIONS, ids="-in-".join)
def test_what_a_seed_draws_is_a_text_to_be_read_and_written(key: tuple[str, str]) -> None:
    for seed in range(20):
        faults = EXPLORATIONS[key].draw(Simulation(seed))
        assert from_text(to_text(faults)) == faults


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.txt")), ids=lambda path: path.stem)
def test_a_schedule_that_failed_once_breaks_no_promise(path: Any) -> None:
    run = replay(path)
    assert run.findings == []
    assert run.states["troubles"]


def test_a_run_that_fails_shrinks_to_the_faults_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a checker that takes it for a mistake that node 2 has been killed, and another one been paused after that."""
    monkeypatch.setattr("tests.simulation.trying.RUNS_MAX", 100)

    class Idle:
        def __init__(self, trial: Trial) -> None: ...

        async def prepare(self) -> None: ...

        def tasks(self) -> list[Any]:
            return []

    async def planted(trial: Trial) -> list[str]:
        deaths = [fault.at_ms for fault in trial.injector.begun if (fault.kind, fault.host) == (Kind.KILL, NAMES[1])]
        pauses = [fault.at_ms for fault in trial.injector.begun if fault.kind is Kind.PAUSE]
        return ["planted"] if deaths and pauses and min(deaths) < max(pauses) else []

    exploration = replace(EXPLORATIONS["metadata", QUORUM], work_of=Idle, checkers=[planted])
    seed, found = next((seed, found) for seed in range(40) if (found := explore(exploration, seed)).findings)
    assert len(found.schedule) > 5
    faults = shrunk(lambda faults: explore(exploration, seed, faults), found)
    assert [fault.kind for fault in faults] == [Kind.KILL, Kind.PAUSE]
    assert explore(exploration, seed, from_text(to_text(faults))).findings == ["planted"]


def test_the_share_of_crash_points_that_is_always_run_has_some_of_everything() -> None:
    for part in ("api", "moment", "victim", "fault"):
        assert {getattr(POINTS[seed % len(POINTS)], part) for seed in SOME_OF_EVERYTHING} == {getattr(point, part) for point in POINTS}
