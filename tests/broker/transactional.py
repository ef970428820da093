"""A transactional producer, request by request, at either level: what clients do, and what they must not do."""

from __future__ import annotations

from typing import Final, TypeVar

from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic
from ottla.messages.describe_transactions import DescribedTransactionState, DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse
from ottla.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.records.builder import BatchBuilder
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
KEY_GROUP: Final = 0
KEY_TRANSACTION: Final = 1
OLD_OFFSET_COMMIT: Final = 4
OLD_PRODUCE: Final = 11
OLD_END: Final = 4
PATIENCE_MS: Final = 30_000


class TransactionalProducer:
    """``level`` is 1 or 2. ``producer_id`` and ``epoch`` are those of the last answers; sequences go on by themselves."""

    def __init__(self, cluster: Cluster, transactional_id: str = "x", *, level: int = 2, timeout_ms: int = 60_000) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.level = level
        self.timeout_ms = timeout_ms
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[int, TopicPartition], int] = {}

    async def coordinator(self) -> int:
        request = FindCoordinatorRequest(key_type=KEY_TRANSACTION, coordinator_keys=[self.transactional_id])
        response = await self.cluster.ask(None, request, FindCoordinatorResponse)
        [found] = response.coordinators
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return found.node_id

    async def ask(self, request: Request, response: type[R], *, version_max: int | None = None, node_id: int | None = None) -> R:
        if not self.cluster.nodes:
            await self.cluster.refresh()
        connection = await self.cluster.connection(await self.coordinator() if node_id is None else node_id)
        return await connection.ask(request, response, timeout_ms=PATIENCE_MS, version_max=version_max)

    async def init(self, producer_id: int = -1, epoch: int = -1) -> int:
        request = InitProducerIdRequest(self.transactional_id, self.timeout_ms, producer_id, epoch)
        answer = await self.ask(request, InitProducerIdResponse)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    async def add(self, *keys: TopicPartition) -> int:
        """The first code of them."""
        topics = [AddPartitionsToTxnTopic(key.topic, [key.partition]) for key in keys]
        request = AddPartitionsToTxnRequest([], self.transactional_id, self.producer_id, self.epoch, topics)
        answer = await self.ask(request, AddPartitionsToTxnResponse, version_max=3)
        return next(iter(answer.results_by_topic_v3_and_below)).results_by_partition[0].partition_error_code

    async def send(self, key: TopicPartition, *values: bytes, epoch: int | None = None, sequence: int | None = None) -> int:
        """One batch, without adding its partition before."""
        epoch = self.epoch if epoch is None else epoch
        place = (epoch, key)
        first = self._sequences.get(place, 0) if sequence is None else sequence
        builder = BatchBuilder()
        for value in values:
            builder.append(None, value, timestamp_ms=1)
        batch = builder.build(producer_id=self.producer_id, producer_epoch=epoch, base_sequence=first, is_transactional=True)
        code = await self.produce(key, batch)
        if code == 0:
            self._sequences[place] = first + len(values)
        return code

    async def produce(self, key: TopicPartition, batch: bytearray, *, transactional_id: str | None = "") -> int:
        """Any batch, under this transactional id or another one."""
        [code] = await self.produce_together({key: batch}, transactional_id=transactional_id)
        return code

    async def produce_together(self, batches: dict[TopicPartition, bytearray], *, transactional_id: str | None = "") -> list[int]:
        """Batches of one request, which goes to the leader of the first one's partition; a code for each."""
        first = next(iter(batches))
        await self.cluster.refresh({key.topic for key in batches})
        leader = self.cluster.leader(first)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        topics = []
        for key, batch in batches.items():
            topic_id = (await self.cluster.topic(key.topic, deadline_ms=2**62)).topic_id
            topics.append(TopicProduceData(key.topic, topic_id, [PartitionProduceData(key.partition, memoryview(batch))]))
        request = ProduceRequest(self.transactional_id if transactional_id == "" else transactional_id, -1, 10_000, topics)
        version_max = OLD_PRODUCE if self.level < 2 else None
        answer = await self.ask(request, ProduceResponse, version_max=version_max, node_id=leader)
        return [topic.partition_responses[0].error_code for topic in answer.responses]

    async def write(self, key: TopicPartition, *values: bytes) -> int:
        """As a client of this level does it: the partition is added, and the batch sent."""
        if self.level < 2 and (code := await self.add(key)):
            return code
        return await self.send(key, *values)

    async def end(self, *, is_commit: bool, epoch: int | None = None) -> int:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch if epoch is None else epoch, is_commit)
        answer = await self.ask(request, EndTxnResponse, version_max=OLD_END if self.level < 2 else None)
        if answer.error_code == 0 and self.level >= 2:
            if (answer.producer_id, answer.producer_epoch) != (self.producer_id, self.epoch):
                self._sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code

    async def commit_offsets(
        self,
        group_id: str,
        offsets: dict[TopicPartition, int],
        *,
        generation_id: int = -1,
        member_id: str = "",
        epoch: int | None = None,
        adds: bool = True,
    ) -> int:
        """As a client of this level does it; the first code."""
        epoch = self.epoch if epoch is None else epoch
        if self.level < 2 and adds:
            added = await self.ask(
                AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, epoch, group_id), AddOffsetsToTxnResponse
            )
            if added.error_code:
                return added.error_code
        topics = [TxnOffsetCommitRequestTopic(key.topic, [_offset(key.partition, value)]) for key, value in offsets.items()]
        request = TxnOffsetCommitRequest(
            self.transactional_id, group_id, self.producer_id, epoch, generation_id, member_id, None, topics
        )  # fmt: skip
        version_max = OLD_OFFSET_COMMIT if self.level < 2 else None
        node_id = await self.coordinator_of_group(group_id)
        answer = await self.ask(request, TxnOffsetCommitResponse, version_max=version_max, node_id=node_id)
        return answer.topics[0].partitions[0].error_code

    async def coordinator_of_group(self, group_id: str) -> int:
        request = FindCoordinatorRequest(key_type=KEY_GROUP, coordinator_keys=[group_id])
        [found] = (await self.cluster.ask(None, request, FindCoordinatorResponse)).coordinators
        if found.error_code:
            raise KafkaError(ErrorCode(found.error_code))
        return found.node_id

    async def committed(self, group_id: str, key: TopicPartition, *, require_stable: bool = False) -> tuple[int, int]:
        """Offset and error code of the partition."""
        topic_id = (await self.cluster.topic(key.topic, deadline_ms=2**62)).topic_id
        wanted = OffsetFetchRequestTopics(key.topic, topic_id, [key.partition])
        groups = [OffsetFetchRequestGroup(group_id, topics=[wanted])]
        request = OffsetFetchRequest(groups=groups, require_stable=require_stable)
        answer = await self.ask(request, OffsetFetchResponse, node_id=await self.coordinator_of_group(group_id))
        found = answer.groups[0].topics[0].partitions[0]
        return found.committed_offset, found.error_code

    async def describe(self) -> DescribedTransactionState:
        answer = await self.ask(DescribeTransactionsRequest([self.transactional_id]), DescribeTransactionsResponse)
        [found] = answer.transaction_states
        return found

    async def mark(
        self, key: TopicPartition, *, is_commit: bool, epoch: int, coordinator_epoch: int = 0, transaction_version: int = 0
    ) -> int:
        """The end of a transaction, as a coordinator asks for it."""
        await self.cluster.refresh([key.topic])
        marker = WritableTxnMarker(
            self.producer_id, epoch, is_commit, [WritableTxnMarkerTopic(key.topic, [key.partition])], coordinator_epoch, transaction_version
        )
        answer = await self.ask(WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse, node_id=self.cluster.leader(key))
        return answer.markers[0].topics[0].partitions[0].error_code


def _offset(index: int, offset: int) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(index, offset, -1, "")
