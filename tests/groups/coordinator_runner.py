"""Runs one group coordinator on a clock that tests turn by hand, as the broker's shards do on a real one.

It holds the machine to its contract on the way: deciding changes nothing, a token is answered once, every record
survives the way through bytes.
"""

from __future__ import annotations

from typing import Any

from ottla.groups.classic.group import ClassicGroup
from ottla.groups.commands import (
    CommitOffsets,
    CommitResult,
    DescribeGroup,
    DescribeResult,
    FetchOffsets,
    FetchResult,
    Heartbeat,
    JoinGroup,
    JoinResult,
    LeaveGroup,
    LeaveResult,
    LeavingMember,
    OffsetToCommit,
    SyncGroup,
    SyncResult,
)
from ottla.groups.coordinator import GroupCoordinator, GroupSettings
from ottla.groups.records import decode_record, encode_record
from ottla.machine import Decision, Timer
from ottla.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.wire.compiler import encode

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


def subscription(*topics: str) -> bytes:
    """A consumer's metadata, version 0."""
    return b"\0\0" + encode(ConsumerProtocolSubscription(list(topics)), 0)


METADATA = subscription("orders")


class Runner:
    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.answers: dict[int, Any] = {}
        self.parked: set[int] = set()
        self.confirmed: set[int] = set()  # answered once a record that changes nothing is committed
        self.failed: set[int] = set()  # parked when the coordinator was lost
        self.timers: dict[tuple[str, ...], Timer] = {}
        self._last_token = 0
        self.restart()

    def restart(self) -> None:
        """The coordinator is lost with all that is volatile; another takes over from the log."""
        self.failed |= self.parked
        self.parked = set()
        self.timers = {}
        self.machine = GroupCoordinator(self.settings)
        for key, value in self.log:
            record = decode_record(key, value)
            assert record is not None
            self.machine.apply(record)
        for decision in self.machine.on_loaded(self.now_ms):
            self._carry_out(decision)

    def token(self) -> int:
        self._last_token += 1
        self.parked.add(self._last_token)
        return self._last_token

    def ask(self, command: Any) -> Any:
        """The answer, or None while the command is parked."""
        self.decide(command)
        return self.answers.get(command.token)

    def decide(self, command: Any) -> None:
        before = {group_id: group.copy() for group_id, group in self.machine._groups.items()}
        decision = self.machine.decide(command, self.now_ms)
        assert self.machine._groups == before, "deciding changes nothing"
        self._carry_out(decision)

    def _carry_out(self, decision: Decision) -> None:
        for record in decision.records:
            key, value = encode_record(record)
            assert decode_record(key, value) == record
            self.log.append((key, value))
            self.machine.apply(record)
        for fact in decision.facts:
            self.machine.apply_fact(fact)
        for name in decision.ended:
            self.timers.pop(name, None)
        for timer in decision.timers:
            assert timer.deadline_ms >= self.now_ms
            self.timers[timer.name] = timer
        self._check_timers()
        for token, value in decision.replies:
            assert token in self.parked, "a token is answered once, and only while it is parked"
            self.parked.remove(token)
            self.answers[token] = value
            if decision.confirmation is not None:
                self.confirmed.add(token)

    def _check_timers(self) -> None:
        """Clients choose how long many timers run: those of members and groups that are gone would fill the memory."""
        for kind, *names in self.timers:
            group = self.machine._find(names[0]) if names else None
            if kind in ("session", "revocation", "step"):
                known = () if group is None else (*group.members, *getattr(group, "pending", ()))
                assert names[1] in known, f"the {kind} timer of a member that is gone"
            elif kind in ("rebalance", "sync"):
                assert isinstance(group, ClassicGroup), f"the {kind} timer of a group that is gone"
                assert not group.is_empty, f"the {kind} timer of a group without members"

    def advance(self, ms: int) -> None:
        """Time passes; deadlines that come up on the way are met in their order."""
        end_ms = self.now_ms + ms
        while due := [timer for timer in self.timers.values() if timer.deadline_ms <= end_ms]:
            timer = min(due, key=lambda timer: (timer.deadline_ms, timer.name))
            del self.timers[timer.name]
            self.now_ms = max(self.now_ms, timer.deadline_ms)
            self.decide(timer.command)
        self.now_ms = end_ms

    # -- what members do ----------------------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        fresh: str = "",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", METADATA),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        known_id: bool = False,
        skip: bool = True,
    ) -> int:
        """The token; its answer is in ``answers`` once there is one."""
        token = self.token()
        self.decide(
            JoinGroup(
                token,
                group,
                member_id,
                fresh or f"member-{token}",
                instance,
                "client",
                "/127.0.0.1",
                session_ms,
                rebalance_ms,
                protocol_type,
                protocols,
                known_id,
                skip,
            )
        )
        return token

    def joined(self, token: int) -> JoinResult:
        result = self.answers[token]
        assert isinstance(result, JoinResult)
        return result

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        token = self.token()
        pairs = tuple((assignments or {}).items())
        self.decide(SyncGroup(token, group, generation_id, member_id, instance, protocol_type, protocol_name, pairs))
        return token

    def synced(self, token: int) -> SyncResult:
        result = self.answers[token]
        assert isinstance(result, SyncResult)
        return result

    def heartbeat(self, member_id: str, generation_id: int, *, group: str = "g", instance: str | None = None) -> int:
        return self.ask(Heartbeat(self.token(), group, generation_id, member_id, instance)).error_code

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> LeaveResult:
        return self.ask(LeaveGroup(self.token(), group, tuple(LeavingMember(*member) for member in members)))

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation_id: int = -1,
        group: str = "g",
        metadata: str = "",
        instance: str | None = None,
    ) -> tuple[int, ...]:
        wanted = tuple(OffsetToCommit(topic, partition, offset, 7, metadata) for (topic, partition), offset in offsets.items())
        result: CommitResult = self.ask(CommitOffsets(self.token(), group, generation_id, member_id, instance, wanted))
        return result.error_codes

    def fetch(self, *topics: tuple[str, int], group: str = "g") -> dict[tuple[str, int], int]:
        """Offsets by partition; of all partitions when none is named."""
        result: FetchResult = self.ask(FetchOffsets(self.token(), group, topics or None, True))
        assert result.error_code == 0
        return {(offset.topic, offset.partition): offset.offset for offset in result.offsets}

    def describe(self, group: str = "g") -> DescribeResult:
        return self.ask(DescribeGroup(self.token(), group))

    def state(self, group: str = "g") -> str:
        return self.describe(group).state

    # -- groups that tests begin with ---------------------------------------------------------------------------------

    def stable(self, *member_ids: str, instances: dict[str, str] | None = None, **join: Any) -> int:
        """A Stable group of these members, each assigned its own id as bytes. The generation is returned."""
        tokens = [self.join(fresh=member_id, instance=(instances or {}).get(member_id), **join) for member_id in member_ids]
        while any(token in self.parked for token in tokens):
            self.advance(DELAY_MS)
        generation_id, leader = self.joined(tokens[0]).generation_id, self.joined(tokens[0]).leader
        assignments = {member_id: member_id.encode() for member_id in member_ids}
        for member_id in (leader, *member_ids):
            self.sync(member_id, generation_id, assignments if member_id == leader else None)
        assert self.state() == "Stable"
        return generation_id
