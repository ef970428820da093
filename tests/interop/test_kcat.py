"""kcat as Debian packs it (librdkafka 2.0.2), against a broker process.

A librdkafka of that age looks for Produce v0 before it compresses: what lies on disk shows that it found it.
"""

import subprocess
from collections.abc import Iterator

import pytest
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.wire import RawClient, end_offsets
from tests.foreign_clients.workload import (
    CODECS,
    PARTITION_COUNT,
    RECORD_COUNT,
    Record,
    assert_received,
    assert_sent,
    assert_stored_as,
    key_of,
    value_of,
)
from tests.interop.tools import program, run

from ottla import sync


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """kcat cannot create topics: the broker does when they are asked for."""
    with BrokerProcess(tmp_path_factory.mktemp("kcat"), port=lasting_port(), num_partitions=str(PARTITION_COUNT)) as process:
        yield process


@pytest.fixture(scope="module")
def kcat(broker: BrokerProcess) -> list[str]:
    return [program("kcat", way_to_get_it="apt install kcat"), "-q", "-b", broker.bootstrap]


def lines(first: int, last: int) -> str:
    return "".join(f"{key_of(index).decode()}:{value_of(index).decode()}\n" for index in range(first, last))


def produce(kcat: list[str], broker: BrokerProcess, topic: str, codec: str) -> None:
    """RECORD_COUNT keyed records from one kcat, which (by -E) lives through a restart of the broker."""
    options = ["-P", "-E", "-t", topic, "-z", codec, "-K:", "-X", "partitioner=murmur2_random", "-X", "enable.idempotence=true"]
    half = RECORD_COUNT // 2
    with subprocess.Popen([*kcat, *options], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(lines(0, half))
        process.stdin.flush()
        with RawClient(broker.port) as client:
            while sum(end_offsets(client, topic, PARTITION_COUNT)) < RECORD_COUNT // 4:  # all but what kcat still buffers
                assert process.poll() is None, "kcat ended"
        broker.stop()
        process.stdin.write(lines(half, RECORD_COUNT))
        process.stdin.flush()
        broker.start()
        process.stdin.close()
    assert process.returncode == 0


def records(output: str) -> list[Record]:
    fields = [line.split("\t") for line in output.splitlines()]
    return [Record(int(partition), int(offset), key.encode(), value.encode()) for partition, offset, key, value in fields]


def consume(kcat: list[str], topic: str, group: str, count: int) -> list[Record]:
    """So many records as a member of the group, which commits when it leaves."""
    return records(run(*kcat, "-X", "auto.offset.reset=earliest", "-f", "%p\t%o\t%k\t%s\n", "-c", str(count), "-G", group, topic))


def committed(broker: BrokerProcess, topic: str, group: str) -> dict[int, int]:
    with sync.Admin(broker.bootstrap) as admin:
        found = admin.committed_offsets(group)
    return {index: found[place].offset if (place := sync.TopicPartition(topic, index)) in found else 0 for index in range(PARTITION_COUNT)}


@pytest.mark.parametrize("codec", CODECS)
def test_10000_records_survive_restarts_of_broker_and_consumer(kcat: list[str], broker: BrokerProcess, codec: str) -> None:
    topic = f"records-{codec}"
    run(*kcat, "-L", "-t", topic)  # and so it is created
    assert f'topic "{topic}" with {PARTITION_COUNT} partitions' in run(*kcat, "-L")

    produce(kcat, broker, topic, codec)
    sent = records(run(*kcat, "-C", "-t", topic, "-o", "beginning", "-e", "-f", "%p\t%o\t%k\t%s\n"))
    assert sorted(record.value for record in sent) == [value_of(index) for index in range(RECORD_COUNT)]
    assert_sent(sent)
    first = consume(kcat, topic, f"group-{codec}", RECORD_COUNT // 3)
    commits = committed(broker, topic, f"group-{codec}")
    broker.restart()
    rest = consume(kcat, topic, f"group-{codec}", RECORD_COUNT - len(first))

    assert_received(sent, first, rest, commits)
    assert_stored_as(codec, broker.data, topic)
