"""A rebalance, step by step: gather the members, start the generation, hand out the assignment.

Joins are parked until every known member has joined, or until the longest rebalance timeout of the members has passed:
then the others are removed, except static ones, which may be away for as long as their session lasts. The first
rebalance of an empty group waits a little for members that start at the same time, and prolongs the wait while new ones
arrive. A member that then does not ask for its assignment within the rebalance timeout is removed, too.
"""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.groups.classic.drafts import Draft
from ottla.groups.classic.members import Member
from ottla.groups.classic.states import GroupState
from ottla.groups.commands import NO_MEMBER, EndInitialDelay, JoinResult, SyncResult


def rebalance(draft: Draft) -> None:
    """Starts a rebalance after a change of the members, or completes the present one if all have joined."""
    if draft.group.is_in(GroupState.PREPARING_REBALANCE):
        complete_if_all_joined(draft)
    else:
        prepare(draft)


def prepare(draft: Draft) -> None:
    """Starts to gather the members."""
    group = draft.group
    if group.is_in(GroupState.COMPLETING_REBALANCE):
        for member in list(group.members.values()):
            group.update(member.member_id, assignment=b"")
        hand_out(draft, ErrorCode.REBALANCE_IN_PROGRESS)
    group.is_initial_rebalance = group.is_in(GroupState.EMPTY)
    group.is_member_added = False
    group.transition_to(GroupState.PREPARING_REBALANCE, draft.now_ms)
    if group.is_initial_rebalance:
        delay_ms = draft.settings.initial_rebalance_delay_ms
        draft.expect_more_members(delay_ms=delay_ms, remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0))
    elif group.has_all_joined:
        complete(draft)
    else:
        draft.expect_joins()


def end_initial_delay(draft: Draft, command: EndInitialDelay) -> None:
    """Completes the first rebalance, unless members came meanwhile: then it waits once more, for as long as there is time."""
    group = draft.group
    if group.is_member_added:
        group.is_member_added = False
        delay_ms = min(draft.settings.initial_rebalance_delay_ms, command.remaining_ms)
        draft.expect_more_members(delay_ms=delay_ms, remaining_ms=max(command.remaining_ms - command.delay_ms, 0))
    else:
        complete(draft)


def complete_if_all_joined(draft: Draft) -> None:
    group = draft.group
    if group.is_in(GroupState.PREPARING_REBALANCE) and not group.is_initial_rebalance and group.has_all_joined:
        complete(draft)


def complete(draft: Draft) -> None:
    """Starts the next generation with the members that have joined; the others are removed, unless they are static."""
    group = draft.group
    for member in list(group.members.values()):
        if member.join_token is None and not member.is_static:
            draft.remove(member.member_id)
    if not group.members:
        _begin_empty_generation(draft)
    elif group.elect_joined_leader():
        _begin_generation(draft)
    else:
        draft.expect_joins()  # only absent static members: wait until they come or their sessions end


def _begin_empty_generation(draft: Draft) -> None:
    group = draft.group
    group.generation_id += 1
    group.protocol_name = None
    group.is_initial_rebalance = False
    group.transition_to(GroupState.EMPTY, draft.now_ms)
    draft.expect_nobody()
    draft.store()
    draft.settle()


def _begin_generation(draft: Draft) -> None:
    group = draft.group
    group.generation_id += 1
    group.protocol_name = group.select_protocol()
    group.is_initial_rebalance = False
    group.transition_to(GroupState.COMPLETING_REBALANCE, draft.now_ms)
    for member in list(group.members.values()):
        if member.join_token is not None:
            draft.reply(member.join_token, current_generation(draft, member.member_id))
        draft.expect_life(group.update(member.member_id, join_token=None, is_new=False, is_sync_due=True))
    draft.expect_syncs()


def current_generation(draft: Draft, member_id: str) -> JoinResult:
    """Returns what a member receives about the generation; the leader also receives the other members."""
    group = draft.group
    assert group.leader_id is not None, "a generation has a leader"
    members = group.joined_members() if member_id == group.leader_id else ()
    return JoinResult(ErrorCode.NONE, member_id, group.generation_id, group.protocol_type, group.protocol_name, group.leader_id, members)


def hand_out(draft: Draft, error: ErrorCode = ErrorCode.NONE) -> None:
    """Gives waiting members their assignment, or the error; their sessions are renewed, as they could not send heartbeats."""
    group = draft.group
    for member in list(group.members.values()):
        if member.sync_token is not None:
            draft.reply(member.sync_token, SyncResult(error) if error else assignment_of(draft, member))
            draft.expect_life(group.update(member.member_id, sync_token=None))


def assignment_of(draft: Draft, member: Member) -> SyncResult:
    return SyncResult(ErrorCode.NONE, draft.group.protocol_type, draft.group.protocol_name, member.assignment)


def expire_sync(draft: Draft) -> None:
    """Removes members that have not asked for their assignment, and starts a rebalance."""
    group = draft.group
    late = [member.member_id for member in group.members.values() if member.is_sync_due]
    if late and group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        for member_id in late:
            draft.remove(member_id)
        prepare(draft)


def dismiss(draft: Draft, member_id: str) -> None:
    """Removes the member; what it waited for is answered. The caller then starts or completes a rebalance."""
    member = draft.group.members[member_id]
    if member.join_token is not None:
        draft.reply(member.join_token, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER))
    if member.sync_token is not None:
        draft.reply(member.sync_token, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
    draft.remove(member_id)
