"""Members of a consumer group (KIP-848) beside all that befalls replicated nodes: coordinators are killed, cut off, paused, and moved.

Each member does what it is told: it reads what it was assigned, gives up what it was told to before it says so, and stops reading when it
has heard nothing for a session, counted from when it sent the last heartbeat that was answered. So no two may read a partition at any
moment; and who is no member any more commits nothing. In the end one more member joins, and gets everything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from tests.simulation.explorer import Trial
from tests.simulation.quorum_nodes import HEAL_SECONDS
from tests.simulation.replicated_work import Work

from ottla.broker.node import Broker
from ottla.client.admin import NewTopic
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

SHARED: Final = "shared"
GROUP: Final = "members"
PARTITIONS: Final = 6
MEMBERS: Final = 4
SESSION_SECONDS: Final = 4.0
REVOKE_MS: Final = 60_000
"""Longer than a session: who is taken for dead has stopped reading by then."""
SETTINGS: Final = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "200",
}
_JOIN_AGAIN: Final = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID})


class Readers:
    """Who reads which partition at the moment, as the members themselves have it."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self.taken_count = 0
        self._readers: dict[int, str] = {}

    def take(self, member_id: str, partitions: set[int]) -> None:
        for index in sorted(partitions):
            reader = self._readers.setdefault(index, member_id)
            if reader != member_id:
                self.findings.append(f"partition {index} is read by {member_id}, and by {reader}")
        self.taken_count += len(partitions)

    def is_read(self, partition: int) -> bool:
        return partition in self._readers

    def release(self, member_id: str, partitions: set[int]) -> None:
        for index in partitions:
            if self._readers.get(index) == member_id:
                del self._readers[index]


class Member:
    """One of them, on a machine of its own."""

    def __init__(self, cluster: Cluster, member_id: str, topic_id: bytes, readers: Readers, states: Counter[str]) -> None:
        self.member_id = member_id
        self.owned: set[int] = set()
        self._cluster = cluster
        self._topic_id = topic_id
        self._readers = readers
        self._states = states
        self._due: set[int] = set()
        self._epoch = 0
        self._is_full = True
        self._session: asyncio.TimerHandle | None = None
        self._incarnation = 0

    async def beat(self) -> None:
        """One heartbeat; errors of the network and of coordinators that move are heard of with the next one."""
        loop = asyncio.get_running_loop()
        sent, incarnation = loop.time(), self._incarnation
        fields: dict[str, Any] = {}
        if self._is_full:
            fields = {"rebalance_timeout_ms": REVOKE_MS, "subscribed_topic_names": [SHARED]}
        owned = [TopicPartitions(self._topic_id, sorted(self.owned))] if self.owned else []
        request = ConsumerGroupHeartbeatRequest(GROUP, self.member_id, self._epoch, topic_partitions=owned, **fields)
        try:
            answer = await self._cluster.ask(await self._cluster.coordinator(GROUP), request, ConsumerGroupHeartbeatResponse)
        except KafkaError:
            self._is_full = True
            return
        if incarnation != self._incarnation:
            return  # its session has ended meanwhile, and it has given up all
        if answer.error_code in _JOIN_AGAIN:
            await self._fenced(answer.error_code)
        elif answer.error_code:
            self._is_full = True
        else:
            self._epoch, self._is_full = answer.member_epoch, False
            self._end_timer()
            self._session = loop.call_at(sent + SESSION_SECONDS, self._forget)
            if answer.assignment is not None:
                self._due = {index for found in answer.assignment.topic_partitions for index in found.partitions}

    def follow(self) -> None:
        """It reads what it was assigned."""
        self._readers.release(self.member_id, self.owned - self._due)
        self._readers.take(self.member_id, self._due - self.owned)
        self.owned = set(self._due)

    async def commit(self, *, epoch: int | None = None, partitions: set[int] | None = None) -> bool:
        """Whether all was taken."""
        offsets = [OffsetCommitRequestPartition(index, 1) for index in sorted(self.owned if partitions is None else partitions)]
        topics = [OffsetCommitRequestTopic(SHARED, self._topic_id, offsets)]
        request = OffsetCommitRequest(GROUP, self._epoch if epoch is None else epoch, self.member_id, topics=topics)
        try:
            answer = await self._cluster.ask(await self._cluster.coordinator(GROUP), request, OffsetCommitResponse)
        except KafkaError:
            return False
        codes = [result.error_code for topic in answer.topics for result in topic.partitions]
        return bool(codes) and not any(codes)

    async def _fenced(self, code: int) -> None:
        """It commits once more, as a member that has not noticed: that counts only while the coordinator has kept the partitions for it."""
        epoch, partitions = self._epoch, set(self.owned)
        self._forget()
        self._states["members fenced"] += 1
        if code != ErrorCode.UNKNOWN_MEMBER_ID:
            partitions = {index for index in partitions if self._readers.is_read(index)}
        if partitions and await self.commit(epoch=epoch, partitions=partitions):
            self._readers.findings.append(f"{self.member_id} was fenced, and committed in epoch {epoch}")

    def _end_timer(self) -> None:
        if self._session is not None:
            self._session.cancel()

    def _forget(self) -> None:
        """Its session may have ended: it reads nothing, and joins again."""
        self._end_timer()
        self._incarnation += 1
        self._readers.release(self.member_id, self.owned)
        self.owned, self._due, self._epoch, self._is_full = set(), set(), 0, True

    async def leave(self) -> None:
        self._readers.release(self.member_id, self.owned)
        self.owned = set()
        request = ConsumerGroupHeartbeatRequest(GROUP, self.member_id, -1)
        try:
            await self._cluster.ask(await self._cluster.coordinator(GROUP), request, ConsumerGroupHeartbeatResponse)
        except KafkaError:
            self._states["members that could not say that they leave"] += 1
        self._forget()


class MembersAtWork(Work):
    """All that is done with replicated partitions, and the members."""

    def __init__(self, trial: Trial) -> None:
        super().__init__(trial)
        self.topics = [*self.topics, NewTopic(SHARED, PARTITIONS, 3)]
        self._readers = Readers()

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [*super().tasks(), *(self._live(f"member-{number}") for number in range(MEMBERS))]

    async def _live(self, name: str) -> None:
        client = self._client(name, 1500)
        rng = self._simulation.random(name)

        async def run() -> None:
            cluster = client.cluster()
            member = Member(cluster, f"{name}-0", await self._topic_id(cluster), self._readers, self._states)
            count = 0
            while not self._is_over.is_set():
                await member.beat()
                member.follow()
                await asyncio.sleep(rng.uniform(0.05, 0.4))
                member.follow()
                if member.owned and rng.random() < 0.2:
                    self._states["commits of members"] += await member.commit()
                    member.follow()
                if rng.random() < 0.02:
                    await member.leave()
                    count += 1
                    member = Member(cluster, f"{name}-{count}", member._topic_id, self._readers, self._states)
            await member.leave()
            await cluster.close()

        await client.machine.run(run())

    async def _topic_id(self, cluster: Cluster) -> bytes:
        async with asyncio.timeout(HEAL_SECONDS):
            while (found := cluster.topics.get(SHARED)) is None:
                try:
                    await cluster.refresh([SHARED])
                except KafkaError:
                    await asyncio.sleep(0.2)
            return found.topic_id

    async def judge(self, brokers: Mapping[int, Broker]) -> list[str]:
        self._states["partitions taken by members"] += self._readers.taken_count
        client = self._client("last")
        topic_id = brokers[1].image.topics[SHARED].topic_id

        async def run() -> bool:
            cluster = client.cluster()
            member = Member(cluster, "last", topic_id, Readers(), self._states)
            for _ in range(int(HEAL_SECONDS)):
                await member.beat()
                member.follow()
                if len(member.owned) == PARTITIONS:
                    break
                await asyncio.sleep(0.5)
            await cluster.close()
            return len(member.owned) == PARTITIONS

        if not await client.machine.run(run()):
            self._readers.findings.append("the last member did not get all partitions")
        return [*await super().judge(brokers), *self._readers.findings[:3]]
