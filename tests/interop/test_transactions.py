"""Apache Kafka 4.3's own programs with transactions, at level 2, on a broker process: producers, copiers and `kafka-transactions`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from tests.foreign_clients.broker_process import BrokerProcess
from tests.interop.tools import run

from ottla.sync import Admin, NewTopic, Producer

TOOLS = "org.apache.kafka.tools."
TOOL_SECONDS_MAX = 90
COUNT = 1000
WAIT_SECONDS = 20.0
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("java-transactions")) as process:
        yield process


@pytest.fixture(scope="module")
def tool(java: list[str], broker: BrokerProcess) -> Tool:
    def run_tool(name: str, *arguments: str, server: str = "--bootstrap-server") -> str:
        return run(*java, TOOLS + name, server, broker.bootstrap, *arguments, seconds_max=TOOL_SECONDS_MAX)

    return run_tool


def create(broker: BrokerProcess, *names: str) -> None:
    with Admin(broker.bootstrap) as admin:
        assert admin.create_topics([NewTopic(name, 1, 1) for name in names]) == dict.fromkeys(names)


def fill(broker: BrokerProcess, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number)


def read_committed(broker: BrokerProcess, topic: str) -> Counter[int]:
    """What librdkafka's reader gets, to the end of the topic."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"reader-of-{topic}", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: Counter[int] = Counter()
    while True:
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None, "the end of the topic is not reached"
        if message.error():
            break
        found[int(message.value() or b"")] += 1
    consumer.close()
    return found


@pytest.mark.parametrize("more", [[], ["--enable-random-aborts"], ["--group-mode"], ["--group-mode", "--enable-random-aborts"]])
def test_a_copier_copies_everything_once(broker: BrokerProcess, tool: Tool, more: list[str]) -> None:
    name = "".join(more).replace("-", "") or "plain"
    create(broker, f"{name}-in", f"{name}-out")
    fill(broker, f"{name}-in")
    arguments = [
        *("--transactional-id", name, "--input-topic", f"{name}-in", "--input-partition", "0", "--output-topic", f"{name}-out"),
        *("--consumer-group", f"{name}-group", "--transaction-size", "37", "--max-messages", str(COUNT)),
    ]
    said = tool("TransactionalMessageCopier", *arguments, *more, server="--broker-list")
    assert json.loads(said.strip().splitlines()[-1])["consumed"] == COUNT
    assert read_committed(broker, f"{name}-out") == Counter(range(COUNT))


def test_producer_performance_with_transactions(broker: BrokerProcess, tool: Tool) -> None:
    create(broker, "perf")
    said = tool(
        *("ProducerPerformance", "--topic", "perf", "--num-records", "5000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", "perf", "--transaction-duration-ms", "30"),
    )
    assert "5000 records sent" in said


def test_kafka_transactions(broker: BrokerProcess, tool: Tool) -> None:
    """All six commands, of a transaction that is open and of one that has ended."""
    create(broker, "open", "ended")
    producers = {}
    for name in ("open", "ended"):
        producer = producers[name] = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
        )
        producer.init_transactions(WAIT_SECONDS)
        producer.begin_transaction()
        producer.produce(name, b"1")
        assert producer.flush(WAIT_SECONDS) == 0
    producers["ended"].commit_transaction(WAIT_SECONDS)

    def command(*arguments: str) -> str:
        return tool("TransactionsCommand", *arguments)

    listed = {line.split()[0]: line.split()[3] for line in command("list").splitlines()[1:] if line.strip()}
    assert (listed["open"], listed["ended"]) == ("Ongoing", "CompleteCommit")
    by_pattern = command("list", "--transactional-id-pattern", "o.*")
    assert "open" in by_pattern
    assert "ended" not in by_pattern
    described = command("describe", "--transactional-id", "open").splitlines()[1].split()
    assert described[1] == "open"
    assert described[4] == "Ongoing"
    assert described[-1] == "open-0"
    [of_producer] = command("describe-producers", "--topic", "open", "--partition", "0").splitlines()[1:2]
    assert of_producer.split()[-1] == "0", "its transaction begins at offset 0"
    assert "open" not in command("find-hanging", "--broker-id", "1")
    command("abort", "--topic", "open", "--partition", "0", "--start-offset", "0")
    [of_producer] = command("describe-producers", "--topic", "open", "--partition", "0").splitlines()[1:2]
    assert of_producer.split()[-1] == "None"
    command("forceTerminateTransaction", "--transactionalId", "open")
    assert command("describe", "--transactional-id", "open").splitlines()[1].split()[4] == "Empty", "as after InitProducerId"


def test_the_dump_tool_reads_the_log_of_transactions_the_pending_offsets_and_the_index(java: list[str], tmp_path: Path) -> None:
    """DumpLogSegments with its decoders, over the files of a broker that was stopped."""
    with BrokerProcess(tmp_path, transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1") as broker:
        create(broker, "dumped")
        given = {"bootstrap.servers": broker.bootstrap, "transactional.id": "dumped-id"}
        producer = confluent_kafka.Producer(given)
        producer.init_transactions(WAIT_SECONDS)
        reader = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "dumped-group"})
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.produce("dumped", b"value")
            producer.send_offsets_to_transaction(
                [confluent_kafka.TopicPartition("dumped", 0, 1)], reader.consumer_group_metadata(), WAIT_SECONDS
            )
            end(WAIT_SECONDS)
        reader.close()
        broker.stop()

        def dumped(directory: str, suffix: str, *arguments: str) -> str:
            file = broker.data / directory / f"{0:020d}.{suffix}"
            return run(*java, TOOLS + "DumpLogSegments", *arguments, "--files", file, seconds_max=TOOL_SECONDS_MAX)

        state = dumped("__transaction_state-0", "log", "--transaction-log-decoder")
        statuses = [int(number) for number in re.findall(r'"transactionStatus":(\d)', state)]
        assert (statuses[0], sorted(set(statuses))) == (0, [0, 1, 2, 3, 4, 5]), state
        assert "dumped-id" in state
        offsets = dumped("__consumer_offsets-0", "log", "--offsets-decoder")
        assert offsets.count("endTxnMarker: ABORT") == offsets.count("endTxnMarker: COMMIT") == 1, offsets
        assert '"group":"dumped-group"' in offsets
        records = dumped("dumped-0", "log", "--print-data-log")
        assert (records.count("endTxnMarker: ABORT"), records.count("endTxnMarker: COMMIT")) == (1, 1), records
        index = dumped("dumped-0", "txnindex")
        assert re.search(r"producerId: \d+ firstOffset: 0 lastOffset: 1", index), index
        for text in (state, offsets, records):
            assert "isvalid: false" not in text
