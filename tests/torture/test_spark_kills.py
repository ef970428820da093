"""Spark, its JVM and its driver get SIGKILL, over and over on the same checkpoints: at every named point, and at any moment."""

import itertools
import random
from pathlib import Path

from tests.spark.doomed_queries import POINTS
from tests.spark.kills import Doom, check_kills

MOMENTS = 20
SECONDS_MAX = 8.0


def test_a_kill_at_every_point_of_both_modes_doubles_and_loses_nothing(tmp_path: Path) -> None:
    dooms: list[Doom] = [(app, after, point) for app, point, after in itertools.product(("totals", "copy"), POINTS, (0, 1))]
    check_kills(tmp_path, dooms)
    print(f"{len(dooms)} kills at named points: the output is that of a batch")


def test_a_kill_at_any_moment_doubles_and_loses_nothing(tmp_path: Path) -> None:
    rng = random.Random()
    dooms: list[Doom] = [rng.uniform(0, SECONDS_MAX) for _ in range(MOMENTS)]
    check_kills(tmp_path, dooms, queries=("copy", "totals", "plain"), rows_per_run=400)
    print(f"{MOMENTS} kills at any moment, up to {SECONDS_MAX} s after the queries began: the output is that of a batch")
