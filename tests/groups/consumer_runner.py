"""One coordinator and honest members of consumer groups: they do what an answer says, in their own time, or lose it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.groups.coordinator_runner import Runner

from ottla.errors import ErrorCode
from ottla.groups.commands import CommitOffsets, Heartbeat, JoinGroup, OffsetToCommit, SyncGroup
from ottla.groups.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatResult, DescribeConsumerGroup, DescribedConsumerGroup
from ottla.groups.consumer.group import ConsumerGroup
from ottla.groups.settings import ConsumerGroupSettings, GroupSettings
from ottla.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.wire.compiler import decode_from, encode

HEARTBEAT_MS = 5_000
SESSION_MS = 45_000
REVOKE_MS = 30_000
GROUP = "g"
Place = tuple[bytes, int]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")


def image_of(counts: Mapping[str, int], configs: Mapping[tuple[int, str], Mapping[str, str]] | None = None) -> ClusterImage:
    """So many partitions of each topic."""
    partition = PartitionImage((1,), (1,), 1, 0, 0)
    topics = {name: TopicImage(name, topic_id(name), dict.fromkeys(range(count), partition)) for name, count in counts.items()}
    return ClusterImage(topics=topics, topic_names={topic.topic_id: name for name, topic in topics.items()}, configs=configs or {})


class ConsumerRunner(Runner):
    """``image`` is what the brokers know at the moment."""

    def __init__(self, counts: Mapping[str, int] | None = None, **settings: Any) -> None:
        super().__init__(GroupSettings(consumer=ConsumerGroupSettings(**settings)))
        self.image = image_of({"orders": 6} if counts is None else counts)

    @property
    def group(self) -> ConsumerGroup:
        """The coordinator's own, to look at."""
        return self.machine._consumer.table[GROUP]

    def decide(self, command: Any) -> None:
        before = sorted(map(repr, self.machine._consumer.table.get(GROUP, ConsumerGroup(GROUP)).records()))
        super_carry, decision = self._carry_out, self.machine.decide(command, self.now_ms)
        after = sorted(map(repr, self.machine._consumer.table.get(GROUP, ConsumerGroup(GROUP)).records()))
        assert before == after, "deciding changes nothing"
        super_carry(decision)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerHeartbeatResult:
        found = self.ask(ConsumerHeartbeat(self.token(), GROUP, member_id, epoch, fields.pop("image", self.image), **fields))
        assert isinstance(found, ConsumerHeartbeatResult)
        return found

    def enter(self, member_id: str, *topics: str, **fields: Any) -> ConsumerHeartbeatResult:
        """It joins."""
        asked: dict[str, Any] = {"topics": topics or ("orders",), "owned": {}, "rebalance_timeout_ms": REVOKE_MS} | fields
        return self.beat(member_id, 0, **asked)

    def described(self) -> DescribedConsumerGroup:
        found = self.ask(DescribeConsumerGroup(self.token(), GROUP))
        assert isinstance(found, DescribedConsumerGroup)
        return found


@dataclass
class Client:
    """A member as a client has it: ``owned`` is what it reads at the moment, ``due`` what it was assigned last."""

    member_id: str
    topics: tuple[str, ...] = ("orders",)
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: set[Place] = field(default_factory=set)
    due: set[Place] = field(default_factory=set)
    is_full: bool = True  # its next heartbeat says everything: it has joined, or an answer was lost
    is_acknowledged: bool = True  # the coordinator has been told what it owns

    def forget(self) -> None:
        self.epoch, self.owned, self.due, self.is_full = 0, set(), set(), True

    def lists(self) -> dict[bytes, frozenset[int]]:
        return {topic: frozenset(index for found, index in self.owned if found == topic) for topic, _ in self.owned}

    def beat(self, runner: ConsumerRunner, *, is_lost: bool = False) -> int:
        """One heartbeat; with ``is_lost`` its answer does not arrive."""
        fields: dict[str, Any] = {"instance_id": self.instance}
        if self.epoch == 0 or self.is_full:
            fields |= {"topics": self.topics, "rebalance_timeout_ms": REVOKE_MS, "owned": self.lists(), "assignor": self.assignor}
        elif not self.is_acknowledged:
            fields |= {"owned": self.lists()}
        result = runner.beat(self.member_id, self.epoch, **fields)
        if is_lost:
            self.is_full = True
            return ErrorCode.NONE
        if result.error_code:
            if result.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
                self.forget()
            return result.error_code
        self.epoch, self.is_full, self.is_acknowledged = result.member_epoch, False, True
        if result.assignment is not None:
            self.due = {(topic, index) for topic, indexes in result.assignment.items() for index in indexes}
        return ErrorCode.NONE

    @property
    def is_classic(self) -> bool:
        return False

    def follow(self) -> None:
        """It gives up what it no longer has, then reads what is new."""
        if self.owned != self.due:
            self.owned, self.is_acknowledged = set(self.due), False

    def revoke(self) -> None:
        """It only gives up, and reads what is new later."""
        if self.owned - self.due:
            self.owned, self.is_acknowledged = self.owned & self.due, False

    def commit(self, runner: ConsumerRunner, places: set[Place], *, epoch: int | None = None) -> tuple[int, ...]:
        names = runner.image.topic_names
        offsets = tuple(OffsetToCommit(names.get(topic, "gone"), index, 1, 0, "", topic) for topic, index in sorted(places))
        asked = CommitOffsets(runner.token(), GROUP, self.epoch if epoch is None else epoch, self.member_id, self.instance, offsets)
        codes: tuple[int, ...] = runner.ask(asked).error_codes
        return codes


@dataclass
class ClassicClient(Client):
    """A member of the classic protocol, eager (it gives up all before it joins again) or cooperative."""

    is_eager: bool = True
    has_to_join: bool = True

    @property
    def is_classic(self) -> bool:
        return True

    def forget(self) -> None:
        super().forget()
        self.has_to_join = True

    def beat(self, runner: ConsumerRunner, *, is_lost: bool = False) -> int:
        """A heartbeat, or a join and a sync; nothing while the group has no members: then it would be a classic one."""
        group = runner.machine._consumer.table.get(GROUP)
        if group is None or group.is_empty:
            self.forget()
            return ErrorCode.NONE
        if self.has_to_join:
            return self._join(runner, is_lost=is_lost)
        code = runner.ask(Heartbeat(runner.token(), GROUP, self.epoch, self.member_id, self.instance, runner.image)).error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.has_to_join = True
        elif code:
            self.forget()
        return ErrorCode.NONE

    def _join(self, runner: ConsumerRunner, *, is_lost: bool) -> int:
        if self.is_eager:
            self.owned = set()
        owned = [TopicPartition(name, [index for topic, index in sorted(self.owned) if topic == topic_id(name)]) for name in self.topics]
        metadata = b"\0\1" + encode(ConsumerProtocolSubscription(list(self.topics), None, owned), 1)
        name = "range" if self.is_eager else "cooperative-sticky"
        asked = JoinGroup(
            runner.token(), GROUP, self.member_id, self.member_id, self.instance, "c", "/h", SESSION_MS, REVOKE_MS, "consumer",
            (("common", metadata), (name, metadata)), False, True, runner.image,
        )  # fmt: skip
        result = runner.ask(asked)
        if is_lost or result.error_code:
            if result.error_code:
                self.forget()
            return ErrorCode.NONE
        self.epoch, self.has_to_join = result.generation_id, False
        synced = runner.ask(SyncGroup(runner.token(), GROUP, self.epoch, self.member_id, self.instance, "consumer", "common", ()))
        if synced.error_code:
            self.has_to_join = True
            return ErrorCode.NONE
        found, _ = decode_from(ConsumerProtocolAssignment, 1, synced.assignment, 2)
        self.due = {(topic_id(each.topic), index) for each in found.assigned_partitions for index in each.partitions}
        return ErrorCode.NONE
