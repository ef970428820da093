"""Consumer groups of unmodified clients against a broker process; each test names the mechanism it shows.

The assignments that each strategy gives on fixed inputs, and the laws of a group under random members, are in tests/groups.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.claims import Claims, new_member, poll_until

from ottla import sync

WAIT_SECONDS_MAX = 30.0
PARTITION_COUNT = 6


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("groups")
    with BrokerProcess(
        directory,
        port=lasting_port(),
        group_min_session_timeout_ms="500",
        group_consumer_min_heartbeat_interval_ms="100",
        group_consumer_heartbeat_interval_ms="100",
        group_consumer_assignment_interval_ms="50",
    ) as process:
        yield process


def create(broker: BrokerProcess, topic: str, partition_count: int = 1, record_count: int = 0) -> str:
    with sync.Admin(broker.bootstrap) as admin:
        assert admin.create_topics([sync.NewTopic(topic, partition_count)]) == {topic: None}
    with sync.Producer(broker.bootstrap) as producer:
        for number in range(record_count):
            producer.send(topic, b"%d" % number, partition=number % partition_count)
        producer.flush()
    return topic


def committed(broker: BrokerProcess, group: str, topic: str, partition: int = 0) -> int | None:
    with sync.Admin(broker.bootstrap) as admin:
        found = admin.committed_offsets(group).get(sync.TopicPartition(topic, partition))
    return None if found is None else found.offset


@pytest.mark.parametrize(
    "strategies",
    [
        ["range"],
        ["roundrobin"],
        ["cooperative-sticky"],
        ["consumer-uniform"],
        ["consumer-range"],
        ["own-consumer-uniform"],
        ["own-consumer-range"],
        ["own-consumer-uniform", "consumer-uniform"],
    ],
    ids="+".join,
)
@pytest.mark.slow
def test_mechanisms_54_55_and_56_partitions_have_one_owner_while_members_come_and_go(broker: BrokerProcess, strategies: list[str]) -> None:
    """One member owns all six partitions, then four share them, then two: balanced each time, and never two owners of one."""
    group = f"scaled-{'-'.join(strategies)}"
    topic, claims = create(broker, group, PARTITION_COUNT, record_count=600), Claims()
    kinds = itertools.cycle(strategies)

    def shares_are(*sizes: int) -> Callable[[], bool]:
        return lambda: sorted(len(one.share) for one in members) == list(sizes)

    members = [new_member(broker, topic, group, claims, next(kinds))]
    poll_until(members, shares_are(6))
    members += [new_member(broker, topic, group, claims, next(kinds)) for _ in range(3)]
    poll_until(members, shares_are(1, 1, 2, 2))
    for leaving in (members.pop(0), members.pop(0)):
        leaving.leave()
    poll_until(members, shares_are(3, 3))

    with sync.Producer(broker.bootstrap) as producer:  # what comes now reaches all owners
        for number in range(PARTITION_COUNT):
            producer.send(topic, b"last", partition=number)
        producer.flush()
    ends = {(index, 100) for index in range(PARTITION_COUNT)}
    poll_until(members, lambda: ends <= {place for one in members for place in one.got})
    for one in members:
        one.leave()
    assert not claims.owners
    assert claims.count >= 6 + (3 if strategies[0] in ("cooperative-sticky", "consumer-uniform", "own-consumer-uniform") else 6), (
        "partitions changed hands"
    )


def test_mechanism_57_a_consumer_without_a_group_reads_and_leaves_no_group(broker: BrokerProcess) -> None:
    topic = create(broker, "free", 1, record_count=100)
    with sync.Admin(broker.bootstrap) as admin:
        before = {group.group_id for group in admin.list_groups()}
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([KafkaPythonPartition(topic, 0)])
    assert [next(consumer).offset for _ in range(100)] == list(range(100))
    consumer.close()
    with sync.Admin(broker.bootstrap) as admin:
        assert {group.group_id for group in admin.list_groups()} == before


def test_mechanism_58_a_member_that_is_killed_is_followed_by_one_that_resumes_at_its_last_commit(broker: BrokerProcess) -> None:
    """Kill -9 in the middle between two commits; the session runs out; the group survives a restart of the broker, too."""
    topic, group = create(broker, "killed", 1, record_count=1000), "killed"
    command = [sys.executable, "-m", "tests.foreign_clients.member_process", broker.bootstrap, topic, group]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        last_commit, handled = 0, 0
        for line in process.stdout:
            word, number = line.split()
            if word == "committed":
                last_commit = int(number)
            else:
                handled = int(number) + 1
            if last_commit >= 300 and handled >= last_commit + 50:
                process.kill()
                break
        for line in process.stdout:  # what it had done before the signal reached it
            word, _, number = line.partition(" ")
            if word == "committed" and number.strip():
                last_commit = int(number)
    stored = committed(broker, group, topic)
    assert stored is not None
    assert stored >= last_commit
    assert stored % 100 == 0
    broker.restart()
    assert committed(broker, group, topic) == stored
    with sync.Consumer(broker.bootstrap, group_id=group, auto_offset_reset="earliest") as successor:
        successor.subscribe([topic])
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not (records := successor.poll(1000)):
            assert time.monotonic() < deadline
        assert records[0].offset == stored


@pytest.mark.parametrize("which", ["own", "confluent", "kafka-python"])
def test_mechanism_58_offsets_are_committed_by_themselves_while_records_are_polled(broker: BrokerProcess, which: str) -> None:
    """The application never calls commit; the consumer is alive and well when the commit is seen."""
    topic, group = create(broker, f"auto-{which}", 1, record_count=100), f"auto-{which}"
    poll, close = auto_committing(broker, topic, group, which)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while committed(broker, group, topic) != 100:
        assert time.monotonic() < deadline
        poll()
    close()


def auto_committing(broker: BrokerProcess, topic: str, group: str, which: str) -> tuple[Callable[[], Any], Callable[[], None]]:
    """Its ``poll`` and its ``close``."""
    if which == "own":
        own = sync.Consumer(broker.bootstrap, group_id=group, auto_offset_reset="earliest", auto_commit_interval_ms=50)
        own.subscribe([topic])
        return lambda: own.poll(20), own.close
    if which == "confluent":
        settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        confluent = Consumer(settings | {"auto.commit.interval.ms": 50})
        confluent.subscribe([topic])
        return lambda: confluent.poll(0.02), confluent.close
    python = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=group, auto_offset_reset="earliest", auto_commit_interval_ms=50
    )
    return lambda: python.poll(1000), python.close  # a shorter poll gives up joining, and the next one starts again


@pytest.mark.parametrize("strategy", ["consumer-uniform", "own-consumer-uniform"])
@pytest.mark.slow
def test_members_of_the_consumer_protocol_go_on_over_kills_of_the_coordinator(broker: BrokerProcess, strategy: str) -> None:
    """Kill -9 while one joins, and again while one leaves: the others read on, no partition has two owners, and nothing is passed over.

    Sessions last 45 s, the broker's default: librdkafka takes seconds to come back to a broker that was away, and a member whose session
    has run out keeps its partitions, as it sees them, until it is told.
    """
    topic, group, claims = create(broker, f"killed-{strategy}", PARTITION_COUNT, record_count=60), f"killed-{strategy}", Claims()
    members = [new_member(broker, topic, group, claims, strategy) for _ in range(2)]
    poll_until(members, lambda: sorted(len(one.share) for one in members) == [3, 3])
    members.append(new_member(broker, topic, group, claims, strategy))
    broker.kill()
    broker.start()
    poll_until(members, lambda: sorted(len(one.share) for one in members) == [2, 2, 2])
    members.pop().leave()
    broker.kill()
    broker.start()
    poll_until(members, lambda: sorted(len(one.share) for one in members) == [3, 3])
    with sync.Producer(broker.bootstrap) as producer:
        for number in range(PARTITION_COUNT):
            producer.send(topic, b"last", partition=number)
        producer.flush()
    read = lambda: {place for one in members for place in one.got}  # noqa: E731
    poll_until(members, lambda: {(index, 10) for index in range(PARTITION_COUNT)} <= read())
    for one in members:
        one.leave()
    assert not claims.owners


@pytest.mark.parametrize("strategy", ["consumer-uniform", "own-consumer-uniform"])
def test_topics_that_match_an_expression_of_the_consumer_protocol_are_read(broker: BrokerProcess, strategy: str) -> None:
    """RE2's, which the coordinator matches; the whole name has to match."""
    create(broker, f"matched-{strategy}", 2, record_count=20)
    create(broker, f"not-matched-{strategy}", 2)
    claims = Claims()
    reader = new_member(broker, f"^matched-{strategy}.*", f"by-expression-{strategy}", claims, strategy)
    poll_until([reader], lambda: len(reader.got) == 20)
    assert claims.owners.keys() == {0, 1}
    reader.leave()


@pytest.mark.parametrize(
    ("strategy", "new"),
    [
        ("cooperative-sticky", "consumer-uniform"), ("range", "consumer-uniform"), ("cooperative-sticky", "own-consumer-uniform"),
        ("own-cooperative-sticky", "own-consumer-uniform"), ("own-range", "own-consumer-range"), ("own-range", "consumer-uniform"),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_a_group_is_moved_from_one_protocol_to_the_other_member_by_member_and_back(broker: BrokerProcess, strategy: str, new: str) -> None:
    """KIP-848: no partition has two owners while members of both protocols read, whichever is in the majority."""
    group, claims = f"moved-{strategy}-{new}", Claims()
    topic = create(broker, group, PARTITION_COUNT, record_count=60)

    def share(*sizes: int) -> None:
        poll_until(members, lambda: sorted(len(one.share) for one in members) == list(sizes))

    def kind() -> str:
        with sync.Admin(broker.bootstrap) as admin:
            return admin.describe_group(group).type

    members = [new_member(broker, topic, group, claims, strategy) for _ in range(2)]
    share(3, 3)
    assert kind() == "classic"
    members.append(new_member(broker, topic, group, claims, new))
    share(2, 2, 2)
    assert kind() == "consumer"
    members.pop(0).leave()
    share(3, 3)
    members.pop(0).leave()
    share(6)
    members.append(new_member(broker, topic, group, claims, strategy))
    share(3, 3)
    members.pop(0).leave()
    share(6)
    members.append(new_member(broker, topic, group, claims, strategy))
    share(3, 3)
    for one in members:
        one.leave()
    assert not claims.owners
