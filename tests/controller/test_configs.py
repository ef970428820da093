"""What AlterConfigs and IncrementalAlterConfigs decide."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.controller.test_topics import cluster, create

from ottla.config import BrokerConfig
from ottla.controller.configs import VALUE_BYTES_MAX, ConfigChange, Operation, change_configs, replace_configs
from ottla.controller.topics import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.metadata_records import ConfigRecord
from ottla.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ClusterImage,
)
from ottla.metadata.replay import replay

SET, DELETE, APPEND, SUBTRACT = Operation
CONFIG = BrokerConfig()


@pytest.fixture
def image() -> ClusterImage:
    image = cluster(1)
    topic = NewTopic("t", configs={"retention.ms": "5", "cleanup.policy": "compact"})
    return replay(image, create(image, topic).records)


def change(image: ClusterImage, resource_type: int, name: str, *changes: tuple[str, Operation, str | None]) -> ClusterImage:
    edits = [ConfigChange(*edit) for edit in changes]
    return replay(image, change_configs(image, resource_type, name, edits, config=CONFIG).records)


def test_set_and_delete_touch_the_values_they_name_and_no_other(image: ClusterImage) -> None:
    after = change(
        image, RESOURCE_TOPIC, "t", ("segment.bytes", SET, "2097152"), ("retention.ms", DELETE, None), ("flush.ms", DELETE, None)
    )
    assert after.topic_configs("t") == {"cleanup.policy": "compact", "segment.bytes": "2097152"}


@pytest.mark.parametrize(
    ("operation", "value", "result"),
    [
        (APPEND, "delete", "compact,delete"),
        (APPEND, " compact , delete,delete", "compact,delete"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ],
)
def test_lists_grow_and_shrink(image: ClusterImage, operation: Operation, value: str, result: str) -> None:
    assert change(image, RESOURCE_TOPIC, "t", ("cleanup.policy", operation, value)).topic_configs("t")["cleanup.policy"] == result


def test_a_list_without_an_override_grows_from_its_default(image: ClusterImage) -> None:
    after = change(
        change(image, RESOURCE_TOPIC, "t", ("cleanup.policy", DELETE, None)), RESOURCE_TOPIC, "t", ("cleanup.policy", APPEND, "compact")
    )
    assert after.topic_configs("t")["cleanup.policy"] == "delete,compact"
    after = change(image, RESOURCE_BROKER, "", ("log.cleanup.policy", APPEND, "compact"))
    assert after.broker_configs("") == {"log.cleanup.policy": "delete,compact"}


def test_a_list_that_was_emptied_has_no_default_to_grow_from(image: ClusterImage) -> None:
    empty = change(image, RESOURCE_TOPIC, "t", ("cleanup.policy", SET, ""))
    for operation, result in ((APPEND, "compact"), (SUBTRACT, "")):
        after = change(empty, RESOURCE_TOPIC, "t", ("cleanup.policy", operation, "compact"))
        assert after.topic_configs("t")["cleanup.policy"] == result
    empty = change(image, RESOURCE_BROKER, "", ("log.cleanup.policy", SET, ""))
    after = change(empty, RESOURCE_BROKER, "", ("log.cleanup.policy", APPEND, "compact"))
    assert after.broker_configs("") == {"log.cleanup.policy": "compact"}


def test_replacing_takes_away_what_is_not_named(image: ClusterImage) -> None:
    records = replace_configs(image, RESOURCE_TOPIC, "t", {"segment.bytes": "2097152", "retention.ms": "5"}, config=CONFIG).records
    assert records == (
        ConfigRecord(RESOURCE_TOPIC, "t", "cleanup.policy", None),
        ConfigRecord(RESOURCE_TOPIC, "t", "segment.bytes", "2097152"),
    )
    assert replay(image, records).topic_configs("t") == {"segment.bytes": "2097152", "retention.ms": "5"}


def test_a_change_to_the_present_value_is_not_recorded(image: ClusterImage) -> None:
    same = [ConfigChange("retention.ms", SET, "5"), ConfigChange("flush.ms", DELETE, None)]
    assert change_configs(image, RESOURCE_TOPIC, "t", same, config=CONFIG).records == ()
    assert replace_configs(image, RESOURCE_TOPIC, "t", image.topic_configs("t"), config=CONFIG).records == ()


def test_a_controller_changes_values_of_any_broker_that_is_registered() -> None:
    """The request came to that broker, and was handed on to this one."""
    assert CONFIG.node_id == 1
    after = change(cluster(1, 2), RESOURCE_BROKER, "2", ("log.cleaner.threads", SET, "2"))
    assert after.broker_configs("2") == {"log.cleaner.threads": "2"}
    with pytest.raises(KafkaError, match="no broker or controller has the id 3"):
        change(after, RESOURCE_BROKER, "3", ("log.cleaner.threads", SET, "2"))


def test_brokers_have_values_of_their_own_and_for_all(image: ClusterImage) -> None:
    after = change(
        image, RESOURCE_BROKER, "1", ("message.max.bytes", SET, "1000"), ("listener.name.x.sasl.kerberos.service.name", SET, "PEM")
    )
    after = change(after, RESOURCE_BROKER, "", ("message.max.bytes", SET, "2000"))
    assert after.broker_configs("1") == {"message.max.bytes": "1000", "listener.name.x.sasl.kerberos.service.name": "PEM"}
    assert after.broker_configs("") == {"message.max.bytes": "2000"}


@pytest.mark.parametrize(
    ("resource_type", "name", "edit", "code"),
    [
        (RESOURCE_TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_TOPIC, "no", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (RESOURCE_TOPIC, "a/b", ("retention.ms", SET, "1"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (RESOURCE_TOPIC, "t", ("retention.msx", SET, "1"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_TOPIC, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (RESOURCE_TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_TOPIC, "t", ("unheard.of", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_TOPIC, "t", ("cleanup.policy", APPEND, "shred"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_TOPIC, "t", ("leader.replication.throttled.replicas", SET, "0:1," * 10_000), ErrorCode.INVALID_CONFIG),
        (RESOURCE_BROKER, "x", ("message.max.bytes", SET, "1"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "7", ("message.max.bytes", SET, "1"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "9" * 5000, ("message.max.bytes", SET, "1"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("log.dirs", SET, "/etc"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("ssl.keystore.location", SET, "x"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("listeners", SET, "PLAINTEXT://127.0.0.1:9999"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("log.cleaner.threads", SET, "0"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("log.cleaner.dedupe.buffer.size", SET, "1048575"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("num.io.threads", SET, "17"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("num.io.threads", SET, "3"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "", ("num.network.threads", SET, "7"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "", ("log.segment.bytes", SET, "1048575"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("max.connections", SET, "0"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("listener.name.x.max.connections", SET, "0"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "", ("max.connection.creation.rate", SET, "0"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "", ("max.connections.per.ip", SET, "0"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "", ("max.connections.per.ip.overrides", SET, "127.0.0.1:x"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "", ("log.retention.ms", SET, "0"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "", ("log.roll.ms", SET, "0"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("sasl.mechanism.inter.broker.protocol", SET, "GSSAPI"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("listener.security.protocol.map", SET, "PLAINTEXT"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("listener.security.protocol.map", SET, "PLAINTEXT:PLAINTEXT,X:TLS"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("listener.security.protocol.map", SET, "X:SSL"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "1", ("listener.security.protocol.map", SET, "PLAINTEXT:SSL"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_TOPIC, "t", ("segment.bytes", SET, "1048575"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_TOPIC, "t", ("remote.storage.enable", SET, "true"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_GROUP, "g", ("streams.num.standby.replicas", SET, "3"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_BROKER, "1", ("message.max.bytes", SET, "-1"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_BROKER, "", ("ssl.keystore.location", SET, "x"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_GROUP, "g", ("session.timeout.ms", SET, "50000"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_GROUP, "g", ("consumer.session.timeout.ms", SET, "44999"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_GROUP, "g", ("consumer.session.timeout.ms", SET, "60001"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_CLIENT_METRICS, "", ("metrics", SET, "a"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_CLIENT_METRICS, "m", ("metric", SET, "a"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_CLIENT_METRICS, "m", ("interval.ms", SET, "99"), ErrorCode.INVALID_REQUEST),
        (RESOURCE_CLIENT_METRICS, "m", ("match", SET, "client_id"), ErrorCode.INVALID_CONFIG),
        (RESOURCE_BROKER_LOGGER, "1", ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),  # no matter of the controller
        (77, "x", ("a", SET, "b"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_changed_has_kafkas_code(
    image: ClusterImage, resource_type: int, name: str, edit: tuple[str, Operation, str | None], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        change(image, resource_type, name, edit)
    assert refused.value.code == code
    assert refused.value.message
    assert len(refused.value.message) < 1000


def test_threads_may_be_halved_and_doubled_and_unknown_keys_are_kept(image: ClusterImage) -> None:
    """As Kafka takes them: it keeps unknown keys of a broker for the plug-ins that may know them."""
    after = change(image, RESOURCE_BROKER, "1", ("num.io.threads", SET, "16"), ("my.key", SET, "x"), ("log.cleaner.threads", SET, "2"))
    assert after.broker_configs("1") == {"num.io.threads": "16", "my.key": "x", "log.cleaner.threads": "2"}
    assert change(image, RESOURCE_BROKER, "", ("my.key", SET, "x"), ("num.io.threads", SET, "4"))
    edits = [ConfigChange("log.cleaner.threads", SET, "2"), ConfigChange("log.cleaner.dedupe.buffer.size", SET, "2097151")]
    with pytest.raises(KafkaError, match="for each of 2 cleaner threads"):
        change_configs(image, RESOURCE_BROKER, "1", edits, config=CONFIG)
    assert change(image, RESOURCE_TOPIC, "t", ("internal.segment.bytes", SET, "2000"))


def test_a_protocol_may_be_added_for_a_listener_to_come_and_the_listeners_of_that_node_keep_theirs(image: ClusterImage) -> None:
    """A map that lacked one was recorded, and the broker did not start with it. A controller of its own has other listeners."""
    given = {"process.roles": "controller", "node.id": "9", "listeners": "C://:1", "controller.listener.names": "C"}
    for config in (CONFIG, BrokerConfig(given | {"controller.quorum.voters": "9@a:1"})):
        edits = [ConfigChange("listener.security.protocol.map", SET, "plaintext:plaintext,X:SASL_SSL")]
        assert change_configs(image, RESOURCE_BROKER, "1", edits, config=config).records
        edits = [ConfigChange("listener.security.protocol.map", SET, "X:SASL_SSL")]
        with pytest.raises(KafkaError, match=r"the listener PLAINTEXT is in use.* write PLAINTEXT:PLAINTEXT, too"):
            change_configs(image, RESOURCE_BROKER, "1", edits, config=config)


def test_addresses_with_numbers_of_their_own_may_be_the_only_ones(image: ClusterImage) -> None:
    edits = (("max.connections.per.ip.overrides", SET, "127.0.0.1:5"), ("max.connections.per.ip", SET, "0"))
    assert change(image, RESOURCE_BROKER, "", *edits).broker_configs("")["max.connections.per.ip"] == "0"
    change(image, RESOURCE_BROKER, "", ("listener.name.x.max.connections", SET, "1"), ("log.retention.ms", SET, "-1"))


def test_the_only_addresses_that_may_connect_cannot_be_removed(image: ClusterImage) -> None:
    """No client could connect then to take that back, and a restart did not help."""
    per_ip, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    image = change(image, RESOURCE_BROKER, "", (overrides, SET, "127.0.0.1:5"), (per_ip, SET, "0"))
    for edit in ((overrides, DELETE, None), (overrides, SET, "")):
        with pytest.raises(KafkaError, match=r"max\.connections\.per\.ip=0 would refuse every connection") as refused:
            change(image, RESOURCE_BROKER, "", edit)
        assert refused.value.code == ErrorCode.INVALID_REQUEST
    with pytest.raises(KafkaError, match="would refuse every connection"):
        replace_configs(image, RESOURCE_BROKER, "", {per_ip: "0"}, config=CONFIG)
    with pytest.raises(KafkaError, match="would refuse every connection"):
        change(image, RESOURCE_BROKER, "1", (overrides, SET, ""))
    assert not change(image, RESOURCE_BROKER, "", (overrides, DELETE, None), (per_ip, DELETE, None)).broker_configs("")


def test_the_only_addresses_of_a_broker_with_values_of_its_own_cannot_be_removed(image: ClusterImage) -> None:
    per_ip, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    image = change(image, RESOURCE_BROKER, "", (overrides, SET, "127.0.0.1:5"))
    image = change(image, RESOURCE_BROKER, "1", (per_ip, SET, "0"))
    with pytest.raises(KafkaError, match=r"broker 1 has values of its own: .*=0 would refuse every connection"):
        change(image, RESOURCE_BROKER, "", (overrides, DELETE, None))
    image = change(image, RESOURCE_BROKER, "1", (overrides, SET, "127.0.0.1:6"))
    assert not change(image, RESOURCE_BROKER, "", (overrides, DELETE, None)).broker_configs("")
    with pytest.raises(KafkaError, match="would refuse every connection"):
        change(change(image, RESOURCE_BROKER, "", (overrides, DELETE, None)), RESOURCE_BROKER, "1", (overrides, DELETE, None))


def test_session_and_heartbeat_of_a_group_are_checked_together() -> None:
    config = BrokerConfig({"group.consumer.min.session.timeout.ms": "1000"})
    edits = [ConfigChange("consumer.session.timeout.ms", SET, "5000")]
    with pytest.raises(KafkaError, match="must be above") as refused:
        change_configs(cluster(1), RESOURCE_GROUP, "g", edits, config=config)
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    edits.append(ConfigChange("consumer.heartbeat.interval.ms", SET, "5000"))
    with pytest.raises(KafkaError, match="must be above"):
        change_configs(cluster(1), RESOURCE_GROUP, "g", edits, config=config)
    edits[0] = ConfigChange("consumer.session.timeout.ms", SET, "5001")
    assert len(change_configs(cluster(1), RESOURCE_GROUP, "g", edits, config=config).records) == 2


def test_a_value_is_bounded(image: ClusterImage) -> None:
    for length, is_legal in ((VALUE_BYTES_MAX, True), (VALUE_BYTES_MAX + 1, False)):
        edits = [ConfigChange("listener.name.x.sasl.kerberos.service.name", SET, "x" * length)]
        if is_legal:
            assert change_configs(image, RESOURCE_BROKER, "1", edits, config=CONFIG).records
        else:
            with pytest.raises(KafkaError, match="longer than"):
                change_configs(image, RESOURCE_BROKER, "1", edits, config=CONFIG)


@pytest.mark.parametrize("values", [{"retention.ms": None}, {"retention.ms": "1", "x": "2"}])
def test_one_bad_value_leaves_all_as_they_were(image: ClusterImage, values: Mapping[str, str | None]) -> None:
    with pytest.raises(KafkaError):
        replace_configs(image, RESOURCE_TOPIC, "t", values, config=CONFIG)
    with pytest.raises(KafkaError):
        change(image, RESOURCE_TOPIC, "t", ("segment.bytes", SET, "2097152"), ("retention.ms", SET, "soon"))


def test_a_value_may_not_be_listed_twice_in_one_request(image: ClusterImage) -> None:
    with pytest.raises(KafkaError) as refused:
        change(image, RESOURCE_TOPIC, "t", ("segment.bytes", SET, "2097152"), ("segment.bytes", DELETE, None))
    assert refused.value.code == ErrorCode.INVALID_REQUEST
