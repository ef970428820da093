"""Kafka's own Java client 4.3, from Maven Central, against a broker process."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.refusing_broker import COMMITTED, GROUP, PASSING, RECORDS, TOPIC, UNSTABLE, refusing_broker
from tests.foreign_clients.workload import (
    CODECS,
    KEY_COUNT,
    PARTITION_COUNT,
    RECORD_COUNT,
    Record,
    assert_received,
    assert_sent,
    assert_stored_as,
    key_of,
    value_of,
)
from tests.interop.tools import run

from ottla.errors import ErrorCode


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("java"), port=lasting_port()) as process:
        yield process


def produce(client: list[str], broker: BrokerProcess, topic: str, codec: str) -> list[Record]:
    """RECORD_COUNT keyed records from one producer, which lives through a restart of the broker."""
    arguments = ["produce", broker.bootstrap, topic, codec, str(RECORD_COUNT), str(KEY_COUNT)]
    with subprocess.Popen([*client, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "half\n"
        broker.stop()
        process.stdin.write("\n")
        process.stdin.flush()
        broker.start()
        places = [tuple(map(int, line.split("\t"))) for line in process.stdout]
    assert process.returncode == 0
    return [Record(partition, offset, key_of(index), value_of(index)) for index, (partition, offset) in enumerate(places)]


def consume(
    client: list[str], broker: BrokerProcess, topic: str, group: str, count_min: int, protocol: str = "classic"
) -> tuple[list[Record], dict[int, int]]:
    got, committed = [], {}
    for line in run(*client, "consume", broker.bootstrap, topic, group, str(count_min), protocol).splitlines():
        fields = line.split("\t")
        if fields[0] == "committed":
            committed[int(fields[1])] = int(fields[2])
        else:
            got.append(Record(int(fields[0]), int(fields[1]), fields[2].encode(), fields[3].encode()))
    return got, committed


@pytest.mark.parametrize("codec", CODECS)
def test_10000_records_survive_restarts_of_broker_and_consumer(java_client: list[str], broker: BrokerProcess, codec: str) -> None:
    topic = f"records-{codec}"
    assert run(*java_client, "create", broker.bootstrap, topic, str(PARTITION_COUNT)) == f"{topic}\t{PARTITION_COUNT}\n"

    sent = produce(java_client, broker, topic, codec)
    assert_sent(sent)
    first, committed = consume(java_client, broker, topic, f"group-{codec}", RECORD_COUNT // 3)
    broker.restart()
    rest, _ = consume(java_client, broker, topic, f"group-{codec}", RECORD_COUNT - len(first))

    assert_received(sent, first, rest, committed)
    assert_stored_as(codec, broker.data, topic)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_after_a_restart_where_it_has_committed(java_client: list[str], broker: BrokerProcess, protocol: str) -> None:
    """KIP-848: ``group.protocol=consumer``; the next member reads all the rest, and a pattern finds the topic."""
    topic = f"group-of-{protocol}"
    run(*java_client, "create", broker.bootstrap, topic, str(PARTITION_COUNT))
    assert_sent(produce(java_client, broker, topic, "none"))
    first, committed = consume(java_client, broker, topic, f"group-{protocol}", RECORD_COUNT // 3, protocol)
    assert sum(committed.values()) == len(first)
    broker.restart()
    rest, _ = consume(java_client, broker, topic, f"group-{protocol}", RECORD_COUNT - len(first), protocol)
    assert len(first) + len(rest) == RECORD_COUNT
    if protocol == "consumer":
        found, _ = consume(java_client, broker, "^group-of-con.*", "group-by-pattern", RECORD_COUNT, protocol)
        assert len(found) == RECORD_COUNT


@pytest.mark.parametrize("code", [*PASSING, UNSTABLE])
def test_a_refused_question_for_the_committed_offset_is_asked_again(java_client: list[str], tmp_path: Path, code: ErrorCode) -> None:
    with refusing_broker(tmp_path) as (thread, refusing):
        refusing.refuse(code)
        lines = run(*java_client, "consume", thread.bootstrap, TOPIC, GROUP, str(RECORDS - COMMITTED)).splitlines()
    assert [int(line.split("\t")[1]) for line in lines if not line.startswith("committed")] == list(range(COMMITTED, RECORDS))
