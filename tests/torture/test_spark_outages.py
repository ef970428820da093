"""A broker that is away for 15 s and for 55 s at each phase of a micro-batch, killed or hanging: the query goes on by itself.

One that is away for five minutes ends the queries; their runner starts them again until it is back.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.foreign_clients.broker_process import BrokerProcess
from tests.spark.cluster_pipeline import BROKER, COPY, HELD, SOURCE, TOTALS
from tests.spark.kills import PARTITION_COUNT, check_totals, fill, read
from tests.spark.outages import PHASES, check_outages
from tests.spark.submitting import FILE
from tests.waiting import eventually

from ottla.spark.defaults import session, stop_session
from ottla.sync import Admin, NewTopic

AWAY_SECONDS = 300
ROW_COUNT = 200


@pytest.fixture(scope="module")
def spark() -> Iterator[object]:
    yield session("outages", master="local[2]", config={"spark.sql.shuffle.partitions": "1"})
    stop_session()


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("seconds", [15, 55])
def test_a_query_outlives_a_broker_that_is_away_at_each_phase(spark: Any, tmp_path: Path, seconds: int, hangs: bool) -> None:
    check_outages(spark, tmp_path, PHASES, seconds, hangs=hangs)
    print(f"away for {seconds} s at each of {len(PHASES)} phases: the output is that of a batch")


def test_a_runner_outlives_a_broker_that_is_away_for_five_minutes(tmp_path: Path) -> None:
    data, said = tmp_path / "driver", tmp_path / "said"

    def lines() -> list[str]:
        return said.read_text().splitlines()

    with BrokerProcess(tmp_path) as broker, said.open("wb") as file:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic(name, PARTITION_COUNT, 1, {"retention.ms": "-1"}) for name in (SOURCE, COPY, TOTALS)])
        fill(broker.bootstrap, 0, ROW_COUNT)
        command = [
            sys.executable,
            "-m",
            "ottla",
            "pipeline",
            "run",
            str(FILE),
            "--master",
            "local[2]",
            "--data",
            str(data),
            "-B",
            broker.bootstrap,
        ]
        environment = os.environ | {HELD: str(tmp_path), BROKER: broker.bootstrap}
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
        try:
            eventually(lines, lambda found: sum("lag 0" in line for line in found) >= 2)
            broker.kill()
            time.sleep(AWAY_SECONDS)  # what is tested is that they have failed by then
            fallen = [re.split("  ", line)[0] for line in lines() if "failed, and is started again in 1 s: " in line]
            assert sorted(set(fallen)) == ["cluster_pipeline-copy", "cluster_pipeline-totals"]
            broker.start()
            fill(broker.bootstrap, ROW_COUNT, ROW_COUNT)
            eventually(lambda: len(read(broker.bootstrap, COPY)), lambda count: count >= 2 * ROW_COUNT)
            eventually(lambda: [line for line in lines()[-4:] if "lag 0" in line], lambda found: len(found) >= 2)
            process.send_signal(signal.SIGINT)
            process.wait()
        finally:
            process.kill()
            process.wait()
        known = ("starting Spark", "cluster_pipeline-", "ottla: no broker can be reached", "ottla: a broker can be reached again")
        assert not [line for line in lines() if line and not line.startswith(known)], "a failure is one line"
        assert sorted(record.value for record in read(broker.bootstrap, COPY)) == sorted(b"%d" % number for number in range(2 * ROW_COUNT))
        check_totals(broker.bootstrap, data / "cluster_pipeline-totals")
