"""A model of a broker that coordinates transactions: it answers in the place of the simulated one, and can lose what it answers.

It has one coordinator, whose markers are written at once, and logs that are lists. A request whose answer is lost may come a second time,
late, as it may over a real network; the model then does what it says, as Kafka does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ottla.client.cluster import KEY_TYPE_GROUP
from ottla.errors import ErrorCode
from ottla.messages import add_offsets_to_txn as adding_offsets
from ottla.messages import add_partitions_to_txn as adding
from ottla.messages import produce as producing
from ottla.messages import txn_offset_commit as committing
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from ottla.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.messages.registry import APIS
from ottla.records.batch import read_header
from ottla.records.iteration import iterate_records
from ottla.sim.cluster import PORT
from ottla.sim.interference import Held, Interference, Lost
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

NODE = 1
TOPIC_ID = b"t" * 16
PARTITION_COUNT = 3
LEVEL_1_VERSIONS: dict[int, int] = {ApiKey.PRODUCE: 11, ApiKey.TXN_OFFSET_COMMIT: 4, ApiKey.END_TXN: 4}


@dataclass
class Batch:
    """``outcome`` is None while its transaction is open, then whether that was committed."""

    producer_id: int
    epoch: int
    sequence: int
    values: list[bytes]
    outcome: bool | None = None


@dataclass
class Known:
    """What the coordinator knows of the transactional id."""

    producer_id: int
    epoch: int
    last_epoch: int = -1
    is_open: bool = False
    last_result: bool | None = None
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


class Again:
    """The answer is lost, and the same request arrives once more after some time."""

    def __init__(self, delay_ms: float) -> None:
        self.delay_ms = delay_ms


Fault = Lost | Again | Held | Response | ErrorCode | None


class TransactionalBroker:
    def __init__(self, network: Interference, *, level: int, address: tuple[str, int] = ("broker", PORT)) -> None:
        """``address`` is that of the broker whose place it takes."""
        self.network = network
        self.address = address
        self.level = level  # that clients use: a broker goes by the versions of their requests
        self.finalized = level  # that the broker reports
        self.is_new = False  # it has the versions of level 2 before that is finalized
        self.features_epoch = 1
        self.known: dict[str, Known] = {}
        self.logs: dict[TopicPartition, list[Batch]] = {}
        self.offsets: dict[str, dict[TopicPartition, int]] = {}
        self.pending: dict[tuple[str, int], dict[TopicPartition, int]] = {}
        self.ends: list[bool] = []  # the results of the transactions that came to their end
        self.members: dict[str, tuple[int, str]] = {}  # generation and member of each group that has one
        self.faults: dict[type[Request], deque[Fault]] = {}  # of the next requests of a kind; None lets one through
        self._epochs: dict[tuple[TopicPartition, int], int] = {}
        self._next_id = 1000
        self.handlers: dict[type[Request], Callable[[Any], Response]] = {
            ApiVersionsRequest: self._versions,
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: self._coordinator,
            InitProducerIdRequest: self._init,
            adding.AddPartitionsToTxnRequest: self._add_partitions,
            adding_offsets.AddOffsetsToTxnRequest: self._add_offsets,
            committing.TxnOffsetCommitRequest: self._commit_offsets,
            EndTxnRequest: self._end,
            producing.ProduceRequest: self._produce,
        }
        network.refuse = self._answer

    def fail(self, kind: type[Request], *faults: Fault) -> None:
        self.faults.setdefault(kind, deque()).extend(faults)

    def of(self, kind: type[Request]) -> list[Any]:
        return self.network.of(kind)

    def committed(self) -> list[bytes]:
        """What readers of committed records see, in all partitions."""
        return sorted(value for log in self.logs.values() for batch in log if batch.outcome for value in batch.values)

    def stored(self) -> list[bytes]:
        """What is in the logs, whatever became of it."""
        return sorted(value for log in self.logs.values() for batch in log for value in batch.values)

    def _answer(self, request: Request) -> Response | Held | Lost | None:
        faults = self.faults.get(type(request))
        fault = faults.popleft() if faults else None
        if isinstance(fault, ErrorCode):
            return self._refused(request, fault)
        if isinstance(fault, Response):
            return fault
        answer = self._handle(request)
        if isinstance(fault, Again):
            asyncio.get_running_loop().call_later(fault.delay_ms / 1000, self._handle, request)
            return Lost()
        if isinstance(fault, Held):
            return Held(fault.delay_ms, instead=answer)
        return fault or answer

    def _handle(self, request: Request) -> Response:
        return self.handlers[type(request)](request)

    @staticmethod
    def _refused(request: Request, code: ErrorCode) -> Response:
        """The answer that has the code wherever there is room for one."""
        match request:
            case producing.ProduceRequest():
                parts = producing.PartitionProduceResponse
                return producing.ProduceResponse(
                    [
                        producing.TopicProduceResponse(t.name, t.topic_id, [parts(p.index, code, -1) for p in t.partition_data])
                        for t in request.topic_data
                    ]
                )
            case adding.AddPartitionsToTxnRequest():
                results = [
                    adding.AddPartitionsToTxnTopicResult(t.name, [adding.AddPartitionsToTxnPartitionResult(p, code) for p in t.partitions])
                    for t in request.v3_and_below_topics
                ]
                return adding.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
            case committing.TxnOffsetCommitRequest():
                part = committing.TxnOffsetCommitResponsePartition
                topics = [
                    committing.TxnOffsetCommitResponseTopic(t.name, [part(p.partition_index, code) for p in t.partitions])
                    for t in request.topics
                ]
                return committing.TxnOffsetCommitResponse(topics=topics)
            case adding_offsets.AddOffsetsToTxnRequest():
                return adding_offsets.AddOffsetsToTxnResponse(error_code=code)
            case InitProducerIdRequest():
                return InitProducerIdResponse(error_code=code)
            case EndTxnRequest():
                return EndTxnResponse(error_code=code)
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(coordinators=[Coordinator(request.key, -1, "", -1, code, None)], error_code=code)
        raise AssertionError(f"{type(request).__name__} is not refused in any test")

    # The cluster

    def _versions(self, request: ApiVersionsRequest) -> Response:
        keys = [
            ApiVersion(
                key, api.version_min, api.version_max if self.is_new or self.finalized >= 2 else LEVEL_1_VERSIONS.get(key, api.version_max)
            )
            for key, api in APIS.items()
        ]
        features = [FinalizedFeatureKey("transaction.version", self.finalized, self.finalized)]
        return ApiVersionsResponse(0, keys, finalized_features_epoch=self.features_epoch, finalized_features=features)

    def _metadata(self, request: MetadataRequest) -> Response:
        partitions = [MetadataResponsePartition(0, index, NODE, 0, [NODE], [NODE]) for index in range(PARTITION_COUNT)]
        topics = [MetadataResponseTopic(0, topic.name, TOPIC_ID, False, partitions) for topic in request.topics or []]
        return MetadataResponse(brokers=[MetadataResponseBroker(NODE, *self.address)], topics=topics)

    def _coordinator(self, request: FindCoordinatorRequest) -> Response:
        assert request.key_type == KEY_TYPE_GROUP or request.coordinator_keys
        return FindCoordinatorResponse(coordinators=[Coordinator(request.coordinator_keys[0], NODE, *self.address, 0, None)])

    # The coordinator

    def _init(self, request: InitProducerIdRequest) -> Response:
        assert request.transactional_id is not None
        known = self.known.get(request.transactional_id)
        if known is None:
            known = self.known[request.transactional_id] = Known(self._next_id, 0)
            self._next_id += 1
        elif request.producer_id >= 0:
            if request.producer_id != known.producer_id or request.producer_epoch not in (known.epoch, known.last_epoch):
                return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
            if request.producer_epoch == known.epoch:
                self._finish(known, is_commit=False, raises=True)
        else:
            self._finish(known, is_commit=False, raises=True)
            known.last_epoch = -1
        return InitProducerIdResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    def _check(self, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
        known = self.known.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if known.epoch == epoch else ErrorCode.PRODUCER_FENCED

    def _add_partitions(self, request: adding.AddPartitionsToTxnRequest) -> Response:
        code = self._check(request.v3_and_below_transactional_id, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        if not code:
            known = self.known[request.v3_and_below_transactional_id]
            known.is_open = True
            known.partitions |= {TopicPartition(t.name, index) for t in request.v3_and_below_topics for index in t.partitions}
        return self._refused(request, code)

    def _add_offsets(self, request: adding_offsets.AddOffsetsToTxnRequest) -> Response:
        code = self._check(request.transactional_id, request.producer_id, request.producer_epoch)
        if not code:
            known = self.known[request.transactional_id]
            known.is_open = True
            known.groups.add(request.group_id)
        return self._refused(request, code)

    def _end(self, request: EndTxnRequest) -> Response:
        code = self._check(request.transactional_id, request.producer_id, request.producer_epoch)
        known = self.known.get(request.transactional_id)
        if known is None or code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            return EndTxnResponse(error_code=code)
        if self.level >= 2 and request.producer_epoch == known.last_epoch and known.last_result is request.committed:
            return EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.epoch)
        if code:
            return EndTxnResponse(error_code=code)
        is_repeated = self.level < 2 and known.last_result is request.committed
        if not known.is_open and not is_repeated and (self.level < 2 or request.committed):
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        if known.is_open or self.level >= 2:
            self._finish(known, is_commit=request.committed, raises=self.level >= 2)
        return EndTxnResponse(producer_id=known.producer_id, producer_epoch=known.epoch)

    def finalize(self, level: int) -> None:
        """Who asks now gets another level."""
        self.finalized = level
        self.features_epoch += 1

    def time_out(self, transactional_id: str) -> None:
        """The coordinator aborts what is open."""
        known = self.known[transactional_id]
        self._finish(known, is_commit=False, raises=True)
        if self.level < 2:
            known.last_epoch = -1

    def _finish(self, known: Known, *, is_commit: bool, raises: bool) -> None:
        """The markers are written, and with ``raises`` nothing of the epoch is taken any more."""
        if known.is_open:
            self.ends.append(is_commit)
        known.last_result = is_commit
        if raises:
            known.last_epoch, known.epoch = known.epoch, known.epoch + 1
        for partition in known.partitions:
            self._epochs[partition, known.producer_id] = known.epoch
            for batch in self.logs.get(partition, []):
                if batch.producer_id == known.producer_id and batch.outcome is None:
                    batch.outcome = is_commit
        for group_id in known.groups:
            pending = self.pending.pop((group_id, known.producer_id), {})
            if is_commit:
                self.offsets.setdefault(group_id, {}).update(pending)
        known.is_open = False
        known.partitions.clear()
        known.groups.clear()

    # Partitions and groups

    def _produce(self, request: producing.ProduceRequest) -> Response:
        topics = []
        for topic in request.topic_data:
            answers = [self._append(request, TopicPartition("t", part.index), part.records) for part in topic.partition_data]
            topics.append(producing.TopicProduceResponse(topic.name, topic.topic_id, answers))
        return producing.ProduceResponse(topics)

    def _append(self, request: producing.ProduceRequest, partition: TopicPartition, data: Any) -> producing.PartitionProduceResponse:
        header = read_header(data)
        assert header.is_transactional
        assert request.transactional_id is not None
        producer_id, epoch = header.producer_id, header.producer_epoch
        log = self.logs.setdefault(partition, [])
        mine = [batch for batch in log if batch.producer_id == producer_id]
        same = [batch for batch in mine if (batch.epoch, batch.sequence) == (epoch, header.base_sequence)]
        if same:
            return producing.PartitionProduceResponse(partition.partition, 0, log.index(same[0]))
        of_epoch = [batch for batch in mine if batch.epoch == epoch]
        due = of_epoch[-1].sequence + len(of_epoch[-1].values) if of_epoch else 0
        known = self.known[request.transactional_id]
        code = ErrorCode.NONE
        if epoch < self._epochs.get((partition, producer_id), -1):
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        elif partition not in known.partitions or known.producer_id != producer_id:
            if self.level < 2:
                code = ErrorCode.INVALID_TXN_STATE
            elif not (code := self._check(request.transactional_id, producer_id, epoch)):
                known.is_open = True
                known.partitions.add(partition)
        if not code and header.base_sequence != due:
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if code:
            return producing.PartitionProduceResponse(partition.partition, code, -1)
        self._epochs[partition, producer_id] = epoch
        log.append(Batch(producer_id, epoch, header.base_sequence, [bytes(record.value or b"") for record in iterate_records(data)]))
        return producing.PartitionProduceResponse(partition.partition, 0, len(log) - 1)

    def _commit_offsets(self, request: committing.TxnOffsetCommitRequest) -> Response:
        generation, member = self.members.get(request.group_id, (-1, ""))
        code = self._check(request.transactional_id, request.producer_id, request.producer_epoch)
        if request.member_id and request.member_id != member:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        elif request.generation_id >= 0 and request.generation_id != generation:
            code = ErrorCode.ILLEGAL_GENERATION
        if not code:
            known = self.known[request.transactional_id]
            if self.level >= 2:
                known.is_open = True
                known.groups.add(request.group_id)
            offsets = {TopicPartition(t.name, p.partition_index): p.committed_offset for t in request.topics for p in t.partitions}
            self.pending.setdefault((request.group_id, request.producer_id), {}).update(offsets)
        return self._refused(request, code)
