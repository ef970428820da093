"""Batches whose contents are not what they say are refused as Kafka refuses them, one by one and without stopping others."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.lying_batches import LIES, Lie, produced, timed
from tests.foreign_clients.wire import RawClient, batch_of, end_offsets
from tests.hostile.wire_bytes import GZIP, batch, gzip_bomb, gzipped, record

from ottla.errors import ErrorCode
from ottla.records.batch import LOG_APPEND_TIME, iterate_batches
from ottla.records.iteration import iterate_records
from ottla.sync import Admin, NewTopic

TOPICS = {
    "lies": {},
    "timely": {"message.timestamp.before.max.ms": "10000"},
    "compacted": {"cleanup.policy": "compact"},
    "packed": {"compression.type": "gzip", "max.message.bytes": "20000000"},
    "appended": {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "20000000"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("lies")) as running:
        with Admin(running.bootstrap) as admin:
            topics = [NewTopic(name, 1, configs=configs) for name, configs in TOPICS.items()]
            assert set(admin.create_topics(topics).values()) == {None}
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.port) as opened:
        yield opened


@functools.cache
def numbered(count: int) -> bytes:
    """A payload of records with keys, numbered from 0."""
    frames = {}
    for width in (1, 2, 3):  # bytes of the number, which the record counts: all else of it stays
        frames[width] = record(key=b"k", offset_delta=b"\xff" * width).split(b"\xff" * width)
    return b"".join(number.join(frames[len(number)]) for number in map(_varint, range(count)))


def _varint(value: int) -> bytes:
    out, value = bytearray(), value << 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
def test_a_batch_with_false_fields_gets_kafkas_code(client: RawClient, lie: Lie) -> None:
    before = end_offsets(client, "lies", 1)
    assert ErrorCode(produced(client, "lies", lie.batch).error_code) == lie.expected
    assert end_offsets(client, "lies", 1) == before
    assert produced(client, "lies", batch_of(b"honest")).error_code == 0


def test_times_and_keys_are_judged_by_record(client: RawClient) -> None:
    now_ms = int(time.time() * 1000)
    late = produced(client, "timely", timed(now_ms, now_ms - 3_600_000, now_ms))
    assert (late.error_code, [error.batch_index for error in late.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1])
    keyless = produced(client, "compacted", timed(now_ms, now_ms, key=None))
    assert (keyless.error_code, [error.batch_index for error in keyless.record_errors]) == (ErrorCode.INVALID_RECORD, [0, 1])
    assert all(error.batch_index_error_message for error in (*late.record_errors, *keyless.record_errors))
    assert produced(client, "timely", timed(now_ms, -1, now_ms)).error_code == 0, "a time that is not known breaks no rule"


def test_librdkafka_reports_the_refused_batch_as_it_does_beside_kafka(broker: BrokerProcess) -> None:
    results: list[object] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 60_000})
    for key in (b"good", None, b"also good"):
        producer.produce("compacted", key=key, value=b"v", on_delivery=lambda error, _: results.append(error and error.name()))
    assert producer.flush(30) == 0
    assert results == ["INVALID_RECORD"] * 3


def test_a_false_largest_timestamp_is_corrected(client: RawClient, broker: BrokerProcess) -> None:
    answer = produced(client, "lies", batch(b"a", b"b", max_timestamp=2**62))
    assert answer.error_code == 0
    [stored] = [
        header
        for _, header in iterate_batches((broker.data / "lies-0" / f"{0:020d}.log").read_bytes(), check_crc=True)
        if header.base_offset == answer.base_offset
    ]
    assert stored.max_timestamp < 2**60


@pytest.mark.parametrize("topic", ["lies", "packed", "appended"])
def test_a_batch_that_is_too_much_for_the_loop_is_stored_in_its_turn(client: RawClient, broker: BrokerProcess, topic: str) -> None:
    """Others of the connection that came later wait for it, whatever they ask."""
    from tests.foreign_clients.wire import produce_request

    count = 300_000
    heavy = batch(payload=gzipped(numbered(count)), attributes=GZIP, count=count, last_offset_delta=count - 1)
    [before] = end_offsets(client, topic, 1)
    client.send(produce_request(topic, heavy), 9)
    for _ in range(3):
        client.send(produce_request(topic, batch_of(b"later")), 9)
    offsets = [client.receive().responses[0].partition_responses[0] for _ in range(4)]
    assert [found.error_code for found in offsets] == [0] * 4
    assert [found.base_offset for found in offsets] == [before, before + count, before + count + 1, before + count + 2]
    data = b"".join(path.read_bytes() for path in sorted((broker.data / f"{topic}-0").glob("*.log")))
    [(position, header)] = [found for found in iterate_batches(data, check_crc=True) if found[1].base_offset == before]
    assert len(iterate_records(data, position)) == count
    assert bool(header.attributes & LOG_APPEND_TIME) == (topic == "appended")


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (lambda: gzip_bomb(200 << 20), ErrorCode.UNKNOWN_SERVER_ERROR),
        (lambda: gzipped(numbered(300_000))[:-9], ErrorCode.UNKNOWN_SERVER_ERROR),
        (lambda: gzipped(numbered(299_999)), ErrorCode.INVALID_RECORD),
        (lambda: gzipped(numbered(300_000) + b"\0"), ErrorCode.INVALID_RECORD),
    ],
    ids=["bomb", "cut", "one short", "one byte more"],
)
def test_a_heavy_batch_with_false_fields_is_refused(client: RawClient, payload: Callable[[], bytes], code: ErrorCode) -> None:
    heavy = batch(payload=payload(), attributes=GZIP, count=300_000, last_offset_delta=299_999)
    assert ErrorCode(produced(client, "packed", heavy).error_code) == code
    assert produced(client, "packed", batch_of(b"honest")).error_code == 0


def test_a_broker_that_believes_headers_stores_what_they_say(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, ottla_produce_validation="headers") as trusting:
        with Admin(trusting.bootstrap) as admin:
            admin.create_topics([NewTopic("lies", 1)])
        with RawClient(trusting.port) as client:
            assert produced(client, "lies", batch(payload=b"\xa5" * 40)).error_code == 0
