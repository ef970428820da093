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
    """``group`` is ours to change. Timers may come late: their commands say which generation they belong to.

    ``timers`` has what was said last of each: when it runs, or None, that it is given up.
    """

    group: ClassicGroup
    settings: GroupSettings
    now_ms: int
    records: list[StoredRecord] = field(default_factory=list)
    timers: dict[tuple[str, ...], Timer | None] = field(default_factory=dict)
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
        self._set(session_timer(self.group.group_id, member, self.now_ms))

    def expect_member(self, member_id: str, *, timeout_ms: int) -> None:
        """Sets the time by which the member should have joined, or have been answered."""
        group_id = self.group.group_id
        self._set(Timer(("session", group_id, member_id), self.now_ms + timeout_ms, ExpireMember(group_id, member_id)))

    def expect_nobody(self) -> None:
        """Ends the waits for members: there are none."""
        self.timers |= dict.fromkeys(_gathering(self.group.group_id))

    def remove(self, member_id: str) -> None:
        """Removes the member, or the id of one that has not joined yet, and ends its session."""
        group = self.group
        if member_id in group.pending:
            del group.pending[member_id]
        else:
            group.remove(member_id)
        self.timers["session", group.group_id, member_id] = None

    def rename_static(self, group_instance_id: str, member_id: str) -> Member:
        """Gives the static member a new id, and ends the session of the old one. Returns what it was before."""
        old = self.group.rename_static(group_instance_id, member_id)
        self.timers["session", self.group.group_id, old.member_id] = None
        return old

    def expect_more_members(self, *, delay_ms: int, remaining_ms: int) -> None:
        group = self.group
        command = EndInitialDelay(group.group_id, group.generation_id, delay_ms, remaining_ms)
        self._set(Timer(("rebalance", group.group_id), self.now_ms + delay_ms, command))

    def expect_joins(self) -> None:
        group = self.group
        deadline_ms = self.now_ms + group.rebalance_timeout_ms
        self._set(Timer(("rebalance", group.group_id), deadline_ms, ExpireRebalance(group.group_id, group.generation_id)))

    def expect_syncs(self) -> None:
        group = self.group
        deadline_ms = self.now_ms + group.rebalance_timeout_ms
        self._set(Timer(("sync", group.group_id), deadline_ms, ExpireSync(group.group_id, group.generation_id)))

    def _set(self, timer: Timer) -> None:
        self.timers[timer.name] = timer

    def decision(self) -> Decision:
        self.group.check()
        tokens = [token for token, _ in self.replies]
        assert len(set(tokens)) == len(tokens), "a token is answered once"
        return Decision(
            records=tuple(self.records),
            facts=(GroupChanged(self.group),),
            ended=tuple(name for name, timer in self.timers.items() if timer is None),
            timers=tuple(timer for timer in self.timers.values() if timer is not None),
            replies=tuple(self.replies),
            effects=tuple(self.effects),
        )


def session_timer(group_id: str, member: Member, now_ms: int) -> Timer:
    command = ExpireMember(group_id, member.member_id)
    return Timer(("session", group_id, member.member_id), now_ms + member.session_timeout_ms, command)


def timers_of(group: ClassicGroup) -> tuple[tuple[str, ...], ...]:
    """Returns the names of the timers of a group without members, or whose members are of another group now."""
    return (*_gathering(group.group_id), *(("session", group.group_id, member_id) for member_id in group.pending))


def _gathering(group_id: str) -> tuple[tuple[str, ...], ...]:
    return ("rebalance", group_id), ("sync", group_id)
