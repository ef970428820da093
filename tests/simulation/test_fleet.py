"""Several nodes under schedules of faults; the share of ``make test`` is about 8 s, ``make sim`` explores OTTLA_SEEDS seeds."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
import structlog
from tests.scenarios.transcript import FOLDER
from tests.simulation.fleet import IMPORTANT, replay, try_seed
from tests.simulation.seeds import never_reached

from ottla.sim.fleet.run import explore_fleet
from ottla.sim.schedule.timed import from_text

SEEDS = int(os.environ.get("OTTLA_SEEDS", "6"))
ENOUGH = 500
"""So many seeds reach every state that matters."""
CHUNK = min(SEEDS, ENOUGH)
WITH_A_POWER_CUT = 143
"""A seed that draws one, among three other faults."""


@pytest.fixture(autouse=True)
def _heard() -> None:
    structlog.reset_defaults()  # what is logged is counted


def test_same_seed_same_trace() -> None:
    first = explore_fleet(3)
    assert first == explore_fleet(3)
    assert first.acknowledged > 500
    assert len(first.schedule) >= 3


def test_a_schedule_in_place_of_the_seeds_own_is_carried_out() -> None:
    outcome = explore_fleet(3, from_text("100 kill node-1 for 50\n300 pause node-2 for 100\n"))
    assert outcome.findings == []
    assert {"kill": 1, "pause": 1}.items() <= outcome.states.items()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
@pytest.mark.slow
def test_nodes_beside_each_other_keep_their_promises(first: int) -> None:
    met = Counter[str]()
    for seed in range(first, min(first + CHUNK, SEEDS)):
        _, findings, states = try_seed(seed)
        assert not findings, f"seed {seed}\n" + "\n".join(findings[:5])
        met += states
    if met["runs"] >= ENOUGH:
        assert never_reached(met, IMPORTANT) == []


def test_a_run_that_fails_is_a_finding_with_its_smallest_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what a power cut takes back counts as lost, though no promise covers it."""
    monkeypatch.setattr("ottla.sim.fleet.run.judge", _judge_strictly)
    _, findings, _ = try_seed(WITH_A_POWER_CUT)
    text = findings[0].partition("\n")[2]
    assert text.startswith(f"# seed {WITH_A_POWER_CUT}\n")
    assert [fault.kind.value for fault in from_text(text)] == ["power"]


async def _judge_strictly(unit: object, *, is_flushed: bool) -> list[str]:
    return [] if not unit.history.crashes else ["power was cut"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.faults")), ids=lambda path: path.stem)
def test_a_scenario_that_was_kept_breaks_no_promise(path: Path) -> None:
    assert replay(path) == []
