"""Batches at random, right ones and wrong ones, and questions for what became of them, that Apache Kafka 4.3 and ottla answer alike."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tests.interop.both_asked import Both, Id, Known, Pool, Pools, Side, drawn, one_of, some_of
from tests.interop.both_brokers import make_topics
from tests.interop.drawn_batches import REFUSED_AS_ONE, WRONGS, DrawnBatch
from tests.interop.known_of_reads import ORDER, OUT_OF_RANGE, REFUSED_BATCH

from ottla.messages.delete_records import DeleteRecordsRequest
from ottla.messages.describe_producers import DescribeProducersRequest
from ottla.messages.fetch import FetchRequest, ReplicaState
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.list_offsets import ListOffsetsRequest
from ottla.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.messages.produce import ProduceRequest
from ottla.wire.schema import ZERO_UUID, Request

IDS_SINCE: Final = 13
SEQUENCES: Final = 60
STEPS: Final = (15, 45)
REQUESTS: Final[Mapping[type[Request], int]] = {
    InitProducerIdRequest: 3,
    ProduceRequest: 14,
    FetchRequest: 8,
    ListOffsetsRequest: 5,
    OffsetForLeaderEpochRequest: 2,
    DeleteRecordsRequest: 2,
    DescribeProducersRequest: 3,
}
FOREVER: Final = {"retention.ms": "-1"}
CONFIGS: Final[tuple[dict[str, str], ...]] = (
    {},
    {},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete"},
    {"message.timestamp.type": "LogAppendTime"},
    {"max.message.bytes": "200", "message.timestamp.after.max.ms": "3600000"},
    {"compression.type": "lz4"},
)
NOW_MS: Final = 1_700_000_000_000
UNKNOWN_ID: Final = bytes([7]) * 16
KNOWN: Final = (
    *OUT_OF_RANGE,
    REFUSED_BATCH,
    *(Known("Produce", "partition_responses.error_code", None, code, ORDER) for code in ("21", "76")),
    *(
        Known("ListOffsets", f"partitions.{name}", None, "-1", "Kafka names a record of the largest time that is deleted")
        for name in ("offset", "leader_epoch")
    ),
)


class Records:
    """Two topics, their idempotent producers, and one session of fetches."""

    def __init__(self, both: Both, number: int) -> None:
        self.both = both
        self.rng = random.Random(number)
        self.names = [f"r{number}", f"s{number}"]
        self.producers: dict[Id, int] = {}
        self.next = defaultdict[tuple[Any, ...], int](int)
        """The next sequence of a producer's epoch in a partition."""
        self.sessions: dict[Id, int] = {}
        self.pools = self._pools()

    def _pools(self) -> Pools:
        topic: Pool = one_of(*self.names * 6, "missing")
        index: Pool = one_of(0, 0, 0, 1, 1, 7, -1)
        return {
            "InitProducerId.transactional_id": one_of(None, None, None, ""),
            "transaction_timeout_ms": one_of(60_000, 60_000, 0, -1),
            "producer_id": lambda rng: rng.choice([-1, -1, *self.producers, 12345]),
            "producer_epoch": lambda rng: rng.choice([-1, -1, 0, *self.producers.values()]),
            **dict.fromkeys(("name", "topic"), topic),
            "topic_id": one_of(*(Id("topic", name) for name in self.names * 4), UNKNOWN_ID),
            **dict.fromkeys(("index", "partition", "partition_index"), index),
            "partition_indexes": some_of(index),
            "acks": one_of(1, -1, -1, 2),
            "timeout_ms": one_of(5000),
            "transactional_id": one_of(None),
            "records": self._batch,
            "isolation_level": one_of(0, 1),
            "timestamp": one_of(-1, -2, -3, -4, -5, -6, -7, 0, NOW_MS, NOW_MS + 1, 10**13),
            "current_leader_epoch": one_of(-1, -1, 0, 0, 3),
            "OffsetForLeaderEpoch.topics.partitions.leader_epoch": one_of(0, 0, 1, -1),
            "replica_id": one_of(-1),
            "offset": one_of(0, 1, 2, -1, 100, -2),
            "fetch_offset": one_of(0, 0, 0, 1, 2, 3, 100, -1),
            "max_wait_ms": one_of(0, 10),
            "min_bytes": one_of(0, 1),
            "max_bytes": one_of(10**6, 10**6, 10**6, 150, 1, 0),
            "partition_max_bytes": one_of(10**6, 10**6, 150, 1, 0),
            "session_id": lambda rng: rng.choice([0, 0, *self.sessions, 12345]),
            "session_epoch": one_of(-1, -1, -1, 0, 0, 1, 5),
            "log_start_offset": one_of(-1),
            "last_fetched_epoch": one_of(-1, -1, -1, 0, 1),
            "rack_id": one_of(""),
            "replica_state": one_of(ReplicaState()),
            "cluster_id": one_of(None),
            "replica_directory_id": one_of(ZERO_UUID),
            "high_watermark": one_of(2**63 - 1),
        }

    def _batch(self, rng: random.Random) -> DrawnBatch:
        values = tuple(rng.choice([b"v", b"w" * 20, b"z" * 300]) for _ in range(rng.choice([1, 1, 2, 3])))
        wrong = rng.choice(list(WRONGS)) if rng.random() < 0.2 else ""
        known = list(self.producers)
        producer: Any = rng.choice([-1, *known * 2])
        return DrawnBatch(
            values,
            producer,
            epoch=self.producers.get(producer, -1),
            codec=rng.choice([0, 0, 0, 1, 2, 3, 4]),
            timestamp_ms=rng.choice([NOW_MS, NOW_MS, NOW_MS, -1, 0, 4 * 10**12]),
            is_keyed=rng.random() < 0.8,
            wrong=wrong,
        )

    def play(self) -> None:
        make_topics(self.both, {name: (2, FOREVER | self.rng.choice(CONFIGS)) for name in self.names})
        for _ in range(self.rng.randrange(*STEPS)):
            [kind] = self.rng.choices(list(REQUESTS), list(REQUESTS.values()))
            version = self.rng.randint(*self.both.versions(kind))
            request = drawn(kind, version, self.pools, self.rng)
            if isinstance(request, ProduceRequest):
                self._produce(request, version)
            elif isinstance(request, InitProducerIdRequest):
                self._init(request, version)
            elif isinstance(request, FetchRequest):
                self._fetch(request, version)
            else:
                self.both.ask(request, version)

    def _produce(self, request: Any, version: int) -> None:
        sent = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                if data.records.wrong in REFUSED_AS_ONE:
                    topic.name, topic.topic_id, topic.partition_data = self.names[0], Id("topic", self.names[0]), [data]
                    request.topic_data, data.index, request.acks = [topic], 0, -1
        for topic in request.topic_data:
            for data in topic.partition_data:
                name = topic.name if version < IDS_SINCE else getattr(topic.topic_id, "name", "")
                if isinstance(data.records.producer, Id):
                    data.records = replace(data.records, sequence=self._sequence(data.records, name, data.index))
                sent[name, data.index] = data.records
        answer = self.both.ask(request, version)
        for topic in answer.responses:
            for found in topic.partition_responses:
                name = topic.name or getattr(self.both.sides[0].named.get(topic.topic_id), "name", "")
                batch = sent[name, found.index]
                if not found.error_code and batch.sequence == self.next[batch.producer, batch.epoch, name, found.index]:
                    self.next[batch.producer, batch.epoch, name, found.index] += len(batch.values)

    def _sequence(self, batch: DrawnBatch, name: str, index: int) -> int:
        """The next one, mostly. An unknown producer begins with 0: Kafka takes any other one, too."""
        due = self.next[batch.producer, batch.epoch, name, index]
        return self.rng.choice([due] * 6 + ([0, due + 1, due - 1] if due else []))

    def _init(self, request: Any, version: int) -> None:
        fresh = Id("producer", f"{self.names[0]}-{len(self.producers)}")

        def learn(side: Side, answer: Any) -> None:
            if not answer.error_code:
                side.learn(fresh, answer.producer_id)

        answer = self.both.ask(request, version, learn)
        if not answer.error_code:
            self.producers[fresh] = answer.producer_epoch

    def _fetch(self, request: Any, version: int) -> None:
        if request.session_id in self.sessions and self.rng.random() < 0.7:
            request.session_epoch = self.sessions[request.session_id]
        fresh = Id("session", f"{self.names[0]}-{len(self.sessions)}")

        def learn(side: Side, answer: Any) -> None:
            if answer.session_id and answer.session_id not in side.named:
                side.learn(fresh, answer.session_id)

        answer = self.both.ask(request, version, learn)
        if self.both.sides[0].ids.get(fresh) == answer.session_id and answer.session_id:
            self.sessions[fresh] = 1
        elif request.session_id in self.sessions and not answer.error_code:
            if request.session_epoch in (-1, 0):
                self.sessions.pop(request.session_id, None)
            else:
                self.sessions[request.session_id] += 1


def test_records(both_ports: tuple[int, int]) -> None:
    both = Both(*both_ports, KNOWN, compared=("leader_epoch",))
    for number in range(SEQUENCES):
        Records(both, number).play()
    both.close()
    print(both.met.most_common())
    assert not both.unneeded, "what may differ, and does not"
    assert {api for api, _ in both.met} == {kind.__name__.removesuffix("Request") for kind in REQUESTS}
