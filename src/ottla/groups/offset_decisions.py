"""Decisions about the committed offsets of groups, of either kind: who may commit, what is answered, what is deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.errors import ErrorCode
from ottla.groups.classic.drafts import GroupChanged, session_timer
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.members import CONSUMER_PROTOCOL_TYPE
from ottla.groups.commands import (
    NO_GENERATION,
    CommitInTransaction,
    CommitOffsets,
    CommitResult,
    DeleteOffsets,
    DeleteOffsetsResult,
    DeleteResult,
    DeleteTopicOffsets,
    EndTransaction,
    FetchOffsets,
    FetchResult,
)
from ottla.groups.confirmations import CONFIRMATION
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.offsets import CommittedOffsets, commit_record
from ottla.groups.records import fits_record
from ottla.groups.settings import GroupSettings
from ottla.machine import Decision, Timer

Group = ClassicGroup | ConsumerGroup
Find = Callable[[str], Group | None]


class OffsetDecisions:
    """Decisions about offsets. They read groups, and change none, except that a first commit may make its group."""

    def __init__(self, settings: GroupSettings, offsets: CommittedOffsets, find: Find) -> None:
        self._settings = settings
        self._offsets = offsets
        self._find = find
        self.deciders: dict[type, Callable[[Any, int], Decision]] = {
            CommitOffsets: self._commit,
            CommitInTransaction: self._commit_in_transaction,
            EndTransaction: self._end_transaction,
            FetchOffsets: self._fetch,
            DeleteOffsets: self._delete_offsets,
            DeleteTopicOffsets: self._delete_topic_offsets,
        }

    def _commit(self, command: CommitOffsets, now_ms: int) -> Decision:
        group = self._find(command.group_id)
        is_known = group is not None
        if group is None:
            group = ClassicGroup(command.group_id)
            error = _error_of_new(command)
        else:
            error = group.error_of_commit(command)
        if error:
            return answer(command.token, CommitResult((error,) * len(command.offsets)))
        errors = {text: self._error_of_metadata(text) for text in {offset.metadata for offset in command.offsets}}
        codes = tuple([errors[offset.metadata] for offset in command.offsets])
        return Decision(
            records=tuple(
                [
                    commit_record(group.group_id, offset, now_ms, retention_ms=command.retention_ms)
                    for offset, code in zip(command.offsets, codes)
                    if not code
                ]
            ),
            facts=() if is_known or all(codes) or not isinstance(group, ClassicGroup) else (GroupChanged(group),),
            timers=_renewed(group, command.member_id, now_ms),
            replies=((command.token, CommitResult(codes)),),
        )

    def _commit_in_transaction(self, command: CommitInTransaction, now_ms: int) -> Decision:
        group = self._find(command.group_id)
        is_known = group is not None
        if group is None:
            group = ClassicGroup(command.group_id)
            error = ErrorCode.ILLEGAL_GENERATION if command.generation_id > NO_GENERATION else _error_of_name(command.group_id)
        else:
            error = group.error_of_transactional_commit(command)
        if error:
            return answer(command.token, CommitResult((error,) * len(command.offsets)))
        errors = {text: self._error_of_metadata(text) for text in {offset.metadata for offset in command.offsets}}
        codes = tuple([errors[offset.metadata] for offset in command.offsets])
        taken = command.offsets if not any(codes) else [offset for offset, code in zip(command.offsets, codes) if not code]
        if not taken:
            return answer(command.token, CommitResult(codes))
        return Decision(
            records=tuple([commit_record(group.group_id, offset, now_ms) for offset in taken]),
            writer=command.writer,
            facts=() if is_known or not isinstance(group, ClassicGroup) else (GroupChanged(group),),
            replies=((command.token, CommitResult(codes)),),
        )

    def _end_transaction(self, command: EndTransaction, now_ms: int) -> Decision:
        return Decision(marker=command.marker, replies=((command.token, None),))

    def _error_of_metadata(self, metadata: str) -> ErrorCode:
        is_too_large = len(metadata) > self._settings.offset_metadata_max_bytes or not fits_record(metadata)
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE

    def _fetch(self, command: FetchOffsets, now_ms: int) -> Decision:
        group = self._find(command.group_id)
        error = group.error_of_fetch(command.member_id, command.member_epoch) if isinstance(group, ConsumerGroup) else ErrorCode.NONE
        if error:
            return answer(command.token, FetchResult(error))
        found = self._offsets.fetch(command.group_id, command.topics, require_stable=command.require_stable)
        is_final = command.require_stable and not any(offset.error_code for offset in found)  # else it is asked again
        replies = ((command.token, FetchResult(ErrorCode.NONE, found)),)
        return Decision(replies=replies, confirmation=CONFIRMATION if is_final else None)

    def _delete_offsets(self, command: DeleteOffsets, now_ms: int) -> Decision:
        """Deletes offsets. Offsets of topics that members read stay; if members are no consumers that is unknown, so all stay."""
        group = self._find(command.group_id)
        if group is None:
            return answer(command.token, DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_empty and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return answer(command.token, DeleteOffsetsResult(ErrorCode.NON_EMPTY_GROUP))
        read = frozenset() if group.is_empty else group.subscribed_topics()
        is_kept = [read is None or topic in read for topic, _ in command.partitions]
        gone = {partition for partition, kept in zip(command.partitions, is_kept, strict=True) if not kept}
        codes = tuple(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if kept else ErrorCode.NONE for kept in is_kept)
        records = tuple(self._offsets.tombstones_of_partitions(command.group_id, gone))
        return Decision(records=records, replies=((command.token, DeleteOffsetsResult(ErrorCode.NONE, codes)),))

    def _delete_topic_offsets(self, command: DeleteTopicOffsets, now_ms: int) -> Decision:
        records = self._offsets.tombstones_of_topics(frozenset(command.topics))
        return Decision(records=tuple(records), replies=((command.token, DeleteResult(ErrorCode.NONE)),), is_atomic=False)


def answer(token: int, value: Any) -> Decision:
    return Decision(replies=((token, value),))


def _renewed(group: Group, member_id: str, now_ms: int) -> tuple[Timer, ...]:
    """Renews a classic member's session: a commit is a sign of life. Members of consumer groups have their heartbeats alone."""
    member = group.members.get(member_id) if isinstance(group, ClassicGroup) else None
    return () if member is None or member.is_waiting else (session_timer(group.group_id, member, now_ms),)


def _error_of_new(command: CommitOffsets) -> ErrorCode:
    """Returns the error of a commit that would make the group: a consumer that is no member may."""
    if command.generation_id > NO_GENERATION:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return _error_of_name(command.group_id)


def _error_of_name(group_id: str) -> ErrorCode:
    return ErrorCode.NONE if fits_record(group_id) else ErrorCode.INVALID_GROUP_ID
