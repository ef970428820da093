"""The examples, run as their first lines say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.cli.cluster_command import consecutive_ports
from tests.cli.pages import is_shown, sessions
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient, end_offsets

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SECONDS_MAX = 120


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process:
        yield process


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
def test_mechanism_80_an_event_driven_service(broker: BrokerProcess) -> None:
    assert run("event_driven", broker.bootstrap) == "100 orders charged\n"
    with RawClient(broker.port) as client:
        assert sum(end_offsets(client, "shop.payments", 3)) == 100


@pytest.mark.slow
def test_mechanism_80_ingestion_of_a_file_into_parquet(broker: BrokerProcess, tmp_path: Path) -> None:
    lines = [f"host-{number % 3} line {number}" for number in range(2000)]
    (tmp_path / "app.log").write_text("\n".join(lines) + "\n")
    printed = run("ingestion", broker.bootstrap, str(tmp_path / "app.log"), str(tmp_path / "lake"))
    assert printed.split() == ["2000", "lines", "shipped", "2000", "rows", "written"]
    rows = [row for path in (tmp_path / "lake").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted(f"{row['host']} {row['line']}" for row in rows) == sorted(lines)


@pytest.mark.spark
@pytest.mark.slow
def test_mechanism_80_analytics_with_pyspark(broker: BrokerProcess) -> None:
    assert run("analytics", broker.bootstrap) == "10000 views in 240 windows\n"
    with RawClient(broker.port) as client:
        assert end_offsets(client, "site.counts", 1) == [240]


@pytest.mark.parametrize("home", [(), ("--zookeeper", "own")], ids=["quorum", "zookeeper"])
@pytest.mark.slow
def test_mechanism_37_the_classic_drill_of_three_brokers_one_of_which_dies_and_returns(home: tuple[str, ...]) -> None:
    printed = run("failover", "--port", str(consecutive_ports(6)), *home)
    [typed] = sessions("failover.md")[bool(home)]
    assert typed.command == " ".join(["python examples/failover.py", *home])
    assert is_shown(typed.output, printed, {"in sync"}), printed
    blocks = [block.splitlines() for block in printed.strip().split("\n\n")]
    tables = {lines[0]: [line.split() for line in lines[2:5]] for lines in blocks[:-1]}
    began = [["0", "1,2", "1", "0", "1,2"], ["1", "2,3", "2", "0", "2,3"], ["2", "3,1", "3", "0", "3,1"]]
    assert tables["Three brokers, a producer and a consumer:"] == began
    assert tables["Broker 1 was killed (SIGKILL):"] == [
        ["0", "1,2", "2", "1", "2"],
        ["1", "2,3", "2", "0", "2,3"],
        ["2", "3,1", "3", "0", "3"],
    ]
    back = tables["Broker 1 was started again, has caught up, and is in sync:"]
    assert [(row[2], sorted(row[4].split(","))) for row in back] == [("2", ["1", "2"]), ("2", ["2", "3"]), ("3", ["1", "3"])]
    assert [row[2] for row in tables["The preferred leaders were elected:"]] == ["1", "2", "3"]
    assert blocks[-1][0].endswith("sent, acknowledged, and read once and in order; no client reported an error")
