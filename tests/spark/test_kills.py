"""Spark and its driver killed at named points: the output is that of a batch. tests/torture/test_spark_kills.py has all of the points."""

from pathlib import Path

import pytest
from tests.spark.kills import check_kills


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_what_is_written_over_kills_is_what_a_batch_computes(tmp_path: Path) -> None:
    check_kills(tmp_path, [("totals", 1, "half produced"), ("copy", 1, "committed")])
