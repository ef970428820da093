"""Spark and its driver killed at named points, and their checkpoints lost: the output is that of a batch.

tests/torture/test_spark_kills.py has all of the points, and all of the operators.
"""

from pathlib import Path

import pytest
from tests.spark.kills import check_kills


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.slow
def test_what_is_written_over_kills_and_lost_checkpoints_is_what_a_batch_computes(tmp_path: Path) -> None:
    dooms = [("totals", 1, "half produced"), ("copy", 1, "committed")]
    check_kills(tmp_path, dooms, queries=("copy", "totals", "outer_join"), loses_checkpoints=True)
