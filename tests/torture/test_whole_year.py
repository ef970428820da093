"""The main job's pipeline over all flights of the year."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import spark
from tests.spark.test_flights import check_results

from ottla.spark.demo.flights import FLIGHT_COUNT

__all__ = ["spark"]


@pytest.mark.spark
def test_the_results_over_the_whole_year_are_those_of_pandas(spark: Any, tmp_path: Path) -> None:
    check_results(spark, tmp_path, FLIGHT_COUNT)
