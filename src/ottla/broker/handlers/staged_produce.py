"""A produce request on its way: what has its offsets, what a worker examines first, what came early, and when it is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import msgspec

from ottla.broker.fetching.leader_hints import hint_of
from ottla.broker.parts import Parts
from ottla.broker.replicas.partition import Partition
from ottla.broker.requests.context import Channel, RequestContext
from ottla.broker.requests.produce_burst import Flushable
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
)
from ottla.storage.producers import NotPermitted, ProducerStates
from ottla.types import NO_EPOCH

Permission = tuple[int, int]
"""The leader epoch in which the transaction coordinator was asked, and how many markers of the producer there were."""


class Held(msgspec.Struct, gc=False):
    """A batch that waits for something before it is staged, with its partition and what will be answered. ``batch`` is a copy."""

    partition: Partition
    batch: bytes | memoryview
    result: PartitionProduceResponse
    producer_epoch: int = NO_EPOCH
    is_prepared: bool = False  # a worker has examined it
    permission: Permission | None = None


class StagedProduce(msgspec.Struct, eq=False):
    """A request whose batches have their offsets and wait for the write, but for those that a worker examines first."""

    parts: Parts
    context: RequestContext
    response: ProduceResponse
    acks: int
    timeout_ms: int
    transactional_id: str | None
    producer_id: int = -1
    """The id of the transactional batches' producer: a request has one such producer at most."""
    staged: list[tuple[Partition, int, PartitionProduceResponse]] = []
    """The partitions, the ``drop_count`` of each one's log when its batch was staged, and what will be answered."""
    heavy: list[Held] = []
    """What a worker examines first."""
    unpermitted: list[Held] = []
    """What the transaction coordinator is asked about first."""
    waits: list[tuple[ProducerStates, NotPermitted]] = []
    """These batches, in their partitions."""
    late: list[tuple[TopicProduceData, PartitionProduceData, PartitionProduceResponse]] = []
    """What came before this broker leads its partition, and is held for that; its records are copies."""
    may_be_late: bool = True
    first_written: asyncio.Future[None] | None = None
    """What was staged at once is in its logs, or is not: before that nothing more may be staged, or it would count as written, too."""
    commit: AwaitedCommit | None = None
    wait_count: int = 1
    """How many things happen before the answer."""

    @property
    def connection(self) -> Channel:
        return self.context.connection

    def ask_first(self, held: Held, asked: NotPermitted) -> None:
        """Has the transaction coordinator asked about the batch; no later one overtakes it in its partition."""
        self.unpermitted.append(held)
        self.waits.append((held.partition.log.producers, asked))
        held.partition.log.producers.wait(asked)

    def all_were_asked(self) -> None:
        """Notes that each batch was appended or refused."""
        for producers, asked in self.waits:
            producers.waits_no_longer(asked)
        self.waits.clear()

    def wait_once_more(self) -> None:
        """Delays the answer until one more call of ``finish``."""
        self.wait_count += 1

    def finish(self, failed: Collection[Flushable]) -> None:
        """Answers, the last time; what was staged for a log that failed, or that dropped it since, is not acknowledged."""
        for partition, drop_count, result in self.staged:
            if partition.log.tail.drop_count != drop_count or (failed and partition in failed):
                self._unwritten(partition, drop_count, result)
            elif self.acks == -1 and partition.leading is not None:
                self._wait_for_commit(partition, result)
        if self.first_written is not None and not self.first_written.done():
            self.first_written.set_result(None)
        if self.wait_count > 1:
            self.staged.clear()
            self.wait_count -= 1
        else:
            self.wait_count = 0
            answer(self.context, self.acks, self.response)

    def finish_one(self) -> None:
        """Notes that one of the things has happened for which the answer waits."""
        self.wait_count -= 1
        if self.wait_count == 0:
            answer(self.context, self.acks, self.response)

    def settle(self, failed: Collection[Flushable]) -> None:
        """Finishes as ``finish`` does, what is staged so far; there is more to come before the answer."""
        self.wait_count += 1
        self.finish(failed)

    def _unwritten(self, partition: Partition, drop_count: int, result: PartitionProduceResponse) -> None:
        error = partition.unwritten(drop_count)
        if partition.log.health.is_retired and partition.topic_id not in self.parts.image.topic_names:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.message)
        self.refuse(partition.topic, result, error)

    def _wait_for_commit(self, partition: Partition, result: PartitionProduceResponse) -> None:
        """Delays the answer until the partition's records are committed. What else was flushed with them is waited for, too."""
        if self.commit is None or self.commit.is_done:
            self.commit = AwaitedCommit(self)
            self.wait_count += 1
        self.commit.pending[result.index, partition.topic] = result
        partition.wait_for_commit(partition.log.log_end_offset, self.commit, (partition.topic, result))

    def refuse(self, topic: str, result: PartitionProduceResponse, error: KafkaError) -> None:
        """Refuses the partition's batch; the client learns why, and where to go (KIP-951)."""
        refuse(result, error)
        self.context.meters.count_error(error.code)
        meters = self.parts.partitions.meters.get(topic)  # none for a topic of other brokers, or one that no broker has
        if meters is not None:
            meters.failed_produce_requests += 1
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            hint = hint_of(self.parts, self.context, topic, result.index)
            if hint is not None:
                result.current_leader = LeaderIdAndEpoch(hint.leader, hint.leader_epoch)
                if hint.endpoint is not None and hint.endpoint[0] not in {node.node_id for node in self.response.node_endpoints}:
                    self.response.node_endpoints.append(NodeEndpoint(*hint.endpoint))


class AwaitedCommit:
    """A request with acks=all whose records are in the log, until they are committed, or its time has passed."""

    __slots__ = ("_staged", "is_done", "pending")

    def __init__(self, staged: StagedProduce) -> None:
        self._staged = staged
        self.pending: dict[tuple[int, str], PartitionProduceResponse] = {}
        self.is_done = False
        staged.parts.parking.park(self, max(0, staged.timeout_ms))
        staged.connection.parked[self] = None

    def on_commit(self, what: tuple[str, PartitionProduceResponse], error: KafkaError | None) -> None:
        topic, result = what
        if self.pending.pop((result.index, topic), None) is None:
            return
        if error is not None:
            self._staged.refuse(topic, result, error)
        if not self.pending:
            self._leave()
            self._staged.finish_one()

    def expire(self) -> None:
        """Answers with a timeout: the records are in the log, and may be committed later."""
        self._leave()
        for (_, topic), result in self.pending.items():
            self._staged.refuse(topic, result, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the records are not yet on all replicas in sync"))
        self.pending.clear()
        self._staged.finish_one()

    def abandon(self) -> None:
        """Abandons the request, for the client is gone: no answer is sent."""
        self._leave()
        self.pending.clear()

    def _leave(self) -> None:
        self.is_done = True
        self._staged.connection.parked.pop(self, None)
        self._staged.parts.parking.unpark()


def answer(context: RequestContext, acks: int, response: ProduceResponse) -> None:
    if acks:
        context.reply(response)
        return
    context.reply_nothing(response)
    if any(partition.error_code for topic in response.responses for partition in topic.partition_responses):
        context.connection.transport.close()


def refuse(result: PartitionProduceResponse, error: KafkaError) -> None:
    """Refuses the partition's batch."""
    result.error_code = error.code
    result.error_message = error.message or None
    result.base_offset = -1
    result.log_append_time_ms = -1
    result.log_start_offset = -1
