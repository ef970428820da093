"""A whole broker in this process, on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest
from tests.foreign_clients.wire import RawClient

from ottla.broker.coordinators.runtime import partition_of
from ottla.broker.requests.listeners import parse_listener
from ottla.errors import KafkaError, StorageError
from ottla.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition


def properties(directory: Path, **more: str) -> dict[str, str]:
    fixed = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(directory), "group.initial.rebalance.delay.ms": "0"}
    return fixed | {"offsets.topic.num.partitions": "3"} | more


def test_a_log_directory_may_be_named_from_where_the_broker_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with BrokerThread(properties(tmp_path) | {"log.dirs": "data"}) as broker, Admin(broker.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 1)]) == {"t": None}
    assert (tmp_path / "data" / "t-0").is_dir()


def test_a_changed_file_that_changes_nothing_is_said_at_the_start(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The value for all brokers, which the first start makes of min.insync.replicas, takes precedence of each later file."""
    with BrokerThread(properties(tmp_path)):
        assert "config_overridden" not in capfd.readouterr().out
    with BrokerThread(properties(tmp_path) | {"min.insync.replicas": "2"}):
        [line] = [line for line in capfd.readouterr().out.splitlines() if "config_overridden" in line]
        assert "key=min.insync.replicas" in line
        assert "`ottla config set --brokers min.insync.replicas=2`" in line


def test_records_topics_and_commits_survive_an_orderly_restart(tmp_path: Path) -> None:
    with BrokerThread(properties(tmp_path)) as broker:
        with Admin(broker.bootstrap) as admin:
            assert admin.create_topics([NewTopic("orders", 2)]) == {"orders": None}
            topic_id = admin.describe_topic("orders").topic_id
            cluster_id = admin.describe_cluster().cluster_id
        with Producer(broker.bootstrap) as producer:
            for number in range(10):
                producer.send("orders", b"%d" % number, partition=number % 2)
        with Consumer(broker.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition("orders", 0), TopicPartition("orders", 1)])
            consumer.commit({TopicPartition("orders", 0): 3})
    with BrokerThread(properties(tmp_path)) as broker, Admin(broker.bootstrap) as admin:
        assert admin.describe_topic("orders").topic_id == topic_id
        assert admin.describe_cluster().cluster_id == cluster_id
        assert {key: found.offset for key, found in admin.committed_offsets("g").items()} == {TopicPartition("orders", 0): 3}
        with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            values: list[bytes | None] = []
            while len(values) < 5:
                values += [record.value for record in consumer.poll(1000)]
        assert values == [b"0", b"2", b"4", b"6", b"8"]


def test_mechanism_06_deleting_a_topic_removes_its_data(tmp_path: Path) -> None:
    with BrokerThread(properties(tmp_path)) as broker, Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topics([NewTopic("gone", 2)])
        producer.send("gone", b"x").result(10)
        assert {path.name for path in tmp_path.iterdir()} >= {"gone-0", "gone-1"}
        old_id = admin.describe_topic("gone").topic_id
        assert admin.delete_topics(["gone"]) == {"gone": None}
        assert "gone" not in admin.list_topics()
        assert not {path.name for path in tmp_path.iterdir()} & {"gone-0", "gone-1"}
        admin.create_topics([NewTopic("gone", 1)])
        assert admin.describe_topic("gone").topic_id != old_id
        assert admin.offsets_for_times({TopicPartition("gone", 0): -1})[TopicPartition("gone", 0)][0] == 0
    with BrokerThread(properties(tmp_path)):
        assert not list(tmp_path.glob("*-delete"))


def test_mechanism_40_each_partition_has_its_own_directory(tmp_path: Path) -> None:
    with BrokerThread(properties(tmp_path)) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("topic1", 5), NewTopic("topic2", 10)])
        directories = [path.name for path in tmp_path.iterdir() if path.is_dir() and path.name.startswith("topic")]
    assert sorted(directories) == sorted([*(f"topic1-{index}" for index in range(5)), *(f"topic2-{index}" for index in range(10))])


def test_partitions_are_spread_over_several_log_directories(tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    config = properties(tmp_path) | {"log.dirs": ",".join(map(str, directories))}
    with BrokerThread(config) as broker, Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topics([NewTopic("t", 4)])
        for index in range(4):
            producer.send("t", b"%d" % index, partition=index).result(10)
    assert [len(list(directory.glob("t-*"))) for directory in directories] == [2, 2]
    with BrokerThread(config) as broker, Admin(broker.bootstrap) as admin:
        ends = admin.offsets_for_times({TopicPartition("t", index): -1 for index in range(4)})
        assert [ends[TopicPartition("t", index)][0] for index in range(4)] == [1, 1, 1, 1]


def test_a_log_directory_belongs_to_one_running_broker(tmp_path: Path) -> None:
    with (
        BrokerThread(properties(tmp_path)),
        pytest.raises(StorageError, match=rf"in use by another broker \(process {os.getpid()} has it\)"),
    ):
        BrokerThread(properties(tmp_path)).start()


def test_a_directory_of_another_program_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(StorageError, match="not a log directory"):
        BrokerThread(properties(tmp_path)).start()
    assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {"thesis.txt"}
    assert (tmp_path / "thesis.txt").read_text() == "do not touch"


def test_a_broker_whose_port_is_taken_says_so(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            BrokerThread(properties(tmp_path, listeners=f"PLAINTEXT://127.0.0.1:{port}")).start()


def test_two_listeners_each_tell_their_own_address(tmp_path: Path) -> None:
    config = properties(tmp_path, listeners="PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0")
    config["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT"
    with BrokerThread(config) as broker:
        addresses = broker.addresses
        assert set(addresses) == {"PLAINTEXT", "OUTSIDE"}
        for host, port in addresses.values():
            with Admin(f"{host}:{port}") as admin:
                [node] = admin.describe_cluster().nodes
                assert (node.host, node.port) == (host, port)


def test_a_description_of_topics_is_cut_into_answers_of_the_size_that_is_configured(tmp_path: Path) -> None:
    with BrokerThread(properties(tmp_path, **{"max.request.partition.size.limit": "2"})) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 3)])
        with RawClient(int(broker.bootstrap.rpartition(":")[2])) as client:
            answer = client.ask(DescribeTopicPartitionsRequest([TopicRequest("t")], 2000), 0)
            assert [part.partition_index for part in answer.topics[0].partitions] == [0, 1]
            assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("t", 2)


@pytest.mark.parametrize("text", ["", "localhost:9092", "PLAINTEXT://", "PLAINTEXT://host", "PLAINTEXT://host:x", "PLAINTEXT://host:70000"])
def test_a_listener_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="listener"):
        parse_listener(text)


@pytest.mark.parametrize(("group_id", "java_hash"), [("", 0), ("hello", 99162322), ("console-consumer-83422", None), ("Grüße 🙂", None)])
def test_a_group_belongs_where_javas_string_hash_says(group_id: str, java_hash: int | None) -> None:
    code = 0
    units = group_id.encode("utf-16-be")
    for unit in [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]:
        code = (code * 31 + unit) % 2**32
    if java_hash is not None:
        assert code == java_hash
    assert partition_of(group_id, 50) == (code & 0x7FFFFFFF) % 50
