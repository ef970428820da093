"""A broker that is away for some seconds while a query runs; tests/torture/test_spark_outages.py has all phases, and minutes."""

from pathlib import Path
from typing import Any

import pytest
from tests.spark.outages import PHASES, check_outages

WITHIN = ("planning", "produced half, not answered")


@pytest.mark.spark
@pytest.mark.slow
def test_a_query_outlives_a_broker_that_is_away_within_its_batches(spark: Any, tmp_path: Path):
    check_outages(spark, tmp_path, [phase for phase in PHASES if phase.name in WITHIN], 4)
