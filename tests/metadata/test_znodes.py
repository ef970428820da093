"""What the znodes say, checked against what Apache Kafka 3.9.1's own encoders wrote (``golden/znodes_kafka_3_9.tsv``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.errors import DecodeError
from ottla.metadata import znodes
from ottla.metadata.image import EndpointImage
from ottla.metadata.znodes import BrokerZnode, StateZnode, TopicZnode
from ottla.types import uuid_bytes

_LINES = (Path(__file__).parent / "golden" / "znodes_kafka_3_9.tsv").read_text(encoding="utf-8").splitlines()
GOLDEN = {name: (path, data.encode()) for name, path, data in (line.split("\t") for line in _LINES)}
TOPIC_ID = uuid_bytes("Z9yQvV1aRQOyTSnDLRfc9w")
CONFIG_KEYS = (
    *("retention.ms", "cleanup.policy", "max.message.bytes", "segment.bytes", "min.insync.replicas", "flush.ms", "flush.messages"),
    *("segment.ms", "retention.bytes", "compression.type", "index.interval.bytes", "preallocate", "segment.jitter.ms"),
    *("message.timestamp.type", "unclean.leader.election.enable", "file.delete.delay.ms", "delete.retention.ms"),
    *("min.cleanable.dirty.ratio", "segment.index.bytes", "min.compaction.lag.ms"),
)
PLAIN = EndpointImage("PLAINTEXT", "h1", 9092)


@pytest.mark.parametrize("is_recovering", [False, True])
def test_partition_states_are_kafkas(is_recovering: bool) -> None:
    path, data = GOLDEN[f"state-{int(is_recovering)}"]
    state = StateZnode(2, 7, (2, 1, 3), 5, is_recovering)
    assert znodes.state_path("orders", 3) == path
    assert state.encode() == data
    assert StateZnode.decode(data, path) == state


@pytest.mark.parametrize("count", [1, 3, 11, 12, 13, 30, 100])
def test_assignments_are_kafkas_whatever_their_size(count: int) -> None:
    path, data = GOLDEN[f"topic-{count}"]
    topic = TopicZnode(TOPIC_ID, {index: (index % 3 + 1, (index + 1) % 3 + 1) for index in range(count)})
    assert znodes.topic_path("t") == path
    assert topic.encode() == data
    assert TopicZnode.decode(data, "t") == topic


def test_reassignments_and_topics_without_an_id_are_kafkas() -> None:
    moving = TopicZnode(TOPIC_ID, {0: (1, 2, 3), 1: (2, 3)}, {0: (3,)}, {0: (1,)})
    assert moving.encode() == GOLDEN["topic-moving"][1]
    assert TopicZnode.decode(GOLDEN["topic-moving"][1], "t") == moving
    assert TopicZnode.decode(GOLDEN["topic-without-id"][1], "t").topic_id is None


def test_brokers_are_kafkas() -> None:
    ends = [PLAIN, EndpointImage("INTERNAL", "::1", 9093)]
    for name, broker in (
        ("broker", BrokerZnode(ends, "r1", _timestamp("broker"))),
        ("broker-without-rack", BrokerZnode([PLAIN], None, _timestamp("broker-without-rack"), {"metadata.version": (1, 21)})),
    ):
        path, data = GOLDEN[name]
        assert znodes.broker_path(1) == path
        assert broker.encode() == data
        assert BrokerZnode.decode(data, 1) == broker


def _timestamp(name: str) -> int:
    return BrokerZnode.decode(GOLDEN[name][1], 1).timestamp_ms


def test_a_registration_of_an_old_version_is_read() -> None:
    first = BrokerZnode.decode(b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5"}', 1)
    assert list(first.endpoints) == [EndpointImage("PLAINTEXT", "h", 9092)]
    second = BrokerZnode.decode(b'{"version":2,"host":"h","port":1,"jmx_port":-1,"endpoints":["SSL://h:9093"]}', 1)
    assert list(second.endpoints) == [EndpointImage("SSL", "h", 9093, 1)]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 11, 12, 20])
def test_configs_are_kafkas_whatever_their_size(count: int) -> None:
    path, data = GOLDEN[f"config-{count}"]
    values = {name: str(number) for number, name in enumerate(CONFIG_KEYS[:count])}
    assert znodes.encode_config(values) == data
    assert znodes.decode_config(data, path) == values


def test_the_rest_is_kafkas() -> None:
    assert (znodes.CONTROLLER, znodes.encode_controller(3, 1700000000123)) == GOLDEN["controller"]
    assert znodes.decode_controller(GOLDEN["controller"][1]) == 3
    assert (znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(42)) == GOLDEN["controller_epoch"]
    assert znodes.decode_controller_epoch(b"42") == 42
    assert (znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("topics/t")) == GOLDEN["change"]
    assert znodes.decode_config_change(GOLDEN["change"][1]) == "topics/t"
    assert znodes.decode_config_change(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    user = f"users/{znodes.sanitized('a b')}/clients/{znodes.DEFAULT_ENTITY}"
    assert znodes.encode_config_change(user) == GOLDEN["change-user"][1]
    wanted = {("t", 0): (1, 2), ("u", 4): (3,)}
    assert (znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment(wanted)) == GOLDEN["reassign"]
    assert znodes.decode_reassignment(GOLDEN["reassign"][1]) == wanted
    assert (znodes.PREFERRED_ELECTION, znodes.encode_partitions([("orders", 3)])) == GOLDEN["preferred"]
    assert znodes.decode_partitions(GOLDEN["preferred"][1], "") == [("orders", 3)]
    assert (znodes.CLUSTER_ID, znodes.encode_cluster_id("MkU3OEVBNTcwNTJENDM2Qg")) == GOLDEN["cluster"]
    assert znodes.decode_cluster_id(GOLDEN["cluster"][1]) == "MkU3OEVBNTcwNTJENDM2Qg"
    assert (znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(3)) == GOLDEN["log-dir"]
    assert (znodes.PRODUCER_IDS, znodes.encode_producer_ids(2, 5000, 6000)) == GOLDEN["producer-ids"]
    assert znodes.decode_producer_ids(GOLDEN["producer-ids"][1]) == 6000
    assert (znodes.FEATURE, znodes.encode_feature({"group.version": 1})) == GOLDEN["feature-1"]


def test_names_of_users_and_clients_are_sanitized_as_kafka_does() -> None:
    assert znodes.sanitized("a b*~/ü") == "a%20b%2A%7E%2F%C3%BC"
    assert znodes.unsanitized("a%20b%2A%7E%2F%C3%BC") == "a b*~/ü"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"leader":"x","isr":3}'])
def test_a_znode_that_says_something_else_is_named(data: bytes) -> None:
    with pytest.raises(DecodeError, match=r"/brokers/topics/t/partitions/0/state"):
        StateZnode.decode(data, znodes.state_path("t", 0))
