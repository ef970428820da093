"""The laws of a group's members, beside three brokers that are killed, hang, leave in order, and whose links are cut or slow."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from tests.client.faults import KINDS, Faults
from tests.client.group_laws import Group, now
from tests.client.simulated import consumer_of
from tests.cluster.in_simulation import SimNodes, play

from ottla.client.admin import Admin, NewTopic
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.messages.heartbeat import HeartbeatRequest
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.sim.cluster import SimClient
from ottla.sim.interference import Interference
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

SEEDS: Final = int(os.environ.get("OTTLA_SEEDS", "0")) or 3
TOPICS: Final = {"a": 3, "b": 2}
SLOTS: Final = 3
PHASES: Final = 2
SESSION: Final = 10.0
HEARTBEAT: Final = 1.0
POLL_INTERVAL: Final = 14.0
REQUEST_TIMEOUT: Final = 30.0
CALM: Final = 15.0
SETTLED: Final = CALM + SESSION + POLL_INTERVAL + 10
AT_ONCE: Final = 6.0
FOUND: Final = 14.0  # some 11 s
RECOVERY: Final = 100.0
TRY: Final = 1.2
LOST: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID)
PROTOCOLS: Final = ("range", "cooperative-sticky", "both", "consumer", "consumer", "mixed")


class Member:
    """One life of a consumer, on a machine of its own."""

    def __init__(self, world: World, name: str, instance: str | None) -> None:
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
        if before is None and self.world.incarnations[key.topic] == 0:
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
        if not self.world.is_calm and self.rng.random() < 0.3:
            await asyncio.sleep(self.rng.choice([0.1, 2]))
        if self.rng.random() < 0.3:
            await self.commit()
        for key in keys:
            self.world.check(
                key not in self.doomed or self.told < self.doomed[key], f"{self.name} has lost {key}, and is told that it gives it up"
            )
        self._gone(keys)
        self.in_callbacks += now() - began

    async def _lost(self, keys: list[TopicPartition]) -> None:
        self.world.check(not self.should_be_in() or self.world.is_disturbed, f"{self.name} has lost {keys}")
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


class World:
    def __init__(self, nodes: SimNodes, seed: int) -> None:
        self.nodes = nodes
        self.rng = nodes.simulation.random("group model")
        self.protocol = self.rng.choice(PROTOCOLS)
        self.group = Group("g")
        self.faults = Faults(nodes, self.rng, "nobody")
        self.incarnations = dict.fromkeys(TOPICS, 0)
        self.counts = dict(TOPICS)
        self.acknowledged: dict[tuple[TopicPartition, int], int] = {}  # the offset after the last one
        self.members: dict[str, Member] = {}
        self.sending: set[asyncio.Task[None]] = set()
        self.is_writing = True
        self.is_calm = False
        self.is_disturbed = False
        self.disturbed_at = 0.0
        self.is_over = False
        self.findings: list[str] = []
        self.found = asyncio.Event()
        self.joining: list[asyncio.Task[None]] = []
        self.numbers = itertools.count()

    def check(self, is_so: bool, text: str) -> None:
        if not is_so:
            self.findings.append(f"{text} ({now():.3f})")
            self.found.set()
            raise AssertionError(text)

    def judge(self, law: Callable[[], None]) -> None:
        try:
            law()
        except AssertionError as error:
            self.check(False, str(error))

    def is_well_for(self, seconds: float) -> bool:
        return (
            not self.is_disturbed
            and now() - self.disturbed_at > seconds
            and all(at + seconds < now() for at in self.faults.well_at.values())
        )

    # Who writes

    async def write(self, client: SimClient) -> None:
        producer = Producer(client.cluster(), ProducerSettings(acks="all"))
        numbers = itertools.count()

        async def send(key: TopicPartition) -> None:
            incarnation = self.incarnations[key.topic]
            try:
                sent = await producer.send_and_wait(key.topic, b"%d %d" % (incarnation, next(numbers)), partition=key.partition)
            except KafkaError:
                return
            of = key, incarnation
            self.acknowledged[of] = max(self.acknowledged.get(of, 0), sent.offset + 1)

        while not self.is_over:
            if self.is_writing:
                topic = self.rng.choice(list(TOPICS))
                key = TopicPartition(topic, self.rng.randrange(self.counts[topic]))
                for _ in range(self.rng.choice([1, 1, 10])):
                    task = asyncio.create_task(send(key))
                    self.sending.add(task)
                    task.add_done_callback(self.sending.discard)
            await asyncio.sleep(self.rng.choice([0.2, 1, 2]))
        await asyncio.gather(*self.sending)
        await producer.close()

    # Who reads

    async def fill(self, slot: int) -> None:
        """One member after the other; none while all is calm."""
        rng = self.nodes.simulation.random(f"slot {slot}")
        instance = f"i{slot}" if rng.random() < 0.3 else None
        while not self.is_over:
            await self.live(slot, instance)
            await asyncio.sleep(rng.choice([0, 0.5, 5]))
            while self.is_calm and self.members and not self.is_over:
                await asyncio.sleep(0.5)

    async def live(self, slot: int, instance: str | None) -> None:
        member = Member(self, f"m{slot}-{next(self.numbers)}", instance)
        self.members[member.name] = member
        try:
            await member.client.machine.run(member.live())
            if member.ends == "kill":
                member.client.machine.kill_process()
        finally:
            del self.members[member.name]
            for key in [key for key, (owner, _) in self.group.owners.items() if owner == member.name]:
                del self.group.owners[key]

    # What goes wrong

    async def run(self) -> None:
        for _ in range(PHASES):
            self.is_calm, self.is_disturbed = False, True
            for _ in range(3):
                await asyncio.sleep(self.rng.uniform(1, 20))
                await self._disturb(self.rng.choice([*KINDS, "hang", "cut", "pause", "pause", "grow", "remake"]))
            self.is_calm = True
            await self._settled(SETTLED, "after all faults")
            await asyncio.sleep(CALM + POLL_INTERVAL)
            await self._settled(AT_ONCE, "while all is well")
            self.is_disturbed, self.disturbed_at = False, now()
            for _ in range(2):
                await self._meet(
                    self.rng.choice(
                        ["leave", "leave", "kill", "join", "join", "hang", "kill coordinator", "stop coordinator", "elect", "grow"]
                    )
                )
        self.is_writing = False
        await asyncio.gather(*self.sending)
        deadline = now() + RECOVERY
        while behind := [
            of for of, end in self.acknowledged.items() if self.incarnations[of[0].topic] == 0 and self.group.reached.get(of, 0) < end
        ]:
            self.check(now() < deadline, f"the group never reads the rest of {behind}")
            await asyncio.sleep(0.5)
        self.is_over = True
        for member in self.members.values():
            member.ends = "close"

    async def _disturb(self, kind: str) -> None:
        member = self.rng.choice(list(self.members.values()) or [None])
        self.log(kind, member and member.name)
        if kind == "grow":
            await self._grow(self.rng.choice(list(TOPICS)))
        elif kind == "remake":
            await self._remake("b")
        elif kind == "pause" and member is not None:
            member.pause_count += 1
            member.client.machine.pause_process()
            await asyncio.sleep(self.rng.choice([2, SESSION + 2, POLL_INTERVAL + 4]))
            member.client.machine.resume_process()
        elif kind != "pause":
            self.faults.client = member.name if member is not None else "nobody"
            await self.faults.befall(kind)

    async def _grow(self, topic: str) -> None:
        self.counts[topic] += 1
        await self._administer(lambda admin: admin.create_partitions({topic: self.counts[topic]}), ErrorCode.INVALID_PARTITIONS)

    async def _remake(self, topic: str) -> None:
        self.is_writing = False
        await asyncio.gather(*self.sending)
        self.group.forget(topic)
        await self._administer(lambda admin: admin.delete_topics([topic]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.incarnations[topic] += 1
        self.counts[topic] = TOPICS[topic]
        await self.make(topic)
        self.is_writing = True

    async def make(self, topic: str) -> None:
        places = {index: [1 + (index + place) % 3 for place in range(3)] for index in range(TOPICS[topic])}
        await self._administer(lambda admin: admin.create_topics([NewTopic(topic, assignments=places)]), ErrorCode.TOPIC_ALREADY_EXISTS)

    async def _administer(self, ask: Callable[[Admin], Awaitable[dict[str, KafkaError | None]]], done: ErrorCode | None = None) -> None:
        """``done`` says that an earlier try has done it, which had no answer."""
        deadline = now() + RECOVERY
        while True:
            try:
                (error,) = (await self.nodes.act(lambda cluster: ask(Admin(cluster)))).values()
            except KafkaError as raised:
                error = raised
            if error is None or error.code == done:
                return
            assert now() < deadline, error
            await asyncio.sleep(1)

    # What is met while all is well

    def is_divided(self) -> bool:
        held = [key for member in self.members.values() for key in member.held]
        return all(member.is_in for member in self.members.values()) and len(held) == len(set(held)) == sum(self.counts.values())

    async def _settled(self, limit: float, why: str) -> None:
        """The group has divided all partitions, and goes on with that."""
        since = now()
        while not self.is_divided():
            self.check(
                now() - since <= limit,
                f"{why}: not settled since {since}: {[(m.name, [f'{key}' for key in m.held]) for m in self.members.values()]}",
            )
            await asyncio.sleep(0.1)
        deadline = now() + limit
        while now() - self.group.called_at < 2 * HEARTBEAT + 0.5 or not self.is_divided():
            self.check(now() < deadline, f"{why}: not at rest since {since}")
            await asyncio.sleep(0.1)

    async def _meet(self, kind: str) -> None:
        self.log("meet", kind)
        dynamic = [member for member in self.members.values() if not member.is_static]
        match kind:
            case "leave" | "kill" if len(self.members) > 1 and dynamic:
                member = self.rng.choice(dynamic)
                member.ends = "close" if kind == "leave" else "kill"
                began = now()
                while member.name in self.members:
                    await asyncio.sleep(0.05)
                self.check(now() - began <= 3, f"{member.name} left in {now() - began} s")
                await self._settled(AT_ONCE if kind == "leave" else SESSION + AT_ONCE, f"after the {kind} of {member.name}")
            case "join":
                self.joining.append(asyncio.create_task(self.live(9, None)))
                await asyncio.sleep(0.1)
                await self._settled(AT_ONCE, "after a join")
            case "grow":
                await self._grow("a")
                await self._settled(5 + AT_ONCE, "after a topic has grown")
            case "hang" | "kill coordinator" | "stop coordinator" | "elect":
                await self._change_coordinator(kind)
        await asyncio.sleep(1)

    async def _change_coordinator(self, kind: str) -> None:
        """Nobody loses anything by it, and commits go on soon."""
        leader = self.faults.leader(TopicPartition(GROUP_METADATA_TOPIC, 0))
        assert leader is not None
        node = self.nodes.nodes[leader]
        before = self.group.called_at
        began = now()
        match kind:
            case "hang":
                node.machine.pause_process()
            case "kill coordinator":
                node.kill(power_cut=False)
            case "stop coordinator":
                await node.stop()
            case "elect":
                await self.nodes.act(lambda cluster: Admin(cluster).elect_leaders(None))
        members = list(self.members.values())
        commits = [member.client.machine.run(member.commit()) for member in members]
        stored = await asyncio.gather(*commits)
        took = now() - began
        self.check(all(stored), f"{kind} of {leader}: a commit failed")
        self.check(took <= (FOUND if kind == "hang" else AT_ONCE), f"{kind} of {leader}: commits took {took} s")
        await asyncio.sleep(max(0, 30 - took))
        self.check(self.group.called_at == before, f"{kind} of {leader}: partitions moved at {self.group.called_at}")
        match kind:
            case "hang":
                node.machine.resume_process()
            case "kill coordinator" | "stop coordinator":
                node.begin()
        await self.nodes.until(lambda: self.nodes.broker(leader) is not None)
        await asyncio.sleep(CALM)
        self.check(self.group.called_at == before, f"{kind} of {leader}: partitions moved at {self.group.called_at}")

    def log(self, *what: Any) -> None:
        if "OTTLA_TRACE" in os.environ:
            print(f"{now():.3f}", *what)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_laws_of_a_group_hold_whatever_happens_to_brokers(seed: int) -> None:
    async def body(nodes: SimNodes) -> None:
        world = World(nodes, seed)
        for topic in TOPICS:
            await world.make(topic)
        writer = SimClient(nodes.simulation, "writer", nodes.bootstrap)
        running = [
            asyncio.create_task(world.run()),
            asyncio.create_task(writer.machine.run(world.write(writer))),
            *(asyncio.create_task(world.fill(slot)) for slot in range(SLOTS)),
        ]
        finding = asyncio.create_task(world.found.wait())
        left = set(running)
        while left and not world.findings:
            done, _ = await asyncio.wait([finding, *left], return_when=asyncio.FIRST_COMPLETED)
            assert not world.findings, world.findings
            for task in done:
                task.result()
            left -= done
        await asyncio.gather(*world.joining)
        assert not world.findings, world.findings

    play(
        body,
        seed=seed,
        auto_create_topics_enable="false",
        offsets_topic_num_partitions="1",
        offsets_topic_replication_factor="3",
        group_consumer_session_timeout_ms=str(int(SESSION * 1000)),
        group_consumer_min_session_timeout_ms="1000",
        group_consumer_heartbeat_interval_ms=str(int(HEARTBEAT * 1000)),
        group_consumer_min_heartbeat_interval_ms="100",
        group_consumer_assignment_interval_ms="0",
    )
