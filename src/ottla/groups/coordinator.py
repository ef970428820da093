"""The group coordinator: all groups of one partition of ``__consumer_offsets``, as a replicated machine.

Two things are kept apart. What is durable comes from records only: the committed offsets, and of each group its last
synced generation. What is volatile, the groups as they are right now with their parked requests, comes from facts: a
decision works on a copy of one group, and the fact says that the copy is the group. After a restart the groups are made
again from what is durable, and each member gets a new session.

Time comes in as ``now_ms`` and is written to records: it should be the time of day.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from msgspec.structs import replace

from ottla.errors import ErrorCode
from ottla.groups.classic import joins, requests
from ottla.groups.classic.drafts import Draft, GroupChanged, GroupRemoved, timers_of
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.rebalance import complete, end_initial_delay, expire_sync, prepare
from ottla.groups.classic.states import GroupState
from ottla.groups.commands import (
    NO_MEMBER,
    DeleteGroup,
    DeleteResult,
    DescribeGroup,
    DescribeResult,
    EndInitialDelay,
    ExpireMember,
    ExpireOffsets,
    ExpireRebalance,
    ExpireSync,
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
from ottla.groups.confirmations import confirmed
from ottla.groups.consumer.classic_members import converted, replaced_static, reverted, supports
from ottla.groups.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatResult, ExpireConsumer, ExpireRevocation, ExpireStep
from ottla.groups.consumer.context import Context
from ottla.groups.consumer.facts import ConsumerFact
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.consumer.groups import ConsumerGroups
from ottla.groups.consumer.member import JOINING, ConsumerMember
from ottla.groups.ended_timers import Decide, ending_timers
from ottla.groups.offset_decisions import OffsetDecisions, answer
from ottla.groups.offsets import CommittedOffsets
from ottla.groups.records import fits_record
from ottla.groups.settings import GroupSettings
from ottla.machine import Decision, StoredRecord, Timer
from ottla.messages.consumer_group_records import ConsumerGroupMemberMetadataKey
from ottla.messages.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from ottla.metadata.image import EMPTY_IMAGE, ClusterImage

__all__ = ["GroupCoordinator", "GroupSettings"]

NOTHING: Final = Decision()
EXPIRIES: Final = (ExpireConsumer, ExpireRevocation, ExpireStep)
"""What removes members of consumer groups when its time has come."""


class GroupCoordinator:
    """``machine.ReplicatedMachine`` for groups."""

    def __init__(self, settings: GroupSettings, image: ClusterImage = EMPTY_IMAGE) -> None:
        self._settings = settings
        self._consumer = ConsumerGroups(settings.consumer, image)
        self._groups: dict[str, ClassicGroup] = {}
        self._stored: dict[str, GroupMetadataValue] = {}
        self._offsets = CommittedOffsets()
        self._deciders: dict[type, Decide] = {
            SyncGroup: self._sync,
            Heartbeat: self._heartbeat,
            DescribeGroup: self._describe,
            ListGroups: self._list,
            DeleteGroup: self._delete,
            ExpireMember: self._expire_member,
            EndInitialDelay: self._end_initial_delay,
            ExpireRebalance: self._expire_rebalance,
            ExpireSync: self._expire_sync,
            ExpireOffsets: self._expire_offsets,
            **OffsetDecisions(settings, self._offsets, self._find).deciders,
            **self._consumer.deciders,
            JoinGroup: ending_timers(self._join),
            LeaveGroup: ending_timers(self._leave),
            ConsumerHeartbeat: ending_timers(self._consumer_heartbeat),
            **dict.fromkeys(EXPIRIES, ending_timers(self._expire_consumer)),
        }

    # -- the machine --------------------------------------------------------------------------------------------------

    def decide(self, command: Any, now_ms: int) -> Decision:
        return confirmed(self._deciders[type(command)](command, now_ms))

    def apply(self, record: StoredRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue), "the key type determines the value type"
            self._offsets.apply(key, value)
        elif not isinstance(key, GroupMetadataKey):
            self._consumer.apply(record)
        else:
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
        elif isinstance(fact, ConsumerFact):
            self._consumer.apply_fact(fact)
        else:
            assert isinstance(fact, GroupRemoved), "a group is changed or deleted"
            self._groups.pop(fact.group_id, None)

    def on_loaded(self, now_ms: int) -> Iterator[Decision]:
        """Loads groups as their last synced generation left them; groups that have only offsets are Empty."""
        for group_id in list(self._stored):  # what follows may change it
            yield self._load(ClassicGroup.from_stored(group_id, self._stored[group_id]), now_ms)
        for group_id in self._offsets.groups():
            if group_id not in self._stored and group_id not in self._consumer.table:
                yield Decision(facts=(GroupChanged(ClassicGroup(group_id)),))
        yield from self._consumer.on_loaded(now_ms)
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
        yield from self._consumer.dismantle()
        yield from self._offsets.dismantle()

    def snapshot(self) -> Iterator[StoredRecord]:
        for group_id, value in self._stored.items():
            yield StoredRecord(GroupMetadataKey(group_id), value)
        for group in self._consumer.table.values():
            yield from group.records()
        yield from self._offsets.records()

    def _find(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        return self._groups.get(group_id) or self._consumer.table.get(group_id)

    # -- members ------------------------------------------------------------------------------------------------------

    def _draft(self, group_id: str, now_ms: int) -> Draft | None:
        group = self._groups.get(group_id)
        return None if group is None else Draft(group.copy(), self._settings, now_ms)

    def _join(self, command: JoinGroup, now_ms: int) -> Decision:
        error = self._error_of_join(command)
        if error:
            return answer(command.token, JoinResult(error, command.member_id))
        group = self._consumer.table.get(command.group_id)
        is_known, draft = command.group_id in self._groups, self._draft(command.group_id, now_ms)
        if group is not None and not group.is_empty:
            changed = replaced_static(group, command) if supports(group, command.protocol_type, command.protocols) else None
            draft = None if changed is None else self._classic(group, (), now_ms, changed)
            if draft is None:
                return self._consumer.join(command, group, now_ms)
        draft = draft or Draft(ClassicGroup(command.group_id), self._settings, now_ms)
        joins.join(draft, command)
        if not is_known and not draft.group.members and not draft.group.pending:
            return Decision(replies=tuple(draft.replies))  # no member was admitted: there is no such group
        decision = draft.decision()
        former = self._consumer.table.get(command.group_id)
        return decision if former is None else replace(decision, records=(*former.tombstones(), *decision.records))

    def _error_of_join(self, command: JoinGroup) -> ErrorCode:
        settings = self._settings
        if not command.group_id or not fits_record(command.group_id):
            return ErrorCode.INVALID_GROUP_ID
        stored = (command.fresh_member_id, command.group_instance_id, command.client_id, command.protocol_type)
        if not all(map(fits_record, stored)) or not all(fits_record(name) for name, _ in command.protocols):
            return ErrorCode.INVALID_REQUEST
        if not settings.session_timeout_ms_min <= command.session_timeout_ms <= settings.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        group = self._consumer.table.get(command.group_id)
        if command.group_id not in self._groups and (group is None or group.is_empty) and command.member_id != NO_MEMBER:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _consumer_heartbeat(self, command: ConsumerHeartbeat, now_ms: int) -> Decision:
        """Takes a heartbeat. The first member that joins so makes a consumer group of a classic group without members."""
        known = self._groups.get(command.group_id)
        if known is None or not command.member_id:
            decision = self._consumer.heartbeat(command, now_ms)
            return decision if command.member_epoch >= JOINING else self._reverted(decision, command.group_id, now_ms)
        base = None
        if not known.is_empty or known.pending:
            context = Context(self._settings.consumer, command.image, now_ms)
            base = converted(context, known) if command.member_epoch == JOINING and self._settings.consumer.may_upgrade else None
        if command.member_epoch != JOINING or (base is None and not known.is_empty):
            text = f"group {command.group_id} is not a consumer group"
            refusal = self._consumer.refusal(command)
            return answer(command.token, refusal or ConsumerHeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND, text))
        decision = self._consumer.heartbeat(command, now_ms, base)
        if not decision.records:
            return decision
        return replace(
            decision,
            records=(*self._group_tombstone(command.group_id), *decision.records),
            facts=(GroupRemoved(command.group_id), *decision.facts),
            ended=timers_of(known),
            replies=(*decision.replies, *requests.sent_away(known)),
        )

    def _sync(self, command: SyncGroup, now_ms: int) -> Decision:
        group = self._consumer.table.get(command.group_id)
        if group is not None:
            return self._consumer.sync(command, group, now_ms)
        draft = self._draft(command.group_id, now_ms)
        if draft is None:
            return answer(command.token, SyncResult(_error_of_unknown(command.group_id)))
        requests.sync(draft, command)
        return draft.decision()

    def _heartbeat(self, command: Heartbeat, now_ms: int) -> Decision:
        consumer_group = self._consumer.table.get(command.group_id)
        if consumer_group is not None:
            return self._consumer.beat(command, consumer_group, now_ms)
        group = self._groups.get(command.group_id)
        if group is None:
            return answer(command.token, HeartbeatResult(_error_of_unknown(command.group_id)))
        return requests.heartbeat(group, command, now_ms)

    def _leave(self, command: LeaveGroup, now_ms: int) -> Decision:
        if not command.group_id:
            return answer(command.token, LeaveResult(ErrorCode.INVALID_GROUP_ID))
        group = self._consumer.table.get(command.group_id)
        if group is not None:
            return self._reverted(self._consumer.leave(command, group, now_ms), command.group_id, now_ms)
        draft = self._draft(command.group_id, now_ms)
        if draft is None:
            results = tuple((member.member_id, member.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for member in command.members)
            return answer(command.token, LeaveResult(ErrorCode.NONE, results))
        requests.leave(draft, command)
        return draft.decision()

    # -- from one protocol to the other -------------------------------------------------------------------------------

    def _reverted(self, decision: Decision, group_id: str, now_ms: int) -> Decision:
        """Makes a classic group of a consumer group from which the decision removes the last members of the consumer protocol."""
        group = self._consumer.table.get(group_id)
        gone = {
            record.key.member_id
            for record in decision.records
            if isinstance(record.key, ConsumerGroupMemberMetadataKey) and record.value is None
        }
        draft = self._classic(group, gone, now_ms) if group is not None and gone else None
        if group is None or draft is None:
            return decision
        prepare(draft)
        made = draft.decision()
        return replace(made, records=(*group.tombstones(), *made.records), replies=(*decision.replies, *made.replies))

    def _classic(self, group: ConsumerGroup, gone: Collection[str], now_ms: int, changed: ConsumerMember | None = None) -> Draft | None:
        """Returns the group as a classic one, recorded; None where it needs the other protocol, is too large, or may not be changed."""
        settings = self._settings
        classic = reverted(self._consumer.image, group, gone, now_ms, changed) if settings.consumer.may_downgrade else None
        if classic is None or len(classic.members) > settings.group_max_size:
            return None
        draft = Draft(classic, settings, now_ms)
        draft.store()
        for member in classic.members.values():
            draft.expect_life(member)
        return draft

    def _expire_consumer(self, command: ExpireConsumer | ExpireRevocation | ExpireStep, now_ms: int) -> Decision:
        return self._reverted(self._consumer.deciders[type(command)](command, now_ms), command.group_id, now_ms)

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

    def _expire_offsets(self, command: ExpireOffsets, now_ms: int) -> Decision:
        records: list[StoredRecord] = []
        facts: list[GroupRemoved] = []
        groups: list[ClassicGroup | ConsumerGroup] = [*self._groups.values(), *self._consumer.table.values()]
        for group in groups:
            expired = self._offsets.tombstones_of_expired(group, now_ms=now_ms, retention_ms=self._settings.offsets_retention_ms)
            records += expired
            is_named = isinstance(group, ClassicGroup) and bool(group.pending)
            if group.is_empty and not is_named and len(expired) == self._offsets.count(group.group_id):
                records += self._tombstones(group)
                facts.append(GroupRemoved(group.group_id))
        return Decision(records=tuple(records), facts=tuple(facts), timers=(self._next_offsets_check(now_ms),), is_atomic=False)

    def _next_offsets_check(self, now_ms: int) -> Timer:
        return Timer(("offsets",), now_ms + self._settings.offsets_retention_check_interval_ms, ExpireOffsets())

    # -- administration -----------------------------------------------------------------------------------------------

    def _describe(self, command: DescribeGroup, now_ms: int) -> Decision:
        group = self._groups.get(command.group_id)
        if group is None:
            is_other = command.group_id in self._consumer.table
            return answer(command.token, DescribeResult(GroupState.DEAD.value, is_other=is_other))
        return answer(command.token, requests.describe(group))

    def _list(self, command: ListGroups, now_ms: int) -> Decision:
        listed = [ListedGroup(group.group_id, group.protocol_type or "", group.state.value) for group in self._groups.values()]
        for group in self._consumer.table.values():
            listed.append(ListedGroup(group.group_id, group.protocol_type, group.state.value, "consumer"))
        return answer(command.token, ListResult(tuple(listed)))

    def _delete(self, command: DeleteGroup, now_ms: int) -> Decision:
        group = self._find(command.group_id)
        if group is None:
            return answer(command.token, DeleteResult(ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_empty:
            return answer(command.token, DeleteResult(ErrorCode.NON_EMPTY_GROUP))
        return Decision(
            records=(*self._offsets.tombstones_of_group(group.group_id), *self._tombstones(group)),
            facts=(GroupRemoved(group.group_id),),
            ended=timers_of(group) if isinstance(group, ClassicGroup) else (),
            replies=((command.token, DeleteResult(ErrorCode.NONE)),),
        )

    def _tombstones(self, group: ClassicGroup | ConsumerGroup) -> list[StoredRecord]:
        """Returns the tombstones of the group, which is empty."""
        return group.tombstones() if isinstance(group, ConsumerGroup) else self._group_tombstone(group.group_id)

    def _group_tombstone(self, group_id: str) -> list[StoredRecord]:
        return [StoredRecord(GroupMetadataKey(group_id), None)] if group_id in self._stored else []


def _error_of_unknown(group_id: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
