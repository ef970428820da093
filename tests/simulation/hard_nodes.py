"""What clients do beside ``replicated_work`` where disks are slow for seconds, or full.

They have five requests in flight, write to topics that were made just now, and change ``min.insync.replicas``, features and replicas
meanwhile; a topic is deleted and made again under its name while it is written to; strangers speak at every listener. A third of the seeds
change values: under ``min.insync.replicas=1``, or without eligible leader replicas, one loss of power may cost what was acknowledged, so
that no power is cut there.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from tests.simulation.explorer import Events, Trial
from tests.simulation.failing_disks import unexpected_errors
from tests.simulation.fleeting import FLEETING, FLEETING_KEYS, go_and_come
from tests.simulation.quorum_nodes import CONTROLLER_PORT, all_errors
from tests.simulation.replicated_work import ALL, REPLICATED, Work

from ottla.client.admin import Admin, Broker, NewTopic, Topic, UpgradeType
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.controller.features import ELR_VERSION, MIN_ISR
from ottla.errors import KafkaError
from ottla.ports import Connection
from ottla.sim.cluster import PORT, SimClient
from ottla.sim.workload import count_while
from ottla.types import TopicPartition

FRESH_PARTITIONS: Final = 2
FULL_ERRORS: Final = frozenset(
    {
        *("log_append_failed", "shard_append_failed", "shard_not_loaded", "partition_offline", "checkpoints_not_written"),
        *("log_start_not_written", "retention_without_checkpoints", "log_not_closed", "log_sync_failed", "log_start_not_written"),
    }
)
"""Errors that a broker logs of a disk without room."""


class HardWork(Work):
    """Bursts, topics that are written at once, values that change, strangers."""

    def __init__(self, trial: Trial, *, is_in_quorum: bool = True) -> None:
        super().__init__(trial)
        self._is_in_quorum = is_in_quorum
        self.changes_values = changes_values(trial.seed)
        self.topics = [*self.topics, FLEETING]
        self._fresh = 0

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        going = go_and_come(self._client("deleting"), self._simulation.random("deleting"), self._is_over, self._states)
        more = [*(self._burst(f"burst-{number}") for number in range(3)), self._strangers(), self._write_to_what_goes(), going]
        changing = self._client("changing")
        making = self._client("making")
        more.append(making.machine.run(self._make_topics(making)))
        if self.changes_values:
            more.append(changing.machine.run(self._change_values(changing)))
        return [*super().tasks(), *more]

    async def _burst(self, name: str) -> None:
        """Some hundred records as fast as they go, at moments of its own."""
        rng = self._simulation.random(name)
        client = self._client(name, 3000)
        settings = ProducerSettings(acks="all", linger_ms=0, delivery_timeout_ms=600_000)

        async def run() -> None:
            count = 0
            while not self._is_over.is_set():
                await asyncio.sleep(rng.uniform(0.2, 3))
                count += 1
                sent = rng.randrange(10, 150)
                await count_while(
                    self.history, client.cluster(), f"{name}.{count}", [rng.choice(ALL)],
                    goes_on=lambda number, sent=sent: number < sent, settings=settings, pause_seconds_max=0.005,  # type: ignore[misc]
                )  # fmt: skip

        await client.machine.run(run())

    async def _write_to_what_goes(self) -> None:
        """Nothing is promised of it."""
        rng, client = self._simulation.random("fleeting"), self._client("fleeting", 3000)
        settings = ProducerSettings(acks="all", enable_idempotence=False, linger_ms=0, delivery_timeout_ms=4000)

        async def run() -> None:
            producer = Producer(client.cluster(), settings)
            while not self._is_over.is_set():
                await asyncio.sleep(rng.choice([0, rng.uniform(0, 0.2)]))
                key = rng.choice(FLEETING_KEYS)
                try:
                    sent = await producer.send(key.topic, rng.randbytes(rng.randrange(400)), partition=key.partition)
                    await sent
                    self._states["written to a topic that goes"] += 1
                except KafkaError:
                    continue
            with suppress(KafkaError):
                await producer.close()

        await client.machine.run(run())

    async def _make_topics(self, client: SimClient) -> None:
        """Producers that have their ids already begin each topic as soon as it is there."""
        admin, rng = Admin(client.cluster()), self._simulation.random("making")
        writing = list[asyncio.Task[None]]()
        while not self._is_over.is_set():
            await asyncio.sleep(rng.uniform(0.5, 4))
            self._fresh += 1
            topic = f"fresh-{self._fresh}"
            try:
                [outcome] = (await admin.create_topics([NewTopic(topic, FRESH_PARTITIONS, 3)])).values()
            except KafkaError:
                continue
            if outcome is not None:
                continue
            self.promised.add(topic)
            self._states["topics made"] += 1
            partitions = [TopicPartition(topic, index) for index in range(FRESH_PARTITIONS)]
            settings = ProducerSettings(acks="all", linger_ms=0, delivery_timeout_ms=600_000)
            writing.append(
                asyncio.ensure_future(
                    count_while(
                        self.history, client.cluster(), topic, partitions, goes_on=lambda number: number < 40,
                        settings=settings, pause_seconds_max=0.01,
                    )
                )
            )  # fmt: skip
        await asyncio.gather(*writing)
        await admin.close()

    async def _change_values(self, client: SimClient) -> None:
        admin, rng = Admin(client.cluster()), self._simulation.random("changing")
        while not self._is_over.is_set():
            await asyncio.sleep(rng.uniform(0.3, 3))
            try:
                match rng.randrange(4 if self._is_in_quorum else 2):
                    case 0 | 1:
                        await admin.alter_configs({Topic(REPLICATED): _min_isr(rng.choice(["1", "2", "3", None]))})
                        self._states["min.insync.replicas changed"] += 1
                    case 2:
                        await admin.alter_configs({Broker(): _min_isr(rng.choice(["1", "2"]))})
                        self._states["min.insync.replicas of all changed"] += 1
                    case _:
                        level = rng.randrange(2)
                        kind = UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE
                        await admin.update_features({ELR_VERSION: level}, upgrade_type=kind)
                        self._states[f"eligible leader replicas: {level}"] += 1
            except KafkaError:
                continue
        for attempt in range(100):  # as it began: the judge waits for whole ISRs
            try:
                await admin.alter_configs({Topic(REPLICATED): _min_isr(None)})
                break
            except KafkaError:
                await asyncio.sleep(0.2 * attempt)
        else:
            raise AssertionError("min.insync.replicas could not be set back")
        await admin.close()

    async def _strangers(self) -> None:
        """Bytes of no protocol, lengths beyond all bounds, connections that say nothing."""
        client, rng = self._client("stranger"), self._simulation.random("strangers")
        world = client.machine.boot()
        ports = [PORT, CONTROLLER_PORT] if self._is_in_quorum else [PORT]

        async def run() -> None:
            while not self._is_over.is_set():
                await asyncio.sleep(rng.uniform(0.2, 2))
                host, port = f"node-{rng.randrange(1, 4)}", rng.choice(ports)
                try:
                    async with asyncio.timeout(3):
                        connection = await world.network.connect(host, port, _silent)
                except OSError:
                    continue
                connection.send([_nonsense(rng.randrange(6), rng.randbytes(60))])
                self._states["strangers"] += 1
                await asyncio.sleep(rng.uniform(0, 1))
                connection.close()

        await client.machine.run(run())


class _Silent:
    def on_data(self, data: memoryview) -> bool:
        return False

    def room(self) -> memoryview | None:
        return None

    def on_drain(self) -> None: ...
    def on_close(self, error: Exception | None) -> None: ...


def _silent(connection: Connection) -> _Silent:
    return _Silent()


def _nonsense(kind: int, noise: bytes) -> bytes:
    match kind:
        case 0:
            return noise
        case 1:
            return struct.pack(">i", 2**31 - 1) + noise
        case 2:
            return struct.pack(">i", -1) + noise
        case 3:
            return struct.pack(">ihhi", len(noise) + 8, noise[0] % 90, noise[1] % 14, 7) + noise
        case 4:
            return struct.pack(">i", 1000) + noise  # the rest never comes
    return b""


def _min_isr(value: str | None) -> dict[str, str | None]:
    return {MIN_ISR: value}


def changes_values(seed: int) -> bool:
    return seed % 3 == 0


def errors_beside_full_disks(events: Events) -> list[str]:
    return all_errors([event for event in events if event["event"] not in FULL_ERRORS])


def zookeeper_errors_beside_full_disks(events: Events) -> list[str]:
    return unexpected_errors([event for event in events if event["event"] not in FULL_ERRORS])
