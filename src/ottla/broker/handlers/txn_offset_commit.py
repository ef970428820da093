"""TxnOffsetCommit, versions 0-5: how far a group has read, as part of a producer's transaction; one result each partition (KIP-98).

v3 names the member and its generation, which are checked (KIP-447). v5 adds the group's partition of ``__consumer_offsets`` to the
transaction; before, AddOffsetsToTxn has done that, and it is verified (KIP-890). That comes first: the group is in the transaction of a
member that is refused, too. The offsets are in the log before the answer leaves, and count when the transaction is committed.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.coordinators.transaction_codes import code_for
from ottla.broker.parts import Parts
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.service import Asks, service
from ottla.broker.tasks.slices import Slices
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import CommitInTransaction, OffsetToCommit
from ottla.machine import Writer
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.storage.producers import NotPermitted, ProducerStates

ADDS_SINCE: Final = 5
ROUNDS_MAX: Final = 10
_NOT_NOW: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,  # this broker's rights, which are no matter of the client's
    }
)


async def handle(parts: Parts, context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    response = TxnOffsetCommitResponse()
    offsets: list[OffsetToCommit] = []
    results: list[TxnOffsetCommitResponsePartition] = []  # of ``offsets``, in the same order
    slices = Slices(parts.world.clock)
    denied = _denied(context, request)
    async for topic in slices.over(request.topics):
        image = parts.image.topics.get(topic.name)
        refusal = denied
        if not denied and not context.may(Operation.READ, ResourceType.TOPIC, topic.name):
            refusal = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answers = TxnOffsetCommitResponseTopic(topic.name)
        response.topics.append(answers)
        async for found in slices.over(topic.partitions):
            result = TxnOffsetCommitResponsePartition(found.partition_index)
            answers.partitions.append(result)
            if refusal:
                result.error_code = refusal
            elif image is None or found.partition_index not in image.partitions:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                metadata = found.committed_metadata or ""
                offsets.append(
                    OffsetToCommit(
                        topic.name, found.partition_index, found.committed_offset, found.committed_leader_epoch, metadata, image.topic_id
                    )
                )
                results.append(result)
    if denied:
        return response
    try:
        codes = await _commit(parts, context, request, tuple(offsets))
    except KafkaError as error:
        codes = (error.code,) * len(results)
    said = {code: code_for("TxnOffsetCommit", context.version, code) for code in set(codes)}
    async for result, code in slices.over(zip(results, codes, strict=True)):
        result.error_code = said[code]
    return response


def _denied(context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Returns why nothing of the request may be done, or NONE."""
    if not context.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def _commit(
    parts: Parts, context: RequestContext, request: TxnOffsetCommitRequest, offsets: tuple[OffsetToCommit, ...]
) -> tuple[int, ...]:
    """Commits. Returns one code for each offset; KafkaError with the code of all of them."""
    group_id = request.group_id
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if not parts.groups.fits_batch(group_id, len(offsets)):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    if not offsets:
        return ()

    async def ask(writer: Writer) -> tuple[int, ...]:
        def command(token: int) -> CommitInTransaction:
            return CommitInTransaction(
                token, group_id, request.generation_id, request.member_id, request.group_instance_id, offsets, writer
            )  # fmt: skip

        return (await parts.groups.ask(group_id, command)).error_codes

    for _ in range(ROUNDS_MAX):
        producers = parts.groups.shard_of(group_id).partition.log.producers
        count = producers.marker_count(request.producer_id)
        await _permit(parts, context, request, producers)
        try:
            return await ask(Writer(request.producer_id, request.producer_epoch, count))
        except KafkaError as error:
            if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
    raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "one transaction after the other has ended meanwhile")


async def _permit(parts: Parts, context: RequestContext, request: TxnOffsetCommitRequest, producers: ProducerStates) -> None:
    """Checks that the group's partition is in the producer's transaction; KafkaError otherwise."""
    adds = context.version >= ADDS_SINCE
    if not adds and not parts.config["transaction.partition.verification.enable"]:
        return
    try:
        producers.check_is_part(request.producer_id, request.producer_epoch, 0, begins_at_zero=False)
    except NotPermitted:
        key = parts.groups.partition_for(request.group_id)
        asked = request.transactional_id, request.producer_id, request.producer_epoch
        code = (await parts.permits.permit(*asked, [key], adds=adds))[key]
        if code in _NOT_NOW:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the transaction coordinator is not ready") from None
        if code == ErrorCode.PRODUCER_FENCED:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH) from None
        if code:
            raise KafkaError(ErrorCode(code)) from None


SERVICE = service(TxnOffsetCommitRequest, handle, needs=Asks.HANDLER)
