"""JoinGroup: who is let in, who is known already, and whether a rebalance follows.

A dynamic member is first given an id and must come back with it (KIP-394), so that clients which never hear the answer
leave no state. A static member (KIP-345) that comes back without an id is the same member under a new id: the old
id is fenced, and a stable group does not rebalance for it.
"""

from __future__ import annotations

from typing import Final

from ottla.errors import ErrorCode
from ottla.groups.classic.drafts import Draft
from ottla.groups.classic.members import CONSUMER_PROTOCOL_TYPE, Member, subscribed_topics
from ottla.groups.classic.rebalance import complete_if_all_joined, current_generation, dismiss, prepare, rebalance
from ottla.groups.classic.states import GroupState
from ottla.groups.commands import NO_MEMBER, JoinGroup, JoinResult, SyncResult

PENDING_MAX: Final = 10_000
"""So many ids wait to come back in one group: each decision looks through them. Who comes with an older one gets another."""


def join(draft: Draft, command: JoinGroup) -> None:
    group = draft.group
    if not _has_room_for(draft, command.member_id):
        if command.member_id in group.pending:
            draft.remove(command.member_id)
        elif command.member_id in group.members:
            dismiss(draft, command.member_id)
        draft.reply(command.token, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER))
        complete_if_all_joined(draft)
    elif not group.supports(command.protocol_type, command.protocols):
        _refuse(draft, command, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif command.member_id == NO_MEMBER:
        _join_unnamed(draft, command)
    elif command.member_id in group.pending:
        _add(draft, command, command.member_id)
    else:
        _rejoin(draft, command)


def _refuse(draft: Draft, command: JoinGroup, error: ErrorCode) -> None:
    draft.reply(command.token, JoinResult(error, command.member_id))


def _has_room_for(draft: Draft, member_id: str) -> bool:
    """True when there is room. While a rebalance is prepared, joined members count: the first to come back keep their place."""
    group, size_max = draft.group, draft.settings.group_max_size
    member = group.members.get(member_id)
    if group.is_in(GroupState.EMPTY):
        return True
    if group.is_in(GroupState.PREPARING_REBALANCE):
        joined_count = sum(other.join_token is not None for other in group.members.values())
        return (member is not None and member.join_token is not None) or joined_count < size_max
    return member is not None or len(group.members) < size_max


def _join_unnamed(draft: Draft, command: JoinGroup) -> None:
    group, member_id = draft.group, command.fresh_member_id
    assert not any(member_id in ids for ids in (group.members, group.pending)), "a fresh member id is used once"
    if command.group_instance_id is not None and command.group_instance_id in group.static_members:
        _replace_static(draft, command, command.group_instance_id)
    elif command.requires_known_member_id and command.group_instance_id is None:
        if len(group.pending) >= PENDING_MAX:
            draft.remove(next(iter(group.pending)))
        group.pending[member_id] = None
        draft.expect_member(member_id, timeout_ms=command.session_timeout_ms)
        draft.reply(command.token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(draft, command, member_id)


def _add(draft: Draft, command: JoinGroup, member_id: str) -> None:
    group = draft.group
    if command.group_instance_id in group.static_members:  # a dynamic id was asked for first, the instance id came later
        _refuse(draft, command, ErrorCode.FENCED_INSTANCE_ID)
        return
    group.is_member_added |= group.is_in(GroupState.PREPARING_REBALANCE) and group.is_initial_rebalance
    if not group.members:
        group.protocol_type = command.protocol_type
    group.put(
        Member(
            member_id,
            command.group_instance_id,
            command.client_id,
            command.client_host,
            rebalance_timeout_ms=command.rebalance_timeout_ms,
            session_timeout_ms=command.session_timeout_ms,
            protocols=command.protocols,
            join_token=command.token,
            is_new=True,
        )
    )
    draft.expect_member(member_id, timeout_ms=draft.settings.new_member_join_timeout_ms)
    rebalance(draft)


def _rejoin(draft: Draft, command: JoinGroup) -> None:
    group = draft.group
    error = group.error_of_member(command.member_id, command.group_instance_id)
    if error:
        _refuse(draft, command, error)
        return
    member = group.members[command.member_id]
    is_unchanged = member.protocols == command.protocols
    if group.is_in(GroupState.PREPARING_REBALANCE):
        _park(draft, command, member)
        rebalance(draft)
    elif is_unchanged and (group.is_in(GroupState.COMPLETING_REBALANCE) or command.member_id != group.leader_id):
        # The answer to its last join was lost, or it asks without need. In a stable group only the leader may ask for a
        # rebalance by joining again: it has seen something that no metadata shows, new partitions for example.
        draft.reply(command.token, current_generation(draft, command.member_id))
        if not member.is_waiting:
            draft.expect_life(member)
    else:
        if member.sync_token is not None:
            draft.reply(member.sync_token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            member = group.update(member.member_id, sync_token=None)
        _park(draft, command, member)
        prepare(draft)


def _park(draft: Draft, command: JoinGroup, member: Member) -> None:
    """Parks the member with what it now wants; an earlier request of its own is answered: the client no longer waits for it."""
    if member.join_token is not None:
        draft.reply(member.join_token, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    draft.group.update(
        member.member_id,
        client_id=command.client_id,
        client_host=command.client_host,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        session_timeout_ms=command.session_timeout_ms,
        protocols=command.protocols,
        join_token=command.token,
    )


def _replace_static(draft: Draft, command: JoinGroup, group_instance_id: str) -> None:
    """Replaces the static member that came back under a new id; the old id is fenced at once, also where it waits."""
    group = draft.group
    old_leader_id = group.leader_id
    old = draft.rename_static(group_instance_id, command.fresh_member_id)
    if old.join_token is not None:
        draft.reply(old.join_token, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
    if old.sync_token is not None:
        draft.reply(old.sync_token, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    member = group.members[command.fresh_member_id]
    _park(draft, command, member)
    member = group.members[command.fresh_member_id]
    draft.expect_life(member)
    if group.is_in(GroupState.STABLE) and not _wants_something_else(draft, old, member):
        _keep_generation(draft, command, member, old_leader_id=old_leader_id)
    else:
        # In CompletingRebalance, too: the leader may be assigning to the old id right now.
        rebalance(draft)


def _wants_something_else(draft: Draft, old: Member, new: Member) -> bool:
    """True when the group would choose another protocol, or the member reads other topics.

    The bytes of the metadata may differ all the same: a consumer that restarts owns no partitions.
    """
    group = draft.group
    protocol_name = group.select_protocol()
    if protocol_name != group.protocol_name:
        return True
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return False
    return subscribed_topics(old.metadata_for(protocol_name)) != subscribed_topics(new.metadata_for(protocol_name))


def _keep_generation(draft: Draft, command: JoinGroup, member: Member, *, old_leader_id: str | None) -> None:
    """Gives the member what its old id had, without a rebalance; its new id is stored.

    A leader must not assign again. From v9 the answer says so; before that it is shown its old id as the leader, which makes it
    behave as a follower.
    """
    group = draft.group
    member = group.update(member.member_id, join_token=None)
    draft.store()
    if command.supports_skip_assignment:
        is_leader = group.leader_id == member.member_id
        members, leader = group.joined_members() if is_leader else (), group.leader_id or NO_MEMBER
    else:
        is_leader, members, leader = False, (), old_leader_id or NO_MEMBER
    result = JoinResult(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        leader,
        members,
        skip_assignment=is_leader,
    )
    draft.reply(command.token, result)
