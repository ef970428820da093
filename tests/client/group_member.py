"""One member of the group of the model: what it does, what it is told, and the laws of that."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from tests.client.group_laws import now
from tests.client.simulated import consumer_of

from ottla.errors import ErrorCode, KafkaError
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.messages.heartbeat import HeartbeatRequest
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.sim.cluster import SimClient
from ottla.sim.interference import Interference
from ottla.types import TopicPartition

TOPICS: Final = {"a": 3, "b": 2}
SESSION: Final = 10.0
HEARTBEAT: Final = 1.0
POLL_INTERVAL: Final = 14.0
REQUEST_TIMEOUT: Final = 30.0
CALM: Final = 15.0
TRY: Final = 1.2
LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID)


class Member:
    """One life of a consumer, on a machine of its own."""

    def __init__(self, world: Any, name: str, instance: str | None) -> None:
        self.world = world
        self.group = world.group
        self.name = name
        self.rng = rng = world.nodes.simulation.random(name)
        self.instance = instance
        self.client = SimClient(world.nodes.simulation, name, world.nodes.bootstrap)
        self.limit_ms = rng.choice([20_000, 60_000])
        self.held: dict[TopicPartition, int] = {}  # and the floor, as it was when it was assigned
        self.next: dict[TopicPartition, tuple[int, int]] = {}  # the incarnation and the next offset, once something was read
        self.doomed: dict[TopicPartition, float] = {}  # what others got meanwhile, and when
        self.told: float = -1.0  # when a heartbeat's answer said that it is no member
        self.polled_at = now()
        self.in_callbacks = 0.0
        self.topics = list(TOPICS)
        self.is_static = instance is not None
        self.ends = ""  # how it is to end
        self.pause_count = 0
        self.is_in = False  # it was told of partitions, maybe of none

    def _consumer(self) -> None:
        rng = self.rng
        cluster = self.client.cluster()
        cluster.metadata_max_age_ms = 5_000
        network = Interference(cluster)
        network.refuse, network.alter = self._on_request, self._on_answer
        protocol = self.world.protocol if self.world.protocol != "mixed" else rng.choice(["range", "consumer"])
        if protocol == "consumer":
            settings: dict[str, Any] = {"group_protocol": "consumer"}
        else:
            strategies = ["range", "cooperative-sticky"] if protocol == "both" else [protocol]
            settings = {
                "session_timeout_ms": int(SESSION * 1000),
                "heartbeat_interval_ms": int(HEARTBEAT * 1000),
                "partition_assignment_strategy": strategies,
            }
        self.world.log(self.name, "is", protocol, self.instance)
        self.is_automatic = rng.random() < 0.5
        self.consumer = consumer_of(
            cluster,
            group_id=self.group.name,
            group_instance_id=self.instance,
            max_poll_interval_ms=int(POLL_INTERVAL * 1000),
            enable_auto_commit=self.is_automatic,
            auto_commit_interval_ms=rng.choice([500, 5000]),
            default_api_timeout_ms=self.limit_ms,
            fetch_max_wait_ms=5000,
            max_partition_fetch_bytes=rng.choice([200, 1_000_000]),
            **settings,
        )

    # What goes over its network

    def _on_request(self, request: Any) -> None:
        if isinstance(request, OffsetCommitRequest):
            self.group.on_commit(self.name, request)

    def _on_answer(self, request: Any, response: Any) -> None:
        if isinstance(request, OffsetCommitRequest):
            self.world.judge(lambda: self.group.on_committed(self.name, request, response))
        elif isinstance(request, HeartbeatRequest | ConsumerGroupHeartbeatRequest) and response.error_code in LOST:
            self.told = now()

    # Its life

    async def live(self) -> None:
        self._consumer()
        self._subscribe()
        while not self.ends:
            await self._act()
            await self._poll()
        if self.ends == "close":
            await self._close()

    def _subscribe(self) -> None:
        self.consumer.subscribe(self.topics, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost)

    async def _act(self) -> None:
        if self.world.is_calm:
            if self.topics != list(TOPICS):
                self.topics = list(TOPICS)
                self._subscribe()
            return
        actions = ["nothing", "nap", "sleep", "commit", "commit some", "subscribe", "end"]
        match self.rng.choices(actions, [900, 20, 4, 30, 20, 5, 8])[0]:
            case "nap":
                await asyncio.sleep(self.rng.uniform(0.3, 4))
            case "sleep":
                await asyncio.sleep(self.rng.choice([SESSION + 1, POLL_INTERVAL + 0.2, POLL_INTERVAL + 5]))
            case "commit":
                await self.commit()
            case "commit some":
                some = {key: found[1] for key, found in self.next.items() if self.rng.random() < 0.5}
                if some:
                    await self.commit(some)
            case "subscribe":
                self.topics = self.rng.choice([["a"], ["b"], ["a", "b"]])
                self._subscribe()
            case "end":
                self.ends = self.rng.choice(["close", "close", "kill"])

    async def commit(self, offsets: dict[TopicPartition, int] | None = None) -> bool:
        began, pauses = now(), self.pause_count
        try:
            await self.consumer.commit(offsets)
            return True
        except KafkaError as error:
            self.world.log(self.name, "cannot commit:", error)
            return False
        finally:
            self.world.check(
                now() - began <= self.limit_ms / 1000 + TRY or self.pause_count != pauses, f"a commit of {self.name} took {now() - began} s"
            )

    async def _poll(self) -> None:
        began, self.in_callbacks, timeout_ms, pauses = now(), 0.0, self.rng.choice([20, 300, 1000]), self.pause_count
        try:
            records = await self.consumer.poll(timeout_ms, max_records=self.rng.choice([1, 10, 500]))
        except KafkaError as error:
            is_ours = self.is_static and error.code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)
            self.world.check(is_ours, f"a poll of {self.name} raised {error!r}")
            records = []
            await asyncio.sleep(0.1)
        took = now() - began - self.in_callbacks
        self.polled_at = now()
        self.world.check(
            took <= timeout_ms / 1000 + 0.1 or self.pause_count != pauses,
            f"a poll of {self.name} for {timeout_ms} ms took {took} s, until {now()}",
        )
        self.world.check(set(self.consumer.assignment()) == set(self.held), f"{self.name} was told of {self.held}")
        for record in records:
            self._read(record)

    def _read(self, record: Any) -> None:
        key, incarnation = TopicPartition(record.topic, record.partition), int(record.value.split()[0])
        self.world.check(key in self.held, f"{self.name} reads {key}, which it does not own")
        before = self.next.get(key)
        if before is None and self.world.topics.incarnations[key.topic] == 0:
            floor = self.held[key]
            self.world.check(record.offset >= floor, f"{self.name} reads {record.offset} of {key}, and {floor} was committed")
        if before is not None and before[0] == incarnation:
            self.world.check(record.offset == before[1], f"{self.name} reads {record.offset} of {key}, and {before[1]} is next")
        self.next[key] = incarnation, record.offset + 1
        self.world.judge(lambda: self.group.read(key, incarnation, record.offset))

    async def _close(self) -> None:
        began, self.in_callbacks, pauses = now(), 0.0, self.pause_count
        await self.consumer.close()
        took = now() - began - self.in_callbacks
        self.world.check(took <= REQUEST_TIMEOUT + TRY or self.pause_count != pauses, f"a close of {self.name} took {took} s")
        self.world.check(not self.held, f"{self.name} has closed, and was not told that it gives up {self.held}")

    # Callbacks

    async def _assigned(self, keys: list[TopicPartition]) -> None:
        self.group.called_at = now()
        self.world.log(self.name, "gets", sorted(keys))
        self.is_in = True
        for key in keys:
            owner = self.group.owners.get(key, (self.name, 0))[0]
            if owner != self.name and owner in self.world.members:
                other = self.world.members[owner]
                other.doomed[key] = now()
                self.world.check(not other.should_be_in(), f"{self.name} gets {key}, which {owner} owns")
            self.group.owners[key] = self.name, now()
            self.held[key] = self.group.floor(key)
            self.next.pop(key, None)

    def should_be_in(self) -> bool:
        """It polls, and nothing keeps its heartbeats from the coordinator."""
        return self.world.is_well_for(CALM + SESSION) and now() - self.polled_at < 2 * HEARTBEAT and not self.ends

    async def _revoked(self, keys: list[TopicPartition]) -> None:
        began = now()
        for key in keys:  # it is judged by what it was told before
            self.world.check(
                key not in self.doomed or self.told < self.doomed[key], f"{self.name} has lost {key}, and is told that it gives it up"
            )
        if not self.world.is_calm and self.rng.random() < 0.3:
            await asyncio.sleep(self.rng.choice([0.1, 2]))
        if self.rng.random() < 0.3:
            await self.commit()
        self._gone(keys)
        self.in_callbacks += now() - began

    async def _lost(self, keys: list[TopicPartition]) -> None:
        self.world.check(not self.should_be_in(), f"{self.name} has lost {keys}")
        self.world.log(self.name, "has lost", sorted(keys))
        self._gone(keys)

    def _gone(self, keys: list[TopicPartition]) -> None:
        self.group.called_at = now()
        self.world.log(self.name, "has given up", sorted(keys))
        for key in keys:
            self.held.pop(key, None)
            self.next.pop(key, None)
            self.doomed.pop(key, None)
            if self.group.owners.get(key, ("", 0))[0] == self.name:
                del self.group.owners[key]
