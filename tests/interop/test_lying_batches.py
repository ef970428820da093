"""What Apache Kafka 4.3.0 answers to batches that lie, which the same table expects of ottla."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from bench.peers import Kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.foreign_clients.lying_batches import LIES, Lie, produced, timed
from tests.foreign_clients.wire import RawClient

from ottla.errors import ErrorCode

WAIT_SECONDS_MAX = 60


@pytest.fixture(scope="module")
def kafka() -> Iterator[RawClient]:
    assert Kafka.why_not() is None, Kafka.why_not()
    with Kafka() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [
            NewTopic("lies", 1, 1),
            NewTopic("timely", 1, 1, config={"message.timestamp.before.max.ms": "10000"}),
            NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
        ]
        for future in admin.create_topics(topics, operation_timeout=30, request_timeout=WAIT_SECONDS_MAX).values():
            future.result(WAIT_SECONDS_MAX)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        with RawClient(broker.address[1]) as client:
            for name in ("lies", "timely", "compacted"):
                while produced(client, name, timed(int(time.time() * 1000))).error_code and time.monotonic() < deadline:
                    continue
            yield client


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.name)
def test_kafkas_answer_to_a_batch_that_lies(kafka: RawClient, lie: Lie) -> None:
    assert ErrorCode(produced(kafka, "lies", lie.batch).error_code) == lie.kafka


def test_kafka_judges_times_and_keys_by_record(kafka: RawClient) -> None:
    now_ms = int(time.time() * 1000)
    late = produced(kafka, "timely", timed(now_ms, now_ms - 3_600_000, now_ms))
    assert (late.error_code, [error.batch_index for error in late.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [1])
    keyless = produced(kafka, "compacted", timed(now_ms, now_ms, key=None))
    assert (keyless.error_code, [error.batch_index for error in keyless.record_errors]) == (ErrorCode.INVALID_RECORD, [0, 1])
