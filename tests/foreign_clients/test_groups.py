"""Consumer groups of unmodified clients against a broker process; each test names the mechanism it shows.

The assignments that each strategy gives on fixed inputs, and the laws of a group under random members, are in tests/groups.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port

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
        group_consumer_min_session_timeout_ms="500",
        group_consumer_session_timeout_ms="2000",
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


class Served(Protocol):
    """Other brokers: where they are reached."""

    @property
    def bootstrap(self) -> str: ...


class Claims:
    """Who owns which partition, as the members see it: a second owner is a failure at once."""

    def __init__(self) -> None:
        self.owners: dict[int, Member] = {}
        self.count = 0

    def claim(self, member: Member, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            assert place.partition not in self.owners, f"partition {place.partition} has two owners"
            self.owners[place.partition] = member
            self.count += 1

    def release(self, member: Member, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            assert self.owners.pop(place.partition) is member


class Member:
    """librdkafka in the group; its callbacks run in ``poll``. ``consumer-uniform`` and ``consumer-range`` are those of the new protocol."""

    def __init__(self, broker: BrokerProcess | Served, topic: str, group: str, claims: Claims, strategy: str) -> None:
        self._claims = claims
        kind, _, assignor = strategy.partition("-")
        protocol: dict[str, Any] = {"heartbeat.interval.ms": 50, "partition.assignment.strategy": strategy}
        if kind == "consumer":
            protocol = {"group.protocol": "consumer", "group.remote.assignor": assignor}
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
            | protocol
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        self.got: list[tuple[int, int]] = []

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._claims.claim(self, partitions)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._claims.release(self, partitions)

    @property
    def share(self) -> set[int]:
        return {partition for partition, owner in self._claims.owners.items() if owner is self}

    def poll(self) -> None:
        for message in self._consumer.consume(500, 0.02):
            assert message.error() is None
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.got.append((partition, offset))

    def leave(self) -> None:
        self._consumer.close()


def poll_until(members: list[Member], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, [member.share for member in members]
        for member in members:
            member.poll()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky", "consumer-uniform", "consumer-range"])
@pytest.mark.slow
def test_mechanisms_54_55_and_56_partitions_have_one_owner_while_members_come_and_go(broker: BrokerProcess, strategy: str) -> None:
    """One member owns all six partitions, then four share them, then two: balanced each time, and never two owners of one."""
    topic, group = create(broker, f"scaled-{strategy}", PARTITION_COUNT, record_count=600), f"scaled-{strategy}"
    claims = Claims()

    def shares_are(*sizes: int) -> Callable[[], bool]:
        return lambda: sorted(len(member.share) for member in members) == list(sizes)

    members = [Member(broker, topic, group, claims, strategy)]
    poll_until(members, shares_are(6))
    members += [Member(broker, topic, group, claims, strategy) for _ in range(3)]
    poll_until(members, shares_are(1, 1, 2, 2))
    for leaving in (members.pop(0), members.pop(0)):
        leaving.leave()
    poll_until(members, shares_are(3, 3))

    with sync.Producer(broker.bootstrap) as producer:  # what comes now reaches all owners
        for number in range(PARTITION_COUNT):
            producer.send(topic, b"last", partition=number)
        producer.flush()
    ends = {(index, 100) for index in range(PARTITION_COUNT)}
    poll_until(members, lambda: ends <= {place for member in members for place in member.got})
    for member in members:
        member.leave()
    assert not claims.owners
    assert claims.count >= 6 + (3 if strategy in ("cooperative-sticky", "consumer-uniform") else 6), "partitions changed hands"


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


@pytest.mark.slow
def test_members_of_the_consumer_protocol_go_on_over_kills_of_the_coordinator(broker: BrokerProcess) -> None:
    """Kill -9 while one joins, and again while one leaves: the others read on, no partition has two owners, and nothing is passed over."""
    topic, group, claims = create(broker, "killed-848", PARTITION_COUNT, record_count=60), "killed-848", Claims()
    members = [Member(broker, topic, group, claims, "consumer-uniform") for _ in range(2)]
    poll_until(members, lambda: sorted(len(member.share) for member in members) == [3, 3])
    members.append(Member(broker, topic, group, claims, "consumer-uniform"))
    broker.kill()
    broker.start()
    poll_until(members, lambda: sorted(len(member.share) for member in members) == [2, 2, 2])
    members.pop().leave()
    broker.kill()
    broker.start()
    poll_until(members, lambda: sorted(len(member.share) for member in members) == [3, 3])
    with sync.Producer(broker.bootstrap) as producer:
        for number in range(PARTITION_COUNT):
            producer.send(topic, b"last", partition=number)
        producer.flush()
    read = lambda: {place for member in members for place in member.got}  # noqa: E731
    poll_until(members, lambda: {(index, 10) for index in range(PARTITION_COUNT)} <= read())
    for member in members:
        member.leave()
    assert not claims.owners


def test_topics_that_match_an_expression_of_the_consumer_protocol_are_read(broker: BrokerProcess) -> None:
    """RE2's, which the coordinator matches; the whole name has to match."""
    topic = create(broker, "matched-848", 2, record_count=20)
    create(broker, "not-matched-848", 2)
    claims = Claims()
    member = Member(broker, "^matched-.*", "by-expression", claims, "consumer-uniform")
    poll_until([member], lambda: len(member.got) == 20)
    assert claims.owners.keys() == {0, 1}
    assert topic == "matched-848"
    member.leave()


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
@pytest.mark.slow
def test_a_group_is_moved_from_one_protocol_to_the_other_member_by_member_and_back(broker: BrokerProcess, strategy: str) -> None:
    """KIP-848: no partition has two owners while members of both protocols read, whichever is in the majority."""
    topic, group, claims = create(broker, f"moved-{strategy}", PARTITION_COUNT, record_count=60), f"moved-{strategy}", Claims()

    def share(*sizes: int) -> None:
        poll_until(members, lambda: sorted(len(member.share) for member in members) == list(sizes))

    def kind() -> str:
        with sync.Admin(broker.bootstrap) as admin:
            return admin.describe_group(group).type

    members = [Member(broker, topic, group, claims, strategy) for _ in range(2)]
    share(3, 3)
    assert kind() == "classic"
    members.append(Member(broker, topic, group, claims, "consumer-uniform"))
    share(2, 2, 2)
    assert kind() == "consumer"
    members.pop(0).leave()
    share(3, 3)
    members.pop(0).leave()
    share(6)
    members.append(Member(broker, topic, group, claims, strategy))
    share(3, 3)
    members.pop(0).leave()
    share(6)
    members.append(Member(broker, topic, group, claims, strategy))
    share(3, 3)
    for member in members:
        member.leave()
    assert not claims.owners
