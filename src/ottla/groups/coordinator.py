"""The group coordinator: all groups of one partition of ``__consumer_offsets``, as a replicated machine.

Two things are kept apart. What is durable comes from records only: the committed offsets, and of each group its last
synced generation. What is volatile, the groups as they are right now with their parked requests, comes from facts: a
decision works on a copy of one group, and the fact says that the copy is the group. After a restart the groups are made
again from what is durable, and each member gets a new session.

Time comes in as ``now_ms`` and is written to records: it should be the time of day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from ottla.errors import ErrorCode
from ottla.groups.classic import joins, requests
from ottla.groups.classic.drafts import Draft, GroupChanged, GroupRemoved, session_timer
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.members import CONSUMER_PROTOCOL_TYPE
from ottla.groups.classic.rebalance import complete, end_initial_delay, expire_sync, prepare
from ottla.groups.classic.states import GroupState
from ottla.groups.commands import (
    NO_GENERATION,
    NO_MEMBER,
    CommitInTransaction,
    CommitOffsets,
    CommitResult,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsResult,
    DeleteResult,
    DeleteTopicOffsets,
    DescribeGroup,
    DescribeResult,
    EndInitialDelay,
    EndTransaction,
    ExpireMember,
    ExpireOffsets,
    ExpireRebalance,
    ExpireSync,
    FetchOffsets,
    FetchResult,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    ListedGroup,
    ListGroups,
    ListResult,
    SyncGroup,
    SyncResult,
)
from ottla.groups.offsets import CommittedOffsets, commit_record
from ottla.groups.records import fits_record
from ottla.groups.settings import GroupSettings
from ottla.machine import Decision, StoredRecord, Timer
from ottla.messages.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

__all__ = ["GroupCoordinator", "GroupSettings"]

NOTHING: Final = Decision()


class GroupCoordinator:
    """``machine.ReplicatedMachine`` for groups."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._groups: dict[str, ClassicGroup] = {}
        self._stored: dict[str, GroupMetadataValue] = {}
        self._offsets = CommittedOffsets()
        self._deciders: dict[type, Callable[[Any, int], Decision]] = {
            JoinGroup: self._join,
            SyncGroup: self._sync,
            Heartbeat: self._heartbeat,
            LeaveGroup: self._leave,
            CommitOffsets: self._commit,
            CommitInTransaction: self._commit_in_transaction,
            EndTransaction: self._end_transaction,
            FetchOffsets: self._fetch,
            DescribeGroup: self._describe,
            ListGroups: self._list,
            DeleteGroup: self._delete,
            DeleteOffsets: self._delete_offsets,
            DeleteTopicOffsets: self._delete_topic_offsets,
            ExpireMember: self._expire_member,
            EndInitialDelay: self._end_initial_delay,
            ExpireRebalance: self._expire_rebalance,
            ExpireSync: self._expire_sync,
            ExpireOffsets: self._expire_offsets,
        }

    # -- the machine --------------------------------------------------------------------------------------------------

    def decide(self, command: Any, now_ms: int) -> Decision:
        return self._deciders[type(command)](command, now_ms)

    def apply(self, record: StoredRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue), "the key type determines the value type"
            self._offsets.apply(key, value)
        else:
            assert isinstance(key, GroupMetadataKey), "the log holds offsets and groups"
            assert value is None or isinstance(value, GroupMetadataValue), "the key type determines the value type"
            if value is None:
                self._stored.pop(key.group, None)
            else:
                self._stored[key.group] = value

    def apply_pending(self, producer_id: int, record: StoredRecord) -> None:
        key, value = record.key, record.value
        assert isinstance(key, OffsetCommitKey), "only offsets are part of transactions"
        assert isinstance(value, OffsetCommitValue), "a transaction deletes none"
        self._offsets.pending.add(producer_id, key, value)

    def apply_end(self, producer_id: int, *, is_commit: bool) -> None:
        self._offsets.end(producer_id, is_commit=is_commit)

    def apply_fact(self, fact: Any) -> None:
        if isinstance(fact, GroupChanged):
            self._groups[fact.group.group_id] = fact.group
        else:
            assert isinstance(fact, GroupRemoved), "a group is changed or deleted"
            self._groups.pop(fact.group_id, None)

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        """Groups are as their last synced generation left them; those that have only offsets are Empty."""
        for group_id in list(self._stored):  # what follows may change it
            yield self._load(ClassicGroup.from_stored(group_id, self._stored[group_id]), now_ms)
        for group_id in self._offsets.groups():
            if group_id not in self._stored:
                yield Decision(facts=(GroupChanged(ClassicGroup(group_id)),))
        yield Decision(timers=(self._next_offsets_check(now_ms),))

    def _load(self, group: ClassicGroup, now_ms: int) -> Decision:
        draft = Draft(group, self._settings, now_ms)
        for member in group.members.values():
            draft.expect_life(member)
        if len(group.members) > self._settings.group_max_size:  # the limit was lowered: the first to come back stay
            prepare(draft)
        return draft.decision()

    def dismantle(self) -> Iterator[None]:
        for known in (self._groups, self._stored):
            while known:
                known.popitem()
                yield
        yield from self._offsets.dismantle()

    def snapshot(self) -> Iterator[StoredRecord]:
        for group_id, value in self._stored.items():
            yield StoredRecord(GroupMetadataKey(group_id), value)
        yield from self._offsets.records()

    # -- members ------------------------------------------------------------------------------------------------------

    def _draft(self, group_id: str, now_ms: int) -> Draft | None:
        group = self._groups.get(group_id)
        return None if group is None else Draft(group.copy(), self._settings, now_ms)

    def _join(self, command: JoinGroup, now_ms: int) -> Decision:
        error = self._error_of_join(command)
        if error:
            return _answer(command.token, JoinResult(error, command.member_id))
        is_known = command.group_id in self._groups
        draft = self._draft(command.group_id, now_ms) or Draft(ClassicGroup(command.group_id), self._settings, now_ms)
        joins.join(draft, command)
        if not is_known and not draft.group.members and not draft.group.pending:
            return Decision(replies=tuple(draft.replies))  # no member was admitted: there is no such group
        return draft.decision()

    def _error_of_join(self, command: JoinGroup) -> ErrorCode:
        settings = self._settings
        if not command.group_id or not fits_record(command.group_id):
            return ErrorCode.INVALID_GROUP_ID
        stored = (command.fresh_member_id, command.group_instance_id, command.client_id, command.protocol_type)
        if not all(map(fits_record, stored)) or not all(fits_record(name) for name, _ in command.protocols):
            return ErrorCode.INVALID_REQUEST
        if not settings.session_timeout_ms_min <= command.session_timeout_ms <= settings.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if command.group_id not in self._groups and command.member_id != NO_MEMBER:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _sync(self, command: SyncGroup, now_ms: int) -> Decision:
        draft = self._draft(command.group_id, now_ms)
        if draft is None:
            return _answer(command.token, SyncResult(_error_of_unknown(command.group_id)))
        requests.sync(draft, command)
        return draft.decision()

    def _heartbeat(self, command: Heartbeat, now_ms: int) -> Decision:
        group = self._groups.get(command.group_id)
        if group is None:
            return _answer(command.token, HeartbeatResult(_error_of_unknown(command.group_id)))
        return requests.heartbeat(group, command, now_ms)

    def _leave(self, command: LeaveGroup, now_ms: int) -> Decision:
        if not command.group_id:
            return _answer(command.token, LeaveResult(ErrorCode.INVALID_GROUP_ID))
        draft = self._draft(command.group_id, now_ms)
        if draft is None:
            results = tuple((member.member_id, member.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for member in command.members)
            return _answer(command.token, LeaveResult(ErrorCode.NONE, results))
        requests.leave(draft, command)
        return draft.decision()

    # -- deadlines ----------------------------------------------------------------------------------------------------

    def _expire_member(self, command: ExpireMember, now_ms: int) -> Decision:
        draft = self._draft(command.group_id, now_ms)
        if draft is None:
            return NOTHING
        member = draft.group.members.get(command.member_id)
        if member is None and command.member_id not in draft.group.pending:
            return NOTHING
        if member is not None and member.is_waiting and not member.is_new:
            return NOTHING  # it waits for our answer, which renews its session
        requests.expire_member(draft, command.member_id)
        return draft.decision()

    def _end_initial_delay(self, command: EndInitialDelay, now_ms: int) -> Decision:
        draft = self._draft(command.group_id, now_ms)
        if draft is None or not draft.group.is_initial_rebalance or draft.group.generation_id != command.generation_id:
            return NOTHING
        end_initial_delay(draft, command)
        return draft.decision()

    def _expire_rebalance(self, command: ExpireRebalance, now_ms: int) -> Decision:
        draft = self._draft(command.group_id, now_ms)
        if draft is None or draft.group.generation_id != command.generation_id:
            return NOTHING
        if not draft.group.is_in(GroupState.PREPARING_REBALANCE):
            return NOTHING
        complete(draft)
        return draft.decision()

    def _expire_sync(self, command: ExpireSync, now_ms: int) -> Decision:
        draft = self._draft(command.group_id, now_ms)
        if draft is None or draft.group.generation_id != command.generation_id:
            return NOTHING
        expire_sync(draft)
        return draft.decision()

    # -- offsets ------------------------------------------------------------------------------------------------------

    def _commit(self, command: CommitOffsets, now_ms: int) -> Decision:
        group = self._groups.get(command.group_id)
        is_known = group is not None
        if group is None:
            group = ClassicGroup(command.group_id)
            error = _error_of_new(command)
        else:
            error = group.error_of_commit(command)
        if error:
            return _answer(command.token, CommitResult((error,) * len(command.offsets)))
        errors = {text: self._error_of_metadata(text) for text in {offset.metadata for offset in command.offsets}}
        codes = tuple([errors[offset.metadata] for offset in command.offsets])
        member = group.members.get(command.member_id)
        return Decision(
            records=tuple(
                [
                    commit_record(group.group_id, offset, now_ms, retention_ms=command.retention_ms)
                    for offset, code in zip(command.offsets, codes)
                    if not code
                ]
            ),
            facts=() if is_known or all(codes) else (GroupChanged(group),),
            timers=() if member is None or member.is_waiting else (session_timer(group.group_id, member, now_ms),),
            replies=((command.token, CommitResult(codes)),),
        )

    def _commit_in_transaction(self, command: CommitInTransaction, now_ms: int) -> Decision:
        group = self._groups.get(command.group_id)
        is_known = group is not None
        if group is None:
            group = ClassicGroup(command.group_id)
            error = ErrorCode.ILLEGAL_GENERATION if command.generation_id > NO_GENERATION else _error_of_name(command.group_id)
        else:
            error = group.error_of_transactional_commit(command)
        if command.writer is None or error:
            return _answer(command.token, CommitResult((error,) * max(1, len(command.offsets))))
        errors = {text: self._error_of_metadata(text) for text in {offset.metadata for offset in command.offsets}}
        codes = tuple([errors[offset.metadata] for offset in command.offsets])
        taken = command.offsets if not any(codes) else [offset for offset, code in zip(command.offsets, codes) if not code]
        if not taken:
            return _answer(command.token, CommitResult(codes))
        return Decision(
            records=tuple([commit_record(group.group_id, offset, now_ms) for offset in taken]),
            writer=command.writer,
            facts=() if is_known else (GroupChanged(group),),
            replies=((command.token, CommitResult(codes)),),
        )

    def _end_transaction(self, command: EndTransaction, now_ms: int) -> Decision:
        return Decision(marker=command.marker, replies=((command.token, None),))

    def _error_of_metadata(self, metadata: str) -> ErrorCode:
        is_too_large = len(metadata) > self._settings.offset_metadata_max_bytes or not fits_record(metadata)
        return ErrorCode.OFFSET_METADATA_TOO_LARGE if is_too_large else ErrorCode.NONE

    def _fetch(self, command: FetchOffsets, now_ms: int) -> Decision:
        return _answer(command.token, FetchResult(ErrorCode.NONE, self._fetched(command)))

    def _fetched(self, command: FetchOffsets) -> tuple[CommittedOffset, ...]:
        return self._offsets.fetch(command.group_id, command.topics, require_stable=command.require_stable)

    def _delete_offsets(self, command: DeleteOffsets, now_ms: int) -> Decision:
        """Offsets of topics that members read stay; of a group whose members are no consumers that is unknown, so all do."""
        group = self._groups.get(command.group_id)
        if group is None:
            return _answer(command.token, DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_in(GroupState.EMPTY) and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return _answer(command.token, DeleteOffsetsResult(ErrorCode.NON_EMPTY_GROUP))
        read = frozenset() if group.is_in(GroupState.EMPTY) else group.subscribed_topics()
        is_kept = [read is None or topic in read for topic, _ in command.partitions]
        gone = {partition for partition, kept in zip(command.partitions, is_kept, strict=True) if not kept}
        codes = tuple(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if kept else ErrorCode.NONE for kept in is_kept)
        records = tuple(self._offsets.tombstones_of_partitions(command.group_id, gone))
        return Decision(records=records, replies=((command.token, DeleteOffsetsResult(ErrorCode.NONE, codes)),))

    def _delete_topic_offsets(self, command: DeleteTopicOffsets, now_ms: int) -> Decision:
        records = self._offsets.tombstones_of_topics(frozenset(command.topics))
        return Decision(records=tuple(records), replies=((command.token, DeleteResult(ErrorCode.NONE)),), is_atomic=False)

    def _expire_offsets(self, command: ExpireOffsets, now_ms: int) -> Decision:
        records: list[StoredRecord] = []
        facts: list[GroupRemoved] = []
        for group in self._groups.values():
            expired = self._offsets.tombstones_of_expired(group, now_ms=now_ms, retention_ms=self._settings.offsets_retention_ms)
            records += expired
            has_nothing = len(expired) == self._offsets.count(group.group_id) and not group.pending
            if has_nothing and group.is_in(GroupState.EMPTY):
                records += self._group_tombstone(group.group_id)
                facts.append(GroupRemoved(group.group_id))
        return Decision(records=tuple(records), facts=tuple(facts), timers=(self._next_offsets_check(now_ms),), is_atomic=False)

    def _next_offsets_check(self, now_ms: int) -> Timer:
        return Timer(("offsets",), now_ms + self._settings.offsets_retention_check_interval_ms, ExpireOffsets())

    # -- administration -----------------------------------------------------------------------------------------------

    def _describe(self, command: DescribeGroup, now_ms: int) -> Decision:
        group = self._groups.get(command.group_id)
        return _answer(command.token, DescribeResult(GroupState.DEAD.value) if group is None else requests.describe(group))

    def _list(self, command: ListGroups, now_ms: int) -> Decision:
        listed = (ListedGroup(group.group_id, group.protocol_type or "", group.state.value) for group in self._groups.values())
        return _answer(command.token, ListResult(tuple(listed)))

    def _delete(self, command: DeleteGroup, now_ms: int) -> Decision:
        group = self._groups.get(command.group_id)
        if group is None:
            return _answer(command.token, DeleteResult(ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_in(GroupState.EMPTY):
            return _answer(command.token, DeleteResult(ErrorCode.NON_EMPTY_GROUP))
        return Decision(
            records=(*self._offsets.tombstones_of_group(group.group_id), *self._group_tombstone(group.group_id)),
            facts=(GroupRemoved(group.group_id),),
            replies=((command.token, DeleteResult(ErrorCode.NONE)),),
        )

    def _group_tombstone(self, group_id: str) -> list[StoredRecord]:
        return [StoredRecord(GroupMetadataKey(group_id), None)] if group_id in self._stored else []


def _answer(token: int, value: Any) -> Decision:
    return Decision(replies=((token, value),))


def _error_of_new(command: CommitOffsets) -> ErrorCode:
    """A consumer that is no member makes the group with its first commit."""
    if command.generation_id > NO_GENERATION:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return _error_of_name(command.group_id)


def _error_of_name(group_id: str) -> ErrorCode:
    return ErrorCode.NONE if fits_record(group_id) else ErrorCode.INVALID_GROUP_ID


def _error_of_unknown(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
