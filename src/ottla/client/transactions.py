"""The transactions of one producer: what is asked of their coordinator, and when.

Requests to the coordinator go one after the other over one connection. At level 1 a partition is added before its first batch goes
out; at level 2, which a transaction has when the cluster has finalized it and all brokers' versions allow it, the leader adds it. EndTxn
leaves when every batch is acknowledged, or, before an abort, when none is left in flight. A request whose answer was lost is asked
again; at level 1 it may then arrive a second time, late, so the next transaction begins with a new epoch.

Source: KIP-98, KIP-360 (new epochs), KIP-447 (generations), KIP-890 (level 2).
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn, Protocol

from ottla.client.background import background
from ottla.client.call_limit import ended_by, waiting_for
from ottla.client.cluster import Cluster
from ottla.client.enlistment import Enlistment
from ottla.client.failures import as_kafka_error
from ottla.client.group_metadata import GroupMetadata, OffsetAndMetadata, Offsets, places_of
from ottla.client.positions import P
from ottla.client.transaction_errors import CommitOutcomeUnknownError, TransactionAbortableError, of_addition, of_decision
from ottla.client.transaction_requests import TransactionRequests
from ottla.client.transaction_states import Call, Event, State
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, AddPartitionsToTxnTopic
from ottla.messages.api_keys import ApiKey
from ottla.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.messages.registry import APIS
from ottla.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ottla.types import TopicPartition

FEATURE: Final = "transaction.version"
ADD_PARTITIONS_OF_CLIENTS: Final = 3
LEVEL_2_VERSIONS: Final = {ApiKey.PRODUCE: 12, ApiKey.TXN_OFFSET_COMMIT: 5, ApiKey.END_TXN: 5}
GENERATIONS_SINCE: Final = 3


def _code(response: InitProducerIdResponse | AddOffsetsToTxnResponse | EndTxnResponse) -> int:
    return response.error_code


class Outbox(Protocol):
    """The sender, as transactions see it."""

    def wake(self) -> None:
        """Sends batches that may now be sent."""

    async def flush(self) -> None:
        """Waits until every batch that was started before the call is acknowledged or has failed."""

    def drop_unsent(self, reason: KafkaError) -> None:
        """Fails batches that are not in flight."""

    async def landed(self) -> None:
        """Waits until no batch is in flight."""

    def take_identity(self, producer_id: int) -> None:
        """Numbers batches from zero again, under this id."""


class Transactions:
    def __init__(self, cluster: Cluster, enlistment: Enlistment, outbox: Outbox, *, timeout_ms: int, max_block_ms: int) -> None:
        self._cluster = cluster
        self._enlistment = enlistment
        self._states = enlistment.states
        self._outbox = outbox
        self._timeout_ms = timeout_ms
        self._max_block_ms = max_block_ms
        self._requests = TransactionRequests(cluster, enlistment, max_block_ms=max_block_ms)
        self._offsets_turn = asyncio.Lock()  # of a call of send_offsets, which the end of the transaction waits for
        self._adding: asyncio.Task[None] | None = None
        enlistment.on_wanted = self._begin_to_add

    async def init(self) -> None:
        """Gets a producer id and epoch; fences earlier producers of the transactional id, and ends what they left open."""
        self._states.call(Call.INIT)
        try:
            await self._take_epoch(self._requests.deadline_ms())
        except BaseException:
            self._states.on(Event.NOT_INITIALIZED)
            raise
        self._states.on(Event.INITIALIZED)

    async def begin(self) -> None:
        """Opens a transaction. The coordinator learns of it with its first partition, or is asked for a new epoch now."""
        self._states.call(Call.BEGIN)
        try:
            deadline_ms = self._requests.deadline_ms()
            level = await self._level(deadline_ms)
            if self._enlistment.needs_epoch or (level >= 2 and self._enlistment.ended_at_level_1):
                await self._take_epoch(deadline_ms)
        except BaseException:
            self._states.on(Event.NOT_BEGUN)
            raise
        self._enlistment.begin(level)
        self._states.on(Event.BEGUN)

    async def send_offsets(self, offsets: Offsets[P], group: GroupMetadata) -> None:
        """Adds the group's offsets, committed with the transaction. TransactionAbortableError when the group does not take them."""
        places = places_of(offsets)
        if not isinstance(group, GroupMetadata):
            raise TypeError(f"the second argument is the consumer's group_metadata(), and not {group!r}")
        self._states.check(Call.SEND_OFFSETS)
        async with self._offsets_turn:
            deadline_ms = self._requests.deadline_ms()
            self._states.call(Call.SEND_OFFSETS)
            if not places:
                return
            self._enlistment.was_asked = True
            try:
                if self._enlistment.level < 2:
                    await self._add_offsets(group.group_id, deadline_ms)
                await self._commit_offsets(places, group, deadline_ms)
            except KafkaError as error:
                self._states.fail(of_addition(error))
                self._states.raise_problem()
                raise
            except BaseException:
                text = "send_offsets_to_transaction was cancelled"
                self._states.fail(TransactionAbortableError(ErrorCode.REQUEST_TIMED_OUT, text))
                raise
            self._enlistment.is_confirmed = True

    async def commit(self) -> None:
        """Commits every record and every offset of the transaction.

        TransactionAbortableError when one of them failed, and none counts then; CommitOutcomeUnknownError when no answer came in time.
        """
        self._states.call(Call.COMMIT)
        if self._states.state is State.COMMITTING:
            try:
                async with self._offsets_turn:
                    await self._outbox.flush()
            except BaseException:
                self._states.on(Event.CALLED_OFF)
                raise
            self._states.raise_problem()
        if self._enlistment.was_asked:
            await self._end(self._requests.deadline_ms(), is_commit=True)
        self._states.on(Event.ENDED)

    async def abort(self) -> None:
        """Aborts the transaction; batches that were not sent never are. Call it again when it raises that its time is over."""
        self._states.call(Call.ABORT)
        deadline_ms = self._requests.deadline_ms()
        try:
            self._outbox.drop_unsent(self._enlistment.why_dropped())
            async with ended_by(self._max_block_ms, f"abort_transaction has not ended in max_block_ms={self._max_block_ms}"):
                with waiting_for("what was sent before"):
                    async with self._offsets_turn:
                        await self._outbox.landed()
            self._outbox.drop_unsent(self._enlistment.why_dropped())
            if self._enlistment.was_asked:
                await self._end(deadline_ms, is_commit=False)
        except BaseException:
            if self._states.state is State.ABORTING:
                self._states.on(Event.UNANSWERED)
            raise
        self._states.raise_problem()
        self._states.on(Event.ENDED)

    async def close(self) -> None:
        """Aborts an open transaction, where the coordinator answers; nothing runs from now on."""
        try:
            if self._states.state in (State.IN_TRANSACTION, State.ABORTABLE):
                await self.abort()
        except KafkaError:
            pass  # the coordinator ends it when its time is over
        finally:
            if self._adding is not None:
                self._adding.cancel()
                await asyncio.gather(self._adding, return_exceptions=True)

    # The producer's epoch, and the transaction's level

    async def _take_epoch(self, deadline_ms: int) -> None:
        enlistment = self._enlistment
        request = InitProducerIdRequest(enlistment.transactional_id, self._timeout_ms, enlistment.producer_id, enlistment.producer_epoch)
        try:
            response = await self._requests.ask_until_answered(request, InitProducerIdResponse, _code, deadline_ms)
            if response.error_code:
                text = f"transactional id {enlistment.transactional_id!r}"
                if response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                    text += f": transaction_timeout_ms={self._timeout_ms} exceeds the brokers' transaction.max.timeout.ms"
                raise KafkaError(response.error_code, text)
        except KafkaError as error:
            self._fail(error)
        self._take_identity(response.producer_id, response.producer_epoch)

    def _take_identity(self, producer_id: int, producer_epoch: int) -> None:
        self._enlistment.producer_id, self._enlistment.producer_epoch = producer_id, producer_epoch
        self._enlistment.needs_epoch = self._enlistment.ended_at_level_1 = False
        self._outbox.take_identity(producer_id)

    async def _level(self, deadline_ms: int) -> int:
        """Returns 2 when the cluster has finalized it, and the coordinator's versions are new enough."""
        try:
            connection = await self._requests.connection(deadline_ms)
            await self._cluster.renew_features(connection)
        except KafkaError as error:
            self._fail(error)
        if self._cluster.finalized_level(FEATURE) < 2:
            return 1
        return 2 if all(connection.version_of(APIS[key]) >= version for key, version in LEVEL_2_VERSIONS.items()) else 1

    # What belongs to the transaction

    def _begin_to_add(self) -> None:
        if self._adding is None:
            self._adding = background(self._add_partitions(), name="ottla-add-partitions")

    async def _add_partitions(self) -> None:
        """Adds the partitions that are wanted, or fails the transaction. It lets no Exception out."""
        enlistment, attempt = self._enlistment, 0
        try:
            while enlistment.wanted and self._states.takes_batches:
                problem = await self._add_wanted()
                if problem is None:
                    attempt = 0
                    self._outbox.wake()
                    continue
                if not problem.is_transient:
                    raise problem
                await self._requests.pause(attempt)
                attempt += 1
        except Exception as error:  # noqa: BLE001 - the task's edge: the transaction fails with it
            self._states.fail(of_addition(as_kafka_error(error)))
            self._outbox.wake()
        finally:
            self._adding = None

    async def _add_wanted(self) -> KafkaError | None:
        """Makes one request; None when the coordinator has all of its partitions, else why it does not."""
        enlistment = self._enlistment
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for partition in sorted(enlistment.wanted):
            topics.setdefault(partition.topic, AddPartitionsToTxnTopic(partition.topic)).partitions.append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=enlistment.transactional_id,
            v3_and_below_producer_id=enlistment.producer_id,
            v3_and_below_producer_epoch=enlistment.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        enlistment.was_asked = True
        try:
            response = await self._requests.ask(request, AddPartitionsToTxnResponse, version_max=ADD_PARTITIONS_OF_CLIENTS)
        except KafkaError as error:
            return error
        problem: KafkaError | None = None
        for topic in response.results_by_topic_v3_and_below:
            for result in topic.results_by_partition:
                key, code = TopicPartition(topic.name, result.partition_index), result.partition_error_code
                if not code:
                    enlistment.added.add(key)
                    enlistment.wanted.discard(key)
                    enlistment.is_confirmed = True
                elif problem is None or problem.code == ErrorCode.OPERATION_NOT_ATTEMPTED:
                    problem = KafkaError(code, f"{key} cannot be part of the transaction")
        if problem is not None:
            self._requests.coordinator.on_error(problem.code)
        return problem

    async def _add_offsets(self, group_id: str, deadline_ms: int) -> None:
        enlistment = self._enlistment
        request = AddOffsetsToTxnRequest(enlistment.transactional_id, enlistment.producer_id, enlistment.producer_epoch, group_id)
        response = await self._requests.ask_until_answered(request, AddOffsetsToTxnResponse, _code, deadline_ms)
        if response.error_code:
            raise KafkaError(response.error_code, f"offsets of group {group_id!r} cannot be part of the transaction")
        enlistment.is_confirmed = True

    async def _commit_offsets(self, places: dict[TopicPartition, OffsetAndMetadata], group: GroupMetadata, deadline_ms: int) -> None:
        enlistment = self._enlistment
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for partition, place in places.items():
            topic = topics.setdefault(partition.topic, TxnOffsetCommitRequestTopic(partition.topic))
            topic.partitions.append(TxnOffsetCommitRequestPartition(partition.partition, place.offset, -1, place.metadata))
        request = TxnOffsetCommitRequest(
            enlistment.transactional_id,
            group.group_id,
            enlistment.producer_id,
            enlistment.producer_epoch,
            group.generation_id,
            group.member_id,
            group.group_instance_id,
            list(topics.values()),
        )
        version = LEVEL_2_VERSIONS[ApiKey.TXN_OFFSET_COMMIT]
        response = await self._requests.ask_until_answered(
            request,
            TxnOffsetCommitResponse,
            lambda response: next((found.error_code for topic in response.topics for found in topic.partitions if found.error_code), 0),
            deadline_ms,
            group_id=group.group_id,
            version_max=version if enlistment.level >= 2 else version - 1,
            version_min=GENERATIONS_SINCE if group.member_id or group.generation_id >= 0 else 0,
        )
        for answer in response.topics:
            for result in answer.partitions:
                if result.error_code:
                    text = f"offset of {answer.name}-{result.partition_index} of group {group.group_id!r}"
                    raise KafkaError(result.error_code, text)

    # The end

    async def _end(self, deadline_ms: int, *, is_commit: bool) -> None:
        """Asks the coordinator to end the transaction. Raises what that leaves the application to do."""
        enlistment = self._enlistment
        request = EndTxnRequest(enlistment.transactional_id, enlistment.producer_id, enlistment.producer_epoch, is_commit)
        version = LEVEL_2_VERSIONS[ApiKey.END_TXN]
        try:
            response = await self._requests.ask_until_answered(
                request,
                EndTxnResponse,
                _code,
                deadline_ms,
                version_max=version if enlistment.level >= 2 else version - 1,
                on_lost=(lambda: self._states.on(Event.LOST)) if is_commit else (lambda: None),
            )
        except KafkaError as error:
            if not error.is_transient:
                self._fail(error)
            self._states.on(Event.UNANSWERED)
            if is_commit:
                text = f"the commit was not answered in {self._max_block_ms} ms: {error.message}"
                raise CommitOutcomeUnknownError(error.code, text) from error
            raise
        except BaseException:
            self._states.on(Event.UNANSWERED)
            raise
        code = response.error_code
        if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING and not is_commit:
            await self._take_epoch(deadline_ms)  # the coordinator has forgotten the id, and the transaction with it
        elif code == ErrorCode.INVALID_TXN_STATE and not is_commit and not enlistment.is_confirmed:
            pass  # nothing of the transaction came to the coordinator: there is nothing to abort
        elif code:
            self._fail(KafkaError(code, f"the end of the transaction of {enlistment.transactional_id!r}"))
        elif response.producer_id >= 0:
            self._take_identity(response.producer_id, response.producer_epoch)
        elif enlistment.level < 2:
            enlistment.ended_at_level_1 = True
        else:
            enlistment.needs_epoch = True  # the coordinator has moved to a broker that is older, and ends transactions as at level 1

    def _fail(self, error: KafkaError) -> NoReturn:
        """Raises what became of a decision: what may pass as it is, with the state as it was; else the state is that of the problem."""
        if error.is_transient:
            raise error
        problem = of_decision(error)
        self._states.fail(problem)
        self._states.raise_problem()
        raise problem
