"""Three shipped nodes, clients that produce, read in a group and commit, and nodes that are killed, paused and cut off one at a time.

Each partition has one replica: what its broker led is nobody's while that is fenced, and goes on where it was when it is back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import structlog
from tests.simulation.quorum_nodes import NODES, QuorumNode

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetcher import FetchSettings
from ottla.client.producer import Producer, ProducerSettings
from ottla.errors import KafkaError
from ottla.sim.cluster import SimClient, Simulation
from ottla.sim.loop import run
from ottla.types import TopicPartition

PARTITIONS = 6
WORK_SECONDS = 40
HEAL_SECONDS = 240


@dataclass
class Run:
    """What one seed met and found."""

    findings: list[str] = field(default_factory=list)
    produced: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    read: Counter[bytes] = field(default_factory=Counter)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    digest: str = ""


class Story:
    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.nodes = [QuorumNode(self.simulation, node) for node in range(1, NODES + 1)]
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes)
        self.result = Run()
        self.is_over = self.is_all_known = False

    def client(self, name: str) -> SimClient:
        return SimClient(self.simulation, name, self.bootstrap, request_timeout_ms=5000)


def explore_following(seed: int) -> Run:
    story = Story(seed)
    with structlog.testing.capture_logs() as events:
        run(_main(story))
    for event in events:
        if event["log_level"] in ("error", "critical"):
            story.result.findings.append(f"{event['event']}: {event.get('reason') or event.get('error') or event.get('exc_info')!r}")
        story.result.states[event["event"]] += 1
    story.result.digest = story.simulation.trace.digest
    return story.result


async def _main(story: Story) -> None:
    loop = asyncio.get_running_loop()
    for node in story.nodes:
        await node.format()
        node.begin()
    clients = [story.client(name) for name in ("admin", "producer-0", "producer-1", "reader-0", "reader-1")]
    admin = Admin(clients[0].cluster())
    await clients[0].machine.run(_create(admin))
    producing = [loop.create_task(client.machine.run(_produce(story, number, client))) for number, client in enumerate(clients[1:3])]
    reading = [loop.create_task(client.machine.run(_read(story, client))) for client in clients[3:]]
    await _trouble(story)
    story.is_over = True
    async with asyncio.timeout(HEAL_SECONDS):
        for node in story.nodes:
            if node.starting is not None:
                await node.starting
        await asyncio.gather(*producing)
        story.is_all_known = True
        await asyncio.gather(*reading)
        await _judge(story, clients[0], admin)


async def _create(admin: Admin) -> None:
    """Once all brokers are there, so that each leads something."""
    while True:
        try:
            if len((await admin.describe_cluster()).nodes) == NODES:
                await admin.create_topics([NewTopic("t", PARTITIONS)])
                await admin.describe_topic("t")
                return
        except KafkaError:
            pass
        await asyncio.sleep(1)


async def _produce(story: Story, number: int, client: SimClient) -> None:
    producer = Producer(client.cluster(), ProducerSettings(linger_ms=0, delivery_timeout_ms=HEAL_SECONDS * 1000))
    sending: set[asyncio.Task[None]] = set()

    async def send(key: TopicPartition, value: bytes) -> None:
        try:
            sent = await producer.send_and_wait(key.topic, value, partition=key.partition)
        except KafkaError as error:
            story.result.states[f"not delivered: {error.code.name}"] += 1
            return
        story.result.produced.setdefault(key, {})[sent.offset] = value

    count = 0
    while not story.is_over:
        count += 1
        sending.add(asyncio.get_running_loop().create_task(send(TopicPartition("t", count % PARTITIONS), b"%d-%d" % (number, count))))
        await asyncio.sleep(0.05)
    await asyncio.gather(*sending)
    await producer.close()


async def _read(story: Story, client: SimClient) -> None:
    fetch = FetchSettings(auto_offset_reset="earliest")
    consumer = Consumer(client.cluster(), ConsumerSettings(group_id="readers", enable_auto_commit=False, fetch=fetch))
    consumer.subscribe(["t"])
    result = story.result

    def is_done() -> bool:
        return story.is_all_known and all(value in result.read for values in result.produced.values() for value in values.values())

    while not is_done():
        try:
            records = await consumer.poll(500)
            result.read.update(record.value or b"" for record in records)
            if records:
                ends = {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
                await consumer.commit(ends)
                for key, end in ends.items():
                    result.committed[key] = max(result.committed.get(key, 0), end)
        except KafkaError as error:
            result.states[f"reader: {error.code.name}"] += 1
    await consumer.close()


async def _trouble(story: Story) -> None:
    rng = story.simulation.random("trouble")
    loop = asyncio.get_running_loop()
    end = loop.time() + WORK_SECONDS
    await asyncio.sleep(3)
    while loop.time() < end:
        node = rng.choice(story.nodes)
        kind = rng.choice(["kill", "stop", "pause", "dark"])
        story.result.states[f"trouble: {kind}"] += 1
        for_seconds = rng.choice([0.1, 1, 4, 12])
        if kind == "kill":
            node.kill(power_cut=False)
            await asyncio.sleep(for_seconds)
            node.begin()
        elif kind == "stop" and node.is_up:
            await node.stop()
            await asyncio.sleep(for_seconds)
            node.begin()
        elif kind == "pause":
            node.machine.pause_process()
            await asyncio.sleep(for_seconds)
            node.machine.resume_process()
        elif kind == "dark":
            story.simulation.fabric.darken(node.machine.name)
            await asyncio.sleep(for_seconds)
            story.simulation.fabric.lighten(node.machine.name)
        if node.starting is not None and rng.random() < 0.7:
            await node.starting
        await asyncio.sleep(rng.uniform(0.2, 3))


async def _judge(story: Story, client: SimClient, admin: Admin) -> None:
    result = story.result
    logs: dict[TopicPartition, list[tuple[int, bytes]]] = {}
    for node in story.nodes:
        logs |= {key: records for key, records in (await node.logs()).items() if key.topic == "t"}
    for key, values in result.produced.items():
        stored = dict(logs.get(key, []))
        lost = {offset for offset, value in values.items() if stored.get(offset) != value}
        if lost:
            result.findings.append(f"acknowledged records of {key} are not in the log: {sorted(lost)[:5]}")
        if len(set(stored.values())) < len(stored):
            result.findings.append(f"{key} has records twice, and the producers are idempotent")
    found = await client.machine.run(admin.committed_offsets("readers"))
    for key, offset in result.committed.items():
        if key not in found or found[key].offset < offset:
            result.findings.append(f"{key} was committed up to {offset}, and is at {found.get(key)}")
    await client.machine.run(admin.close())
