"""Members of ottla's own client by the consumer protocol (KIP-848), in a group of a broker process, also beside librdkafka.

Who owns what while members come and go is in ``test_groups.py``, refused questions are in ``test_refused_members.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.group_members import Member, OfConfluentByHeartbeats, OfOursByHeartbeats, Readings
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla import sync
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

PARTITION_COUNT = 4
RECORDS = 400
TIMES: dict[str, str] = {
    "group_consumer_min_heartbeat_interval_ms": "100",
    "group_consumer_heartbeat_interval_ms": "100",
    "group_consumer_min_session_timeout_ms": "500",
    "group_consumer_session_timeout_ms": "2000",
    "group_consumer_assignment_interval_ms": "50",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("own"), port=lasting_port(), **TIMES) as process:
        yield process


def create(broker: BrokerProcess, topic: str, partition_count: int = PARTITION_COUNT) -> list[sync.TopicPartition]:
    with sync.Admin(broker.bootstrap) as admin:
        assert admin.create_topics([sync.NewTopic(topic, partition_count)]) == {topic: None}
    return [sync.TopicPartition(topic, index) for index in range(partition_count)]


class OfOursBesideConfluent(OfOursByHeartbeats):
    """A member of the same group as librdkafka's."""

    group = "readers-together"


class OfConfluentBesideOurs(OfConfluentByHeartbeats):
    """A member of the same group as ottla's."""

    group = "readers-together"


class OfOursOverKills(OfOursByHeartbeats):
    """A member of a group of its own."""

    group = "readers-over-kills"


def stable_members(admin: sync.Admin, group: str) -> int:
    """How many members have what they are to have; 0 while some have not."""
    found = admin.describe_group(group)
    return len(found.members) if found.state == "Stable" else 0


def written(broker: BrokerProcess, topic: str, pace: Callable[[int], None]) -> set[tuple[int, int]]:
    """Writes records, and calls ``pace`` after each; returns where they are."""
    places = set()
    with sync.Producer(broker.bootstrap, linger_ms=0) as producer:
        for number in range(RECORDS):
            sent = producer.send_and_wait(topic, b"%d" % number, partition=number % PARTITION_COUNT)
            places.add((sent.partition, sent.offset))
            pace(number)
    return places


@pytest.mark.parametrize(
    "kinds", [[OfOursByHeartbeats], [OfOursBesideConfluent, OfConfluentBesideOurs]], ids=["alone", "beside librdkafka"]
)
@pytest.mark.slow
def test_members_that_come_and_go_while_records_flow_read_each_of_them_once(broker: BrokerProcess, kinds: list[type[Member]]) -> None:
    """What a member was handed out, it commits before it gives the partition up."""
    topic = f"flow-{len(kinds)}"
    keys, readings = create(broker, topic), Readings()
    members: list[Member] = []
    come = [kinds[number % len(kinds)] for number in range(5)]

    def turn(number: int) -> None:
        if number % 50 == 25 and come:
            members.append(come.pop(0)(broker.bootstrap, topic, readings))
            members[-1].start()
            eventually(lambda: stable_members(admin, members[-1].group), lambda found: found == len(members) or bool(readings.problems))
        if number % 100 == 99:
            members.pop(0).join()

    with sync.Admin(broker.bootstrap) as admin:
        admin.set_offsets(kinds[0](broker.bootstrap, topic, readings).group, dict.fromkeys(keys, 0))
        places = written(broker, topic, turn)
    eventually(lambda: (readings.places, readings.problems), lambda found: found[0] >= places or bool(found[1]))
    for member in members:
        member.join()
    assert not readings.problems
    assert (readings.places, readings.doubled) == (places, 0)


@pytest.mark.slow
def test_nothing_is_passed_over_when_the_coordinator_is_killed_while_records_flow(broker: BrokerProcess) -> None:
    topic = "flow-over-kills"
    keys, readings = create(broker, topic), Readings()
    members = [OfOursOverKills(broker.bootstrap, topic, readings) for _ in range(2)]
    with sync.Admin(broker.bootstrap) as admin:
        admin.set_offsets(members[0].group, dict.fromkeys(keys, 0))
    for member in members:
        member.start()

    def turn(number: int) -> None:
        if number % 150 == 100:
            broker.kill()
            broker.start()

    places = written(broker, topic, turn)
    eventually(lambda: (readings.places, readings.problems), lambda found: found[0] >= places or bool(found[1]))
    for member in members:
        member.join()
    assert not readings.problems
    assert readings.places == places


def test_a_member_that_was_removed_loses_its_partitions_and_joins_again(broker: BrokerProcess) -> None:
    create(broker, "removed", 2)
    seen: list[str] = []
    with sync.Consumer(broker.bootstrap, group_id="removed", group_protocol="consumer", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(
            ["removed"],
            on_assigned=lambda partitions: seen.append(f"assigned {len(partitions)}"),
            on_revoked=lambda partitions: seen.append(f"revoked {len(partitions)}"),
            on_lost=lambda partitions: seen.append(f"lost {len(partitions)}"),
        )
        eventually(lambda: (consumer.poll(20), list(seen))[1], lambda found: "assigned 2" in found)
        member_id = consumer.member_id
        with RawClient(int(broker.bootstrap.rpartition(":")[2])) as client:
            assert client.ask(ConsumerGroupHeartbeatRequest("removed", member_id, -1), 1).error_code == ErrorCode.NONE
        eventually(lambda: (consumer.poll(20), seen.count("assigned 2"))[1], lambda found: found == 2)
        assert consumer.member_id == member_id
    assert seen == ["assigned 2", "lost 2", "assigned 2", "revoked 2"]


def test_a_transaction_commits_offsets_in_the_members_epoch_and_is_refused_once_it_is_none(broker: BrokerProcess) -> None:
    [key] = create(broker, "processed", 1)
    settings: Any = {"group_protocol": "consumer", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with (
        sync.Consumer(broker.bootstrap, group_id="processors", **settings) as consumer,
        sync.Producer(broker.bootstrap, transactional_id="processor") as producer,
    ):
        producer.init_transactions()
        consumer.subscribe(["processed"])
        eventually(lambda: (consumer.poll(20), consumer.assignment())[1], bool)
        place = consumer.group_metadata()
        assert (place.member_id, place.generation_id) == (consumer.member_id, consumer.generation_id)
        with producer.transaction():
            producer.send_offsets_to_transaction({key: 7}, place)
        assert consumer.committed([key]) == {key: 7}
        consumer.unsubscribe()
        producer.begin_transaction()
        with pytest.raises(KafkaError) as refused:
            producer.send_offsets_to_transaction({key: 8}, place)
        assert refused.value.code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        producer.abort_transaction()
        assert consumer.committed([key]) == {key: 7}


def test_a_broker_without_the_protocol_is_named_as_the_cause(tmp_path_factory: pytest.TempPathFactory) -> None:
    properties = {"group_coordinator_rebalance_protocols": "classic"}
    with BrokerProcess(tmp_path_factory.mktemp("classic"), port=lasting_port(), **properties) as process:
        create(process, "t", 1)
        with sync.Consumer(process.bootstrap, group_id="g", group_protocol="consumer") as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(KafkaError, match=r"does not serve group\.protocol=consumer \(KIP-848\)") as refused:
                consumer.poll(10_000)
            assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
        with sync.Consumer(process.bootstrap, group_id="g") as consumer:
            consumer.subscribe(["t"])
            eventually(lambda: (consumer.poll(20), consumer.assignment())[1], bool)
