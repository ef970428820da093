"""A broker that is away for 15 s and for 55 s at each phase of a micro-batch, killed or hanging: the query goes on by itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.outages import PHASES, check_outages

from ottla.spark.defaults import session, stop_session


@pytest.fixture(scope="module")
def spark() -> Iterator[object]:
    yield session("outages", master="local[2]", config={"spark.sql.shuffle.partitions": "1"})
    stop_session()


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("seconds", [15, 55])
def test_a_query_outlives_a_broker_that_is_away_at_each_phase(spark: Any, tmp_path: Path, seconds: int, hangs: bool) -> None:
    check_outages(spark, tmp_path, PHASES, seconds, hangs=hangs)
    print(f"away for {seconds} s at each of {len(PHASES)} phases: the output is that of a batch")
