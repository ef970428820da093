"""One classic group: its members, what they can speak, who leads, and which generation it is.

The group knows its own state and nothing of requests: ``rebalance`` moves it from state to state, ``joins`` and
``requests`` answer the members. A decision works on a copy, which becomes the group when it is applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ottla.errors import ErrorCode
from ottla.groups.classic.members import CONSUMER_PROTOCOL_TYPE, Member, subscribed_topics
from ottla.groups.classic.states import TRANSITIONS, GroupState
from ottla.groups.commands import NO_GENERATION, CommitInTransaction, CommitOffsets, JoinedMember
from ottla.machine import StoredRecord
from ottla.messages.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata


class ClassicGroup(Struct):
    group_id: str
    state: GroupState = GroupState.EMPTY
    state_timestamp_ms: int = -1
    generation_id: int = 0
    protocol_type: str | None = None  # None: no member has ever joined, only offsets were committed
    protocol_name: str | None = None  # set while CompletingRebalance and Stable
    leader_id: str | None = None  # a member, unless there is none
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)  # group_instance_id -> member_id
    pending: dict[str, None] = field(default_factory=dict)  # ids given out by MEMBER_ID_REQUIRED that have not joined yet, in this order
    is_initial_rebalance: bool = False  # PreparingRebalance came from Empty, and waits for more members
    is_member_added: bool = False  # during the initial rebalance: it may be prolonged

    @classmethod
    def from_stored(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """Returns the group as its last synced generation left it."""
        group = cls(
            group_id,
            state=GroupState.STABLE if value.members else GroupState.EMPTY,
            state_timestamp_ms=value.current_state_timestamp,
            generation_id=value.generation,
            protocol_type=value.protocol_type or None,
            protocol_name=value.protocol if value.members else None,
            leader_id=value.leader if value.members else None,
        )
        for stored in value.members:
            timeout_ms = stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout
            group.put(
                Member(
                    stored.member_id,
                    stored.group_instance_id,
                    stored.client_id,
                    stored.client_host,
                    rebalance_timeout_ms=timeout_ms,
                    session_timeout_ms=stored.session_timeout,
                    protocols=((value.protocol or "", stored.subscription),),
                    assignment=stored.assignment,
                )
            )
        if group.members and group.leader_id not in group.members:
            group.leader_id = next(iter(group.members))
        return group

    def to_record(self) -> StoredRecord:
        """Returns what is kept of the group: its generation with the assignments, or that it is empty."""
        members = [
            MemberMetadata(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata_for(self.protocol_name),
                member.assignment,
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            self.protocol_type or "", self.generation_id, self.protocol_name, self.leader_id, self.state_timestamp_ms, members
        )
        return StoredRecord(GroupMetadataKey(self.group_id), value)

    def copy(self) -> ClassicGroup:
        return replace(self, members=self.members.copy(), static_members=self.static_members.copy(), pending=self.pending.copy())

    # -- what it knows ------------------------------------------------------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        """The patience of the most patient member."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def has_all_joined(self) -> bool:
        return not self.pending and all(member.join_token is not None for member in self.members.values())

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    def is_in(self, *states: GroupState) -> bool:
        return self.state in states

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """True when a member that speaks these has at least one protocol in common with all the others."""
        names = {name for name, _ in protocols}
        if not protocol_type or not names:
            return False
        if self.is_in(GroupState.EMPTY):
            return True
        return protocol_type == self.protocol_type and (not self.members or bool(names & self._common_protocols()))

    def _common_protocols(self) -> set[str]:
        return set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))

    def select_protocol(self) -> str:
        """Returns the protocol that most members prefer among those that all support; the leader's order decides between equals."""
        common = self._common_protocols()
        assert common, "a member was admitted only while it had a protocol in common with all others"
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in self.members.values())
        assert self.leader_id is not None, "a group with members has a leader"
        return max((name for name, _ in self.members[self.leader_id].protocols if name in common), key=lambda name: votes[name])

    def error_of_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Returns NONE for a member; FENCED_INSTANCE_ID when its instance id now belongs to another; else UNKNOWN_MEMBER_ID."""
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Returns what the leader needs to assign."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata_for(self.protocol_name))
            for member in self.members.values()
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        """Returns the topics that any member wants; None when that is unknown, because they are no consumers."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.protocol_name is None:
            return None
        wanted: set[str] = set()
        for member in self.members.values():
            topics = subscribed_topics(member.metadata_for(self.protocol_name))
            if topics is None:
                return None
            wanted |= topics
        return frozenset(wanted)

    def error_of_commit(self, command: CommitOffsets) -> ErrorCode:
        """Returns the error: members commit for their own generation; any client may commit for a group that is Empty.

        While a rebalance is prepared, members still commit what they have read. Once the next generation has started, a member
        that has no assignment yet has nothing to commit: REBALANCE_IN_PROGRESS.
        """
        if command.generation_id <= NO_GENERATION and self.is_in(GroupState.EMPTY):
            return ErrorCode.NONE
        error = self.error_of_member(command.member_id, command.group_instance_id)
        if error:
            return error
        if command.generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.REBALANCE_IN_PROGRESS if self.is_in(GroupState.COMPLETING_REBALANCE) else ErrorCode.NONE

    def error_of_transactional_commit(self, command: CommitInTransaction) -> ErrorCode:
        """Returns the error as ``error_of_commit``, of a producer, which may commit without saying for which member (KIP-447)."""
        names_member = command.generation_id > NO_GENERATION or command.member_id or command.group_instance_id is not None
        if not names_member or (command.generation_id <= NO_GENERATION and self.is_in(GroupState.EMPTY)):
            return ErrorCode.NONE
        error = self.error_of_member(command.member_id, command.group_instance_id)
        return error or (ErrorCode.NONE if command.generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION)

    # -- retention of its offsets (``offsets.RetainedGroup``) ---------------------------------------------------------

    @property
    def empty_since_ms(self) -> int | None:
        return self.state_timestamp_ms if self.is_in(GroupState.EMPTY) and self.state_timestamp_ms >= 0 else None

    def read_topics(self) -> frozenset[str] | None:
        if self.is_in(GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
            return None
        return self.subscribed_topics() if self.is_in(GroupState.STABLE) else frozenset()

    # -- what changes it ----------------------------------------------------------------------------------------------

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"a group does not go from {self.state.value} to {state.value}"
        self.state = state
        self.state_timestamp_ms = now_ms

    def put(self, member: Member) -> None:
        """Puts the member into the group, in place of its earlier state."""
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def update(self, member_id: str, **changes: Any) -> Member:
        member = self.members[member_id] = replace(self.members[member_id], **changes)
        return member

    def remove(self, member_id: str) -> None:
        """Removes the member; if it led, the oldest remaining member leads."""
        member = self.members.pop(member_id)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)

    def rename_static(self, group_instance_id: str, member_id: str) -> Member:
        """Gives the static member a new id; it keeps its assignment, and waits for nothing. Returns what it was before."""
        old = self.members.pop(self.static_members[group_instance_id])
        if self.leader_id == old.member_id:
            self.leader_id = member_id
        self.put(replace(old, member_id=member_id, join_token=None, sync_token=None, is_new=False))
        return old

    def elect_joined_leader(self) -> bool:
        """Makes a member that has joined the leader. False when no member has."""
        if self.leader_id is not None and self.members[self.leader_id].join_token is not None:
            return True
        joined = next((member for member in self.members.values() if member.join_token is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def check(self) -> None:
        """Checks what holds after every decision."""
        members = self.members.values()
        joining = any(member.join_token is not None for member in members)
        syncing = any(member.sync_token is not None for member in members)
        assert (self.leader_id is None) == (not self.members), "a group has a leader exactly when it has members"
        assert self.leader_id is None or self.leader_id in self.members, "the leader is a member"
        assert self.pending.keys().isdisjoint(self.members.keys()), "a pending member has not joined"
        assert self.static_members == {
            member.group_instance_id: member.member_id for member in members if member.group_instance_id is not None
        }, "each instance id belongs to the member that carries it"
        assert not joining or self.is_in(GroupState.PREPARING_REBALANCE), "joins are parked while a rebalance is prepared, not longer"
        assert not syncing or self.is_in(GroupState.COMPLETING_REBALANCE), "syncs are parked while the leader assigns, not longer"
        assert not self.members or not self.is_in(GroupState.EMPTY, GroupState.DEAD), "an Empty group has no members"
        assert self.members or not self.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE), "a generation has members"
        assert self.protocol_name is None or not self.is_in(GroupState.EMPTY), "an Empty group has no protocol"
