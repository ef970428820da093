"""A decision about one group in the making: a copy of the group, and what follows from its change."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.classic.members import Member
from ottla.groups.commands import EndInitialDelay, ExpireMember, ExpireRebalance, ExpireSync
from ottla.groups.settings import GroupSettings
from ottla.machine import Decision, StoredRecord, Timer


class GroupChanged(Struct, frozen=True):
    """The fact that this is the group from now on."""

    group: ClassicGroup


class GroupRemoved(Struct, frozen=True):
    """The fact that the group no longer exists."""

    group_id: str


class GroupSettled(Struct, frozen=True):
    """The effect that the group's new generation, which is committed, is worth a line of the broker's log: Stable, or Empty again."""

    group_id: str
    state: str
    generation_id: int
    member_count: int
    assignor: str | None


class Draft(Struct):
    """``group`` is ours to change. Timers need no cancelling: their commands say which generation they belong to."""

    group: ClassicGroup
    settings: GroupSettings
    now_ms: int
    records: list[StoredRecord] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    replies: list[tuple[int, Any]] = field(default_factory=list)
    effects: list[GroupSettled] = field(default_factory=list)

    def reply(self, token: int, value: Any) -> None:
        self.replies.append((token, value))

    def store(self) -> None:
        """Records the group as it is now, so that it outlives this coordinator."""
        self.records.append(self.group.to_record())

    def settle(self) -> None:
        """Reports that the group has come to rest, which operators see."""
        group = self.group
        self.effects.append(GroupSettled(group.group_id, group.state.value, group.generation_id, len(group.members), group.protocol_name))

    def expect_life(self, member: Member) -> None:
        """Starts the member's next session timeout: it is alive now."""
        self.timers.append(session_timer(self.group.group_id, member, self.now_ms))

    def expect_member(self, member_id: str, *, timeout_ms: int) -> None:
        """Sets the time by which the member should have joined, or have been answered."""
        group_id = self.group.group_id
        self.timers.append(Timer(("session", group_id, member_id), self.now_ms + timeout_ms, ExpireMember(group_id, member_id)))

    def expect_more_members(self, *, delay_ms: int, remaining_ms: int) -> None:
        group = self.group
        command = EndInitialDelay(group.group_id, group.generation_id, delay_ms, remaining_ms)
        self.timers.append(Timer(("rebalance", group.group_id), self.now_ms + delay_ms, command))

    def expect_joins(self) -> None:
        group = self.group
        deadline_ms = self.now_ms + group.rebalance_timeout_ms
        self.timers.append(Timer(("rebalance", group.group_id), deadline_ms, ExpireRebalance(group.group_id, group.generation_id)))

    def expect_syncs(self) -> None:
        group = self.group
        deadline_ms = self.now_ms + group.rebalance_timeout_ms
        self.timers.append(Timer(("sync", group.group_id), deadline_ms, ExpireSync(group.group_id, group.generation_id)))

    def decision(self) -> Decision:
        self.group.check()
        tokens = [token for token, _ in self.replies]
        assert len(set(tokens)) == len(tokens), "a token is answered once"
        return Decision(
            records=tuple(self.records),
            facts=(GroupChanged(self.group),),
            timers=tuple(self.timers),
            replies=tuple(self.replies),
            effects=tuple(self.effects),
        )


def session_timer(group_id: str, member: Member, now_ms: int) -> Timer:
    command = ExpireMember(group_id, member.member_id)
    return Timer(("session", group_id, member.member_id), now_ms + member.session_timeout_ms, command)
