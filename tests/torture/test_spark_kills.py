"""Spark, its JVM and its driver get SIGKILL, over and over on the same checkpoints: at every named point, and at any moment.

With checkpoints in topics, their directories are deleted after each kill.
"""

import itertools
import random
from pathlib import Path

import pytest
from tests.spark.doomed_queries import POINTS
from tests.spark.kills import Doom, check_kills
from tests.spark.operators import OPERATORS

MOMENTS = 20
SECONDS_MAX = 8.0
SNAPSHOTS = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "1s",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
}
"""The mirror meets snapshots of the state, and files that are deleted."""


def test_a_kill_at_every_point_of_both_modes_doubles_and_loses_nothing(tmp_path: Path) -> None:
    dooms: list[Doom] = [(app, after, point) for app, point, after in itertools.product(("totals", "copy"), POINTS, (0, 1))]
    check_kills(tmp_path, dooms)
    print(f"{len(dooms)} kills at named points: the output is that of a batch")


def test_a_kill_at_any_moment_doubles_and_loses_nothing(tmp_path: Path) -> None:
    rng = random.Random()
    dooms: list[Doom] = [rng.uniform(0, SECONDS_MAX) for _ in range(MOMENTS)]
    check_kills(tmp_path, dooms, queries=("copy", "totals", "plain"), rows_per_run=400)
    print(f"{MOMENTS} kills at any moment, up to {SECONDS_MAX} s after the queries began: the output is that of a batch")


def test_a_kill_at_every_point_and_a_lost_checkpoint_double_and_lose_nothing(tmp_path: Path) -> None:
    dooms: list[Doom] = [(app, after, point) for app, point, after in itertools.product(("totals", "copy"), POINTS, (0, 1))]
    check_kills(tmp_path, dooms, loses_checkpoints=True)
    print(f"{len(dooms)} kills at named points, each with its checkpoint lost: the output is that of a batch")


@pytest.mark.parametrize("first", range(0, len(OPERATORS), 3))
def test_the_state_of_every_operator_outlives_kills_and_lost_checkpoints(tmp_path: Path, first: int) -> None:
    names = list(OPERATORS)[first : first + 3]
    rng = random.Random()
    dooms: list[Doom] = [rng.uniform(0, 2 * SECONDS_MAX) for _ in range(MOMENTS // 4)]
    dooms += [(name, 1, point) for name, point in zip(itertools.cycle(names), POINTS, strict=False)]
    rng.shuffle(dooms)
    check_kills(tmp_path, dooms, queries=names, rows_per_run=160, loses_checkpoints=True, config=SNAPSHOTS)
    print(f"{len(dooms)} kills of {', '.join(names)}, each with its checkpoint lost: the output is that of a batch")
