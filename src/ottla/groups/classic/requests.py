"""What members ask for after they have joined: the assignment, to be kept, to leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ottla.errors import ErrorCode
from ottla.groups.classic.drafts import Draft, session_timer
from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.rebalance import assignment_of, complete_if_all_joined, dismiss, hand_out, rebalance
from ottla.groups.classic.states import GroupState
from ottla.groups.commands import (
    NO_MEMBER,
    DescribedMember,
    DescribeResult,
    Heartbeat,
    HeartbeatResult,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    LeavingMember,
    SyncGroup,
    SyncResult,
)
from ottla.machine import Decision


def sync(draft: Draft, command: SyncGroup) -> None:
    """Takes the leader's assignment, which makes the group Stable; a follower waits for it, or gets it at once."""
    group = draft.group
    error = _error_of_sync(group, command)
    if error:
        draft.reply(command.token, SyncResult(error))
        return
    member = group.members[command.member_id]
    if member.sync_token is not None:  # the client no longer waits for the earlier request
        draft.reply(member.sync_token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
    if group.is_in(GroupState.STABLE):
        member = group.update(command.member_id, is_sync_due=False)
        draft.reply(command.token, assignment_of(draft, member))
        draft.expect_life(member)
        return
    group.update(command.member_id, sync_token=command.token, is_sync_due=False)
    if command.member_id == group.leader_id:
        _assign(draft, dict(command.assignments))


def _error_of_sync(group: ClassicGroup, command: SyncGroup) -> ErrorCode:
    error = group.error_of_member(command.member_id, command.group_instance_id)
    if error:
        return error
    if command.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if command.protocol_type is not None and command.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.is_in(GroupState.PREPARING_REBALANCE):
        return ErrorCode.REBALANCE_IN_PROGRESS
    if command.protocol_name is not None and command.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _assign(draft: Draft, assignments: dict[str, bytes]) -> None:
    group = draft.group
    for member_id in list(group.members):
        group.update(member_id, assignment=assignments.get(member_id, b""))
    group.transition_to(GroupState.STABLE, draft.now_ms)
    draft.store()
    draft.settle()
    hand_out(draft)


def heartbeat(group: ClassicGroup, command: Heartbeat, now_ms: int) -> Decision:
    """Renews a member's session. The answer says when it should join again. The group does not change."""
    error = group.error_of_member(command.member_id, command.group_instance_id)
    if not error and command.generation_id != group.generation_id:
        error = ErrorCode.ILLEGAL_GENERATION
    if error:
        return Decision(replies=((command.token, HeartbeatResult(error)),))
    if group.is_in(GroupState.PREPARING_REBALANCE):
        error = ErrorCode.REBALANCE_IN_PROGRESS
    timer = session_timer(group.group_id, group.members[command.member_id], now_ms)
    return Decision(timers=(timer,), replies=((command.token, HeartbeatResult(error)),))


def leave(draft: Draft, command: LeaveGroup) -> None:
    """Removes each member, or answers it with an error; one rebalance follows for all."""
    count_before = len(draft.group.members)
    codes = [_leave_one(draft, leaving) for leaving in command.members]
    results = tuple((leaving.member_id, leaving.group_instance_id, code) for leaving, code in zip(command.members, codes))
    draft.reply(command.token, LeaveResult(ErrorCode.NONE, results))
    if len(draft.group.members) < count_before:
        rebalance(draft)
    else:
        complete_if_all_joined(draft)


def _leave_one(draft: Draft, leaving: LeavingMember) -> ErrorCode:
    group = draft.group
    if leaving.member_id == NO_MEMBER and leaving.group_instance_id is not None:
        leaving = msgspec.structs.replace(leaving, member_id=group.static_members.get(leaving.group_instance_id, NO_MEMBER))
    if leaving.member_id in group.pending:
        draft.remove(leaving.member_id)
        return ErrorCode.NONE
    error = group.error_of_member(leaving.member_id, leaving.group_instance_id)
    if not error:
        dismiss(draft, leaving.member_id)
    return error


def expire_member(draft: Draft, member_id: str) -> None:
    """Ends the member's session, or its pending id: then others need no longer wait for it."""
    if member_id in draft.group.pending:
        draft.remove(member_id)
        complete_if_all_joined(draft)
    else:
        dismiss(draft, member_id)
        rebalance(draft)


def sent_away(group: ClassicGroup) -> Iterator[tuple[int, Any]]:
    """Yields answers that send waiting members away, to join again in the consumer group."""
    for member in group.members.values():
        if member.join_token is not None:
            yield member.join_token, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        if member.sync_token is not None:
            yield member.sync_token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)


def describe(group: ClassicGroup) -> DescribeResult:
    """Describes the group. What the members have and want is returned for a Stable group only: before that it is about to change."""
    is_stable = group.is_in(GroupState.STABLE)
    members = tuple(
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata_for(group.protocol_name) if is_stable else b"",
            member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    )
    protocol_name = group.protocol_name if is_stable else None
    return DescribeResult(group.state.value, group.protocol_type or "", protocol_name or "", members)
