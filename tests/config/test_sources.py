"""Files and environments that were written for Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.config import BrokerConfig, from_environment, parse_properties, read_properties
from ottla.config.properties import numbered_pairs
from ottla.config.sources import key_name
from ottla.errors import KafkaError

# The keys of the file that Kafka 4 ships for one combined node, with the values an operator would see there.
COMBINED_NODE = """\
# a combined node
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
#log.flush.interval.messages=10000
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def test_a_file_for_one_combined_node_is_read_unchanged() -> None:
    config = BrokerConfig(parse_properties(COMBINED_NODE))
    assert not config.unknown
    assert (config["process.roles"], config.node_id) == (["broker", "controller"], 1)
    assert config.log_dirs == ["/var/lib/kraft-combined-logs"]


def test_a_properties_file_has_two_separators_two_comments_and_continued_lines() -> None:
    text = "a=1\nb: 2\nc 3\n! comment\n# comment\nd=x,\\\n   y\ne\nf = with = sign \n"
    assert parse_properties(text) == {"a": "1", "b": "2", "c": "3", "d": "x,y", "e": "", "f": "with = sign "}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a\\=b\\ c\\:=d\n", {"a=b c:": "d"}),
        ("a=\\u0041\\ud83d\\ude00\\t\\x\n", {"a": "A\U0001f600\tx"}),
        ("a=1\\\\\nb=2\\\n#3\n", {"a": "1\\", "b": "2#3"}),
        ("\\\n# a comment after nothing\na = = b\n", {"a": "= b"}),
        ("  a\f=\t1\r\rb=\x0b2\x85", {"a": "1", "b": "\x0b2\x85"}),
        ("a=1\na=2", {"a": "2"}),
        ("=x\n", {"": "x"}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_properties_are_those_that_java_reads(text: str, pairs: dict[str, str]) -> None:
    """java.util.Properties gave these; tests/interop/test_properties.py compares many more."""
    assert parse_properties(text) == pairs


def test_pairs_are_numbered_by_their_first_lines() -> None:
    text = "# a\r\na=1\\\r\n  2\r\n\r\nb\\\n c=3\ra=4\n\\\n! b\nd"
    assert list(numbered_pairs(text)) == [(2, "a", "12"), (5, "bc", "3"), (7, "a", "4"), (10, "d", "")]


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uzzzz", "a=\\u+123"])
def test_an_escape_that_is_cut_short_is_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="malformed escape"):
        parse_properties(text)


def test_a_file_is_latin_1(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a=\xe9\xc3\xa9\n")
    assert read_properties(tmp_path / "file") == {"a": "\xe9\xc3\xa9"}


def test_variables_become_keys_as_in_kafkas_images() -> None:
    environ = {
        "KAFKA_LOG_DIRS": "/data",
        "KAFKA_LISTENER_NAME_CLIENT_SCRAM___SHA___256_SASL_JAAS_CONFIG": "x",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "CLUSTER_ID": "an-id",
        "PATH": "/bin",
    }
    assert from_environment(environ) == {
        "log.dirs": "/data", "listener.name.client.scram-sha-256.sasl.jaas.config": "x", "cluster.id": "an-id",
    }  # fmt: skip


def test_ottlas_own_variables_win_and_may_be_something_else() -> None:
    assert from_environment({"KAFKA_NODE_ID": "1", "OTTLA_NODE_ID": "2", "OTTLA_BOOTSTRAP": "x:1"}) == {"node.id": "2"}


def test_a_variable_that_no_key_begins_as_is_none_and_a_mistyped_key_comes_along() -> None:
    assert from_environment({"KAFKA_LIBS": "/opt/libs", "KAFKA_CLASSPATH": "x", "KAFKA_LOG_DIRZ": "/data"}) == {"log.dirz": "/data"}
    assert from_environment({"KAFKA_LISTENER_NAME_INTERNAL_SSL_KEYSTORE_LOCATION": "k"}) != {}


def test_underscores_of_a_variable_are_dots_underscores_and_dashes() -> None:
    assert key_name("KAFKA_A__B_C___D", "KAFKA_") == "a_b.c-d"
