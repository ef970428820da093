"""A broker opens the directories that earlier versions left, killed or stopped, and finds in them all that was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.older_directories import (
    ALLOWED,
    ARCHIVES,
    CODECS,
    COMPACTED,
    COUNT,
    KEPT,
    MOVED,
    QUOTA,
    RECORDS,
    TRIMMED,
    config_of,
    unpack,
    value_of,
)
from tests.waiting import eventually

from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Consumer, ConsumerRecord, Producer, Topic, TopicPartition

NAMES = sorted(path.name.removesuffix(".tar.gz") for path in ARCHIVES.glob("*.tar.gz"))


@pytest.fixture(scope="module", params=NAMES)
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = unpack(request.param, tmp_path_factory.mktemp("older"))
    with BrokerThread(config_of(directory)) as broker:
        yield broker.bootstrap


def read(bootstrap: str, partition: TopicPartition) -> list[ConsumerRecord]:
    """The committed records, from the start of the log to its stable end."""
    found: list[ConsumerRecord] = []
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            found += consumer.poll(100)
    return found


def test_there_are_directories_of_both_kinds() -> None:
    assert {name.rpartition("-")[2] for name in NAMES} == {"killed", "stopped"}


def test_each_record_is_there_with_all_that_it_has(bootstrap: str) -> None:
    found = [(record.key, record.value, list(record.headers), record.timestamp_ms) for record in read(bootstrap, RECORDS)]
    assert found == [
        (b"%d" % number, value_of(codec, number), [("codec", codec.encode())], number) for codec in CODECS for number in range(COUNT)
    ]
    assert [record.value for record in read(bootstrap, COMPACTED)][-3:] == [b"7", b"8", b"9"]
    assert [(record.offset, record.value) for record in read(bootstrap, TRIMMED)] == [(number, b"%d" % number) for number in range(5, 10)]


def test_transactions_end_as_they_had(bootstrap: str) -> None:
    """What was committed is read, what was aborted is not; what was open when the broker ended is aborted by its next producer."""
    with Producer(bootstrap, transactional_id="left-open") as producer:
        producer.init_transactions()
    with Consumer(bootstrap) as consumer:
        end = consumer.end_offsets([MOVED])[MOVED]
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        eventually(lambda: consumer.end_offsets([MOVED])[MOVED], lambda stable: stable == end)
    assert [record.value for record in read(bootstrap, MOVED)] == [b"committed"]
    with Producer(bootstrap, transactional_id="mover") as producer:
        producer.init_transactions()
        with producer.transaction():
            assert producer.send(MOVED.topic, b"goes on").result(30).offset >= end
    assert [record.value for record in read(bootstrap, MOVED)] == [b"committed", b"goes on"]


def test_groups_go_on_where_they_were(bootstrap: str) -> None:
    committed = {"classic": (RECORDS, 7), "of-the-next-generation": (TRIMMED, 6), "moved": (RECORDS, 11)}
    with Admin(bootstrap) as admin:
        for group, (partition, offset) in committed.items():
            assert {key: found.offset for key, found in admin.committed_offsets(group).items()} == {partition: offset}
    with Consumer(bootstrap, group_id="of-the-next-generation", group_protocol="consumer", enable_auto_commit=False) as consumer:
        consumer.subscribe([TRIMMED.topic])
        assert eventually(lambda: consumer.poll(1000), bool)[0].offset == 6


def test_what_was_set_is_in_force(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        configs = admin.describe_configs(Topic(COMPACTED.topic))
        assert {key: configs[key].value for key in (*KEPT, "cleanup.policy")} == {**KEPT, "cleanup.policy": "compact"}
        assert admin.describe_client_quotas() == {(("user", "alice"),): QUOTA}
        assert admin.describe_users() == {"alice": {"SCRAM-SHA-256": 4096}}
        assert admin.describe_acls() == [ALLOWED]
