"""Transactions at random, in right and in wrong orders and by all versions, of which Apache Kafka 4.3 and ottla answer alike."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tests.interop.both_asked import Both, Id, Known, Pool, Pools, Side, drawn, one_of, some_of
from tests.interop.both_brokers import make_topics
from tests.interop.drawn_batches import DrawnBatch
from tests.interop.known_of_reads import ORDER, OUT_OF_RANGE, REFUSED_BATCH
from tests.waiting import eventually

from ottla.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.messages.describe_producers import DescribeProducersRequest
from ottla.messages.describe_transactions import DescribeTransactionsRequest
from ottla.messages.end_txn import EndTxnRequest
from ottla.messages.fetch import FetchRequest, ReplicaState
from ottla.messages.init_producer_id import InitProducerIdRequest
from ottla.messages.list_offsets import ListOffsetsRequest
from ottla.messages.list_transactions import ListTransactionsRequest
from ottla.messages.offset_fetch import OffsetFetchRequest
from ottla.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.messages.write_txn_markers import WriteTxnMarkersRequest
from ottla.wire.schema import ZERO_UUID, Request

SEQUENCES: Final = 60
STEPS: Final = (15, 45)
REQUESTS: Final[Mapping[type[Request], int]] = {
    InitProducerIdRequest: 4,
    AddPartitionsToTxnRequest: 6,
    ProduceRequest: 10,
    AddOffsetsToTxnRequest: 4,
    TxnOffsetCommitRequest: 5,
    EndTxnRequest: 8,
    WriteTxnMarkersRequest: 1,
    DescribeTransactionsRequest: 3,
    ListTransactionsRequest: 2,
    DescribeProducersRequest: 2,
    FetchRequest: 4,
    ListOffsetsRequest: 2,
    OffsetFetchRequest: 2,
}
NOW_MS: Final = 1_700_000_000_000
BEFORE_IT_BEGAN: Final = "the time of what has not begun counts from 1970 in Kafka"
KNOWN: Final = (
    *OUT_OF_RANGE,
    REFUSED_BATCH,
    Known("AddPartitionsToTxn", "partition_error_code", None, "42", ORDER),
    Known("TxnOffsetCommit", "partitions.error_code", "47", "49", ORDER),
    Known("DescribeTransactions", "transaction_state", "Empty", "CompleteAbort", "after an InitProducerId that aborted"),
    Known("ListTransactions", "transaction_states", None, None, BEFORE_IT_BEGAN),
    Known("WriteTxnMarkers", "partitions.error_code", "-1", "3", "Kafka refuses all for one that no producer can have"),
)


class Transactions:
    """Two transactional ids, which write to one topic and commit offsets of one group."""

    def __init__(self, both: Both, number: int) -> None:
        self.both = both
        self.rng = random.Random(number)
        self.topic, self.group, self.ids = f"w{number}", f"g{number}", [f"x{number}", f"y{number}"]
        self.producers: dict[str, tuple[Id, int]] = {}
        """Of each transactional id."""
        self.all: dict[Id, int] = {}
        self.next = defaultdict[tuple[Any, ...], int](int)
        self.has_marked = False
        self.pools = self._pools()

    def _pools(self) -> Pools:
        topic: Pool = one_of(*[self.topic] * 7, "missing")
        index: Pool = one_of(0, 0, 1, 1, 7)
        return {
            "transactional_id": one_of(*self.ids * 5, "never", ""),
            "v3_and_below_transactional_id": one_of(*self.ids * 5, "never", ""),
            "InitProducerId.transactional_id": one_of(*self.ids * 5, ""),
            "transactional_ids": some_of(one_of(*self.ids * 3, "never", "")),
            "transaction_timeout_ms": one_of(*[600_000] * 6, 0, -1, 10**8),
            **dict.fromkeys(("producer_id", "v3_and_below_producer_id"), lambda rng: rng.choice([-1, 12345, *self.all])),
            **dict.fromkeys(("producer_epoch", "v3_and_below_producer_epoch"), lambda rng: rng.choice([-1, 0, 1, *self.all.values()])),
            "InitProducerId.producer_id": one_of(-1),
            "InitProducerId.producer_epoch": one_of(-1),
            "enable_2_pc": one_of(False),
            "keep_prepared_txn": one_of(False),
            "verify_only": one_of(False, False, True),
            **dict.fromkeys(("name", "topic"), topic),
            "topic_id": one_of(*[Id("topic", self.topic)] * 6, bytes([7]) * 16),
            **dict.fromkeys(("index", "partition", "partition_index"), index),
            **dict.fromkeys(("partition_indexes", "AddPartitionsToTxn.v3_and_below_topics.partitions"), some_of(index)),
            "acks": one_of(-1),
            "timeout_ms": one_of(5000),
            "records": one_of(DrawnBatch((b"v",), timestamp_ms=NOW_MS), DrawnBatch((b"v", b"w"), timestamp_ms=NOW_MS)),
            "group_id": one_of(self.group),
            "groups": one_of([]),
            "generation_id": one_of(-1, -1, -1, 5),
            "member_id": one_of("", "", "", "m"),
            "group_instance_id": one_of(None, None, None, "i"),
            "committed_offset": one_of(0, 5, 7),
            "committed_leader_epoch": one_of(-1, 0),
            "committed_metadata": one_of("", "m", None),
            "require_stable": one_of(False, False, True),
            "committed": one_of(True, False),
            "transaction_result": one_of(True, False),
            "coordinator_epoch": one_of(0, 0, 0, -1),
            "transaction_version": one_of(0, 1, 2),
            "state_filters": one_of([], [], ["Ongoing"], ["Ongoing", "Empty"], ["CompleteCommit"], ["nonsense"]),
            "WriteTxnMarkers.markers.producer_id": one_of(-1, 12345),
            "WriteTxnMarkers.markers.producer_epoch": one_of(-1, 0),
            "producer_id_filters": lambda rng: list(self.all) or [12345],
            "duration_filter": one_of(-1, -1, 10**9),
            "transactional_id_pattern": one_of(None, None, "", "x.*", ".*y.*", "("),
            "isolation_level": one_of(0, 1, 1),
            "timestamp": one_of(-1, -1, -2, -3, NOW_MS),
            "current_leader_epoch": one_of(-1, 0),
            "replica_id": one_of(-1),
            "fetch_offset": one_of(0, 0, 1, 2, 3),
            "max_wait_ms": one_of(0),
            "min_bytes": one_of(0),
            "max_bytes": one_of(10**6),
            "partition_max_bytes": one_of(10**6, 10**6, 150),
            "session_id": one_of(0),
            "session_epoch": one_of(-1),
            "log_start_offset": one_of(-1),
            "last_fetched_epoch": one_of(-1),
            "forgotten_topics_data": one_of([]),
            "rack_id": one_of(""),
            "replica_state": one_of(ReplicaState()),
            "cluster_id": one_of(None),
            "replica_directory_id": one_of(ZERO_UUID),
            "high_watermark": one_of(2**63 - 1),
            "OffsetFetch.topics": one_of(None),
        }

    def play(self) -> None:
        make_topics(self.both, {self.topic: (2, {"retention.ms": "-1"})})
        for _ in range(self.rng.randrange(*STEPS)):
            [kind] = self.rng.choices(list(REQUESTS), list(REQUESTS.values()))
            version = self.rng.randint(*self.both.versions(kind))
            self._ask(kind, version)
            if kind in (EndTxnRequest, InitProducerIdRequest):
                eventually(self._states, lambda states: not any(state.startswith("Prepare") for state in states))

    def _states(self) -> list[str]:
        """Of the transactions of both."""
        answers = self.both.answers(DescribeTransactionsRequest(self.ids), 0)
        return [state.transaction_state for answer in answers for state in answer.transaction_states]

    def _ask(self, kind: type[Request], version: int) -> None:
        request: Any = drawn(kind, version, self.pools, self.rng)
        name = self.rng.choice(self.ids)
        if isinstance(request, InitProducerIdRequest):
            self._init(request, version)
            return
        if isinstance(request, OffsetFetchRequest):
            request, version = OffsetFetchRequest(self.group, None, require_stable=request.require_stable), 7
        if isinstance(request, WriteTxnMarkersRequest):
            request.markers = request.markers[:1]  # Kafka refuses all for one that no producer can have
            if request.markers[0].producer_id > 0 and self.has_marked:
                return  # ottla writes no marker again
            self.has_marked |= request.markers[0].producer_id > 0 and request.markers[0].producer_epoch >= 0
        if name in self.producers and self.rng.random() < 0.85:
            self._as(request, version, name)
        if isinstance(request, AddPartitionsToTxnRequest) and version > 3:
            return  # of brokers
        if isinstance(request, ProduceRequest):
            self._produce(request, version, name)
            return
        answer = self.both.ask(request, version)
        if isinstance(request, EndTxnRequest) and version >= 5 and not answer.error_code:
            self._learned(request.transactional_id, answer.producer_id, answer.producer_epoch)

    def _as(self, request: Any, version: int, name: str) -> None:
        """The request is of the producer that has this transactional id."""
        producer, epoch = self.producers[name]
        if hasattr(request, "v3_and_below_topics"):
            request.v3_and_below_transactional_id = name
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch = producer, epoch
        elif hasattr(request, "transactional_id") and hasattr(request, "producer_id"):
            request.transactional_id, request.producer_id, request.producer_epoch = name, producer, epoch

    def _init(self, request: Any, version: int) -> None:
        name = request.transactional_id
        if version >= 3 and name in self.producers and self.rng.random() < 0.5:
            request.producer_id, request.producer_epoch = self.producers[name]
            if self.rng.random() < 0.3 and "Ongoing" not in self._states():
                request.producer_epoch += self.rng.choice([-1, 1])
        fresh = Id("producer", f"{self.topic}-{len(self.all)}")

        def learn(side: Side, answer: Any) -> None:
            if not answer.error_code and answer.producer_id not in side.named:
                side.learn(fresh, answer.producer_id)

        answer = self.both.ask(request, version, learn)
        if not answer.error_code:
            self._learned(str(name), answer.producer_id, answer.producer_epoch)

    def _learned(self, name: str, producer_id: int, epoch: int) -> None:
        producer = self.both.sides[0].named[producer_id]
        self.producers[name] = producer, epoch
        self.all[producer] = epoch

    def _produce(self, request: Any, version: int, name: str) -> None:
        producer, epoch = self.producers.get(name, (None, -1))
        is_transactional = producer is not None and self.rng.random() < 0.9
        request.transactional_id = name if self.rng.random() < 0.9 else self.rng.choice([None, *self.ids, "never"])
        epoch = max(0, epoch - 1) if self.rng.random() < 0.1 else epoch
        if is_transactional and request.transactional_id is None:  # Kafka refuses the whole request
            data = PartitionProduceData(0, request.topic_data[0].partition_data[0].records)
            request.topic_data = [TopicProduceData(self.topic, Id("topic", self.topic), [data])]  # type: ignore[arg-type]
        sent = {}
        for topic in request.topic_data:
            for data in topic.partition_data:
                if producer is not None:
                    due = self.next[producer, epoch, data.index]
                    sequence = self.rng.choice([due] * 8 + ([0, due + 1] if due else []))
                    fields = {"producer": producer, "epoch": epoch, "sequence": sequence, "is_transactional": is_transactional}
                    data.records = replace(data.records, **fields)
                    sent[data.index] = data.records
        for topic in self.both.ask(request, version).responses:
            for found in topic.partition_responses:
                batch: Any = sent.get(found.index)
                if batch is not None and not found.error_code and batch.sequence == self.next[producer, epoch, found.index]:
                    self.next[producer, epoch, found.index] += len(batch.values)


def test_transactions(both_ports: tuple[int, int]) -> None:
    both = Both(*both_ports, KNOWN, compared=("leader_epoch",))
    for number in range(SEQUENCES):
        Transactions(both, number).play()
    both.close()
    print(both.met.most_common())
    assert not both.unneeded, "what may differ, and does not"
    assert {api for api, _ in both.met} == {kind.__name__.removesuffix("Request") for kind in REQUESTS}
