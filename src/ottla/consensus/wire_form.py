"""The calls of ``calls`` as Kafka's messages, and back.

On the wire a request names a topic and a partition; here there is one log, ``__cluster_metadata-0``. A request about any other log is
refused before the machine sees it. Who leads where is said beside an answer (``node_endpoints``), which static voters do not need.
Source: KIP-595, 630, 853, 996, 1166.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.consensus import calls
from ottla.errors import DecodeError, ErrorCode
from ottla.messages import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, vote
from ottla.records.batch import iterate_batches
from ottla.types import CLUSTER_METADATA_TOPIC, NO_LEADER
from ottla.wire.schema import Request, Response

TOPIC_ID: Final = bytes(15) + b"\1"
"""The metadata log's topic id, the same in every cluster."""
_TOPIC: Final = CLUSTER_METADATA_TOPIC


def to_message(call: calls.Request) -> Request:
    """Returns the message that asks another replica."""
    match call:
        case calls.Vote():
            return _vote_message(call)
        case calls.BeginEpoch():
            begin = begin_quorum_epoch.PartitionData(0, call.voter_directory, call.leader_id, call.epoch)
            topics = [begin_quorum_epoch.TopicData(_TOPIC, [begin])]
            return begin_quorum_epoch.BeginQuorumEpochRequest(call.cluster_id, call.voter_id, topics)
        case calls.EndEpoch():
            candidates = [end_quorum_epoch.ReplicaInfo(node) for node in call.successors]
            end = end_quorum_epoch.PartitionData(0, call.leader_id, call.epoch, list(call.successors), candidates)
            return end_quorum_epoch.EndQuorumEpochRequest(call.cluster_id, [end_quorum_epoch.TopicData(_TOPIC, [end])])
        case calls.Fetch():
            return _fetch_message(call)
        case calls.FetchSnapshot():
            wanted = fetch_snapshot.SnapshotId(call.snapshot_id.end_offset, call.snapshot_id.epoch)
            piece = fetch_snapshot.PartitionSnapshot(0, call.epoch, wanted, call.position, call.replica_directory)
            topics_wanted = [fetch_snapshot.TopicSnapshot(_TOPIC, [piece])]
            return fetch_snapshot.FetchSnapshotRequest(call.cluster_id, call.replica_id, call.max_bytes, topics_wanted)


def _vote_message(call: calls.Vote) -> Request:
    data = vote.PartitionData(
        0, call.epoch, call.candidate_id, call.candidate_directory, call.voter_directory, call.last_epoch, call.end_offset, call.is_pre
    )
    return vote.VoteRequest(call.cluster_id, call.voter_id, [vote.TopicData(_TOPIC, [data])])


def _fetch_message(call: calls.Fetch) -> Request:
    partition = fetch.FetchPartition(
        partition=0,
        current_leader_epoch=call.epoch,
        fetch_offset=call.fetch_offset,
        last_fetched_epoch=call.last_epoch,
        partition_max_bytes=0,
        replica_directory_id=call.replica_directory,
        high_watermark=call.high_watermark,
    )
    return fetch.FetchRequest(
        cluster_id=call.cluster_id,
        replica_state=fetch.ReplicaState(call.replica_id, -1),
        max_wait_ms=call.max_wait_ms,
        max_bytes=call.max_bytes,
        topics=[fetch.FetchTopic(_TOPIC, TOPIC_ID, [partition])],
    )


def from_message(request: Request) -> calls.Request | None:
    """Returns what the replica asks; None when it is about another log than this one."""
    match request:
        case vote.VoteRequest():
            data = _only(request.topics)
            return data and calls.Vote(
                data.replica_epoch, data.replica_id, data.last_offset_epoch, data.last_offset, data.pre_vote, data.replica_directory_id,
                request.voter_id, data.voter_directory_id, request.cluster_id,
            )  # fmt: skip
        case begin_quorum_epoch.BeginQuorumEpochRequest():
            data = _only(request.topics)
            return data and calls.BeginEpoch(
                data.leader_epoch, data.leader_id, request.voter_id, data.voter_directory_id, request.cluster_id
            )
        case end_quorum_epoch.EndQuorumEpochRequest():
            data = _only(request.topics)
            if data is None:
                return None
            successors = [found.candidate_id for found in data.preferred_candidates] or data.preferred_successors
            return calls.EndEpoch(data.leader_epoch, data.leader_id, tuple(successors), request.cluster_id)
        case fetch.FetchRequest():
            return _fetch_call(request)
        case fetch_snapshot.FetchSnapshotRequest():
            piece = _only(request.topics, "name", "partition")
            return piece and calls.FetchSnapshot(
                piece.current_leader_epoch, request.replica_id, calls.SnapshotId(piece.snapshot_id.epoch, piece.snapshot_id.end_offset),
                piece.position, request.max_bytes, piece.replica_directory_id, request.cluster_id,
            )  # fmt: skip
    raise AssertionError(f"{type(request).__name__} is not asked of a quorum")


def _fetch_call(request: fetch.FetchRequest) -> calls.Fetch | None:
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    topic, partition = request.topics[0], request.topics[0].partitions[0]
    if (topic.topic and topic.topic != _TOPIC) or (not topic.topic and topic.topic_id != TOPIC_ID) or partition.partition != 0:
        return None
    return calls.Fetch(
        epoch=partition.current_leader_epoch,
        replica_id=request.replica_id if request.replica_state is None else request.replica_state.replica_id,
        fetch_offset=partition.fetch_offset,
        last_epoch=partition.last_fetched_epoch,
        high_watermark=partition.high_watermark,
        max_wait_ms=request.max_wait_ms,
        max_bytes=request.max_bytes,
        replica_directory=partition.replica_directory_id,
        cluster_id=request.cluster_id,
    )


def _only(topics: list[Any], name: str = "topic_name", index: str = "partition_index") -> Any:
    """Returns the one partition that is meant; None when it is not that of the metadata log."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    return partition if getattr(topics[0], name) == _TOPIC and getattr(partition, index) == 0 else None


def to_answer_message(answer: calls.Answer) -> Response:
    """Returns the message that answers. A wrong cluster id is an error of the whole request."""
    is_whole = answer.error == ErrorCode.INCONSISTENT_CLUSTER_ID
    error, whole = (0, answer.error) if is_whole else (answer.error, 0)
    match answer:
        case calls.VoteAnswer():
            found = vote.PartitionVote(0, error, answer.leader_id, answer.epoch, answer.is_granted)
            return vote.VoteResponse(whole, [] if is_whole else [vote.TopicVote(_TOPIC, [found])])
        case calls.BeginEpochAnswer():
            begun = begin_quorum_epoch.PartitionEpoch(0, error, answer.leader_id, answer.epoch)
            return begin_quorum_epoch.BeginQuorumEpochResponse(whole, [] if is_whole else [begin_quorum_epoch.TopicEpoch(_TOPIC, [begun])])
        case calls.EndEpochAnswer():
            ended = begin_quorum_epoch.PartitionEpoch(0, error, answer.leader_id, answer.epoch)
            return end_quorum_epoch.EndQuorumEpochResponse(whole, [] if is_whole else [begin_quorum_epoch.TopicEpoch(_TOPIC, [ended])])
        case calls.FetchAnswer():
            return fetch.FetchResponse(error_code=whole, responses=[] if is_whole else [_fetched(answer, error)])
        case calls.FetchSnapshotAnswer():
            known = answer.snapshot_id or calls.SnapshotId(-1, -1)
            piece = fetch_snapshot.PartitionPiece(
                0, error, fetch_snapshot.SnapshotId(known.end_offset, known.epoch),
                fetch_snapshot.LeaderIdAndEpoch(answer.leader_id, answer.epoch), answer.size, answer.position, answer.data,
            )  # fmt: skip
            return fetch_snapshot.FetchSnapshotResponse(
                error_code=whole, topics=[] if is_whole else [fetch_snapshot.TopicPiece(_TOPIC, [piece])]
            )
    raise AssertionError(f"{type(answer).__name__} is no answer of a quorum")


def _fetched(answer: calls.FetchAnswer, error: int) -> fetch.FetchableTopicResponse:
    diverging, snapshot = answer.diverging, answer.snapshot_id
    data = fetch.PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=answer.high_watermark,
        last_stable_offset=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        diverging_epoch=None if diverging is None else fetch.EpochEndOffset(diverging.epoch, diverging.end_offset),
        current_leader=fetch.LeaderIdAndEpoch(answer.leader_id, answer.epoch),
        snapshot_id=None if snapshot is None else fetch.SnapshotId(snapshot.end_offset, snapshot.epoch),
        aborted_transactions=None,
        records=answer.records or b"",
    )
    return fetch.FetchableTopicResponse(_TOPIC, TOPIC_ID, [data])


_NOTHING: Final[Mapping[type[Response], calls.Answer]] = {
    vote.VoteResponse: calls.VoteAnswer(),
    begin_quorum_epoch.BeginQuorumEpochResponse: calls.BeginEpochAnswer(),
    end_quorum_epoch.EndQuorumEpochResponse: calls.EndEpochAnswer(),
    fetch.FetchResponse: calls.FetchAnswer(),
    fetch_snapshot.FetchSnapshotResponse: calls.FetchSnapshotAnswer(),
}


def from_answer_message(response: Any) -> calls.Answer:
    """Returns what the replica answers. DecodeError for an answer about another log, and for fetched bytes that are no batches."""
    if response.error_code:
        return type(_NOTHING[type(response)])(error=response.error_code)
    topics = response.responses if isinstance(response, fetch.FetchResponse) else response.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise DecodeError(f"a {type(response).__name__} of the quorum is about one log")
    data: Any = topics[0].partitions[0]
    match response:
        case vote.VoteResponse():
            return calls.VoteAnswer(data.error_code, data.leader_epoch, data.leader_id, data.vote_granted)
        case begin_quorum_epoch.BeginQuorumEpochResponse():
            return calls.BeginEpochAnswer(data.error_code, data.leader_epoch, data.leader_id)
        case end_quorum_epoch.EndQuorumEpochResponse():
            return calls.EndEpochAnswer(data.error_code, data.leader_epoch, data.leader_id)
    leader = data.current_leader
    epoch, leader_id = (-1, NO_LEADER) if leader is None else (leader.leader_epoch, leader.leader_id)
    if isinstance(response, fetch_snapshot.FetchSnapshotResponse):
        snapshot = calls.SnapshotId(data.snapshot_id.epoch, data.snapshot_id.end_offset)
        return calls.FetchSnapshotAnswer(
            data.error_code, epoch, leader_id, snapshot, data.size, data.position, bytes(data.unaligned_records or b"")
        )
    records = bytes(data.records or b"")
    spans = tuple(
        calls.Span(header.leader_epoch, header.base_offset, header.last_offset + 1)
        for _, header in iterate_batches(records, check_crc=True)
    )
    diverging, wanted = data.diverging_epoch, data.snapshot_id
    has_parted = diverging is not None and diverging.epoch >= 0
    return calls.FetchAnswer(
        data.error_code, epoch, leader_id, data.high_watermark, data.log_start_offset,
        calls.EpochEnd(diverging.epoch, diverging.end_offset) if has_parted else None,
        None if wanted is None or wanted.end_offset < 0 else calls.SnapshotId(wanted.epoch, wanted.end_offset), spans, records,
    )  # fmt: skip
