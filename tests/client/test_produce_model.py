"""The laws of sending, from three brokers that are killed, hang, leave in order, and whose links are cut or slow.

Each record is acknowledged or fails in its time, and calls end in theirs. What is acknowledged is in the log; with idempotence it is there
once, and in the order in which it was sent. What its leader and the replicas in sync can take is acknowledged soon, whatever the other
brokers do. ``OTTLA_SEEDS`` says how many seeds are tried.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable
from typing import Any, Final

import pytest
from tests.client.faults import KINDS, NODES, Faults
from tests.cluster.in_simulation import SimNodes, play

from ottla.client.late_answers import AGAIN_MS, LATE_MS
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import KafkaError
from ottla.sim.cluster import SimClient
from ottla.storage.log.replay import records_between
from ottla.types import TopicPartition

SEEDS: Final = int(os.environ.get("OTTLA_SEEDS", "0")) or 3
WRITER: Final = "writer"  # its machine
FAULT_COUNT: Final = 8
LAYOUTS: Final = {"alone": [[1], [2], [3]], "kept": [[1, 2, 3], [2, 3, 1], [3, 1, 2]]}
CALM: Final = 15.0
"""Seconds without a fault after which a broker is well: a session, and what follows its end."""
FOUND_AFTER: Final = (10_000 + LATE_MS + AGAIN_MS) / 1000
"""Seconds after which the producer has found a new leader: it may be connecting to the old one."""
REQUEST_TIMEOUT_MS: Final = 60_000
"""Longer than any fault lasts: nothing waits for its end that another broker can take."""
TRY: Final = 1.2
"""Seconds that a call may take longer than its limit: its last try has one."""
ROOMY: Final = 10_000_000
LONG_MS: Final = 120_000


def now() -> float:
    return asyncio.get_running_loop().time()


class Sent:
    """A record, and when it was sent and ended."""

    def __init__(self, key: TopicPartition, value: bytes, producer: int, future: asyncio.Future[Any]) -> None:
        self.key = key
        self.value = value
        self.producer = producer
        self.future = future
        self.since = now()
        self.ended: float | None = None
        future.add_done_callback(self._on_end)

    def _on_end(self, future: asyncio.Future[Any]) -> None:
        self.ended = now()
        future.exception()  # seen

    @property
    def is_acknowledged(self) -> bool:
        return self.future.exception() is None


class World:
    """The brokers, who sends to them, and their faults."""

    def __init__(self, nodes: SimNodes, seed: int) -> None:
        self.nodes = nodes
        self.rng = rng = nodes.simulation.random("produce model")
        self.layouts = rng.choice([["alone"], ["kept"], ["alone", "kept"], ["alone", "kept"]])
        self.keys: list[TopicPartition] = []
        self.records: list[Sent] = []
        self.pending: list[Sent] = []
        self.faults = Faults(nodes, self.rng, WRITER)
        self.led: dict[TopicPartition, tuple[int | None, float]] = {}
        self.harmed_at: dict[int, float] = dict.fromkeys(NODES, 0.0)  # a leader: last time that it, or a replica it waits for, was not well
        self.made_at = 0.0
        self.is_broad = rng.random() < 0.5  # each request has batches of many partitions
        self.is_over = False
        is_idempotent = rng.random() < 0.7
        self.settings: dict[str, Any] = {
            "enable_idempotence": is_idempotent,
            "acks": "all" if is_idempotent else rng.choice(["all", "1"]),
            "linger_ms": rng.choice([0, 5, 100]),
            "batch_size": rng.choice([200, 16_384]),
            "compression_type": rng.choice(["none", "gzip"]),
            "delivery_timeout_ms": rng.choice([10_000, LONG_MS, LONG_MS]),
            "buffer_memory": rng.choice([3_000, ROOMY]),
            "max_block_ms": rng.choice([2_000, 60_000]),
        }
        self.metadata_max_age_ms = rng.choice([5_000, 300_000])

    async def make(self, name: str) -> None:
        for layout in self.layouts:
            await self.nodes.create(name + layout, *LAYOUTS[layout])
            self.keys += [TopicPartition(name + layout, index) for index in range(len(NODES))]

    # Who sends

    async def write(self, client: SimClient) -> None:
        numbers = itertools.count()
        for producer_number in itertools.count():
            if self.is_over:
                return
            cluster = client.cluster()
            cluster.metadata_max_age_ms = self.metadata_max_age_ms
            producer = Producer(cluster, ProducerSettings(**self.settings))
            self.made_at = now()
            for _ in range(self.rng.choice([50, 1500])):
                if self.is_over:
                    break
                await self._act(producer, producer_number, numbers)
            await self._ends(producer.close(), self.settings["delivery_timeout_ms"], "close")
            self._check_pace()
            assert not self.pending, "no record is left after a close"
            assert producer.metrics().buffer_used_bytes == 0

    async def _act(self, producer: Producer, producer_number: int, numbers: itertools.count[int]) -> None:
        is_roomy = self.settings["buffer_memory"] == ROOMY
        limit_ms = min(self.settings["max_block_ms"], LATE_MS if is_roomy else LONG_MS)
        for key in self.keys if self.is_broad else self.rng.choices(self.keys, k=self.rng.choice([1, 1, 20])):
            value = b"%d" % next(numbers) + b" " * self.rng.choice([0, 0, 50])
            future = await self._ends(producer.send(key.topic, value, partition=key.partition), limit_ms, "send")
            if future is not None:
                self.records.append(Sent(key, value, producer_number, future))
                self.pending.append(self.records[-1])
        if self.rng.random() < 0.01:
            await self._ends(producer.flush(), self.settings["delivery_timeout_ms"], "flush")
        until = now() + self.rng.choice([0.01, 0.1, 0.5, 2])
        while now() < until:
            await asyncio.sleep(min(0.25, max(0.001, until - now())))
            self._check_pace()

    async def _ends(self, call: Awaitable[Any], limit_ms: int, name: str) -> Any:
        """What the call returns in its time; None where it raises."""
        began = now()
        try:
            return await call
        except KafkaError:
            return None
        finally:
            assert now() - began <= limit_ms / 1000 + TRY, f"{name} took {now() - began} s"

    def _check_pace(self) -> None:
        limit = self.settings["delivery_timeout_ms"] / 1000 + 0.5
        for record in self.pending:
            assert (record.ended or now()) - record.since <= limit, f"{record.value!r} of {record.key} was sent at {record.since}"
        self.pending = [record for record in self.pending if record.ended is None]
        # A short delivery_timeout_ms takes a new id for the producer each time, which may be asked of a broker that hangs.
        soon = self.settings["linger_ms"] / 1000 + 1.7 + (0 if self.settings["delivery_timeout_ms"] == LONG_MS else 2 * LATE_MS / 1000)
        for record in self.pending:
            well_since = self._well_since(record.key)
            if well_since is not None:
                since = max(record.since, well_since, self.made_at + 2 * LATE_MS / 1000 + 2)
                assert now() - since < soon, f"{record.value!r} of {record.key}, sent at {record.since}, waits since {since} at {now()}"

    def _well_since(self, key: TopicPartition) -> float | None:
        """From when on the leader, and all replicas that it waits for, have been well; None while one is not.

        Batches of several partitions go in one request, which is answered when the last of them is.
        """
        leader = self.faults.leader(key)
        if self.led.get(key, (None, 0.0))[0] != leader:
            self.led[key] = leader, now()
        if leader is None:
            return None
        needed = {leader}
        if self.settings["acks"] == "all":
            led = (each for each in self.keys if self.faults.leader(each) == leader)
            needed = needed.union(*(self.nodes.in_sync(leader, each.topic, each.partition) for each in led))
        if any(self.faults.is_under_way(node) for node in needed):
            self.harmed_at[leader] = now()
            return None
        well_since = max(
            self.led[key][1] + FOUND_AFTER, self.harmed_at[leader] + FOUND_AFTER, *(self.faults.well_at[node] + CALM for node in needed)
        )
        return well_since if well_since <= now() else None

    # What goes wrong

    async def disturb(self) -> None:
        for number in range(FAULT_COUNT):
            await asyncio.sleep(self.rng.uniform(1, 25))
            if self.rng.random() < 0.3:
                await self.make(f"made-{number}-")
            await self.faults.befall(self.rng.choice([*KINDS, "hang", "cut"]))

    # What is true at the end

    async def check(self) -> None:
        assert sum(record.is_acknowledged for record in self.records) > 300, "most of the run was spent with sending"
        for key in self.keys:
            leader = self.faults.leader(key)
            assert leader is not None, "every broker is well"
            partition = self.nodes.partition(leader, key.topic, key.partition)
            reading = records_between(partition.log, partition.log.log_start_offset, partition.high_watermark, check_crc=True)
            log = {record.offset: record.value or b"" async for found in reading for record in found}
            acknowledged = {record.value: record for record in self.records if record.key == key and record.is_acknowledged}
            if self.settings["acks"] == "all":
                for value, record in acknowledged.items():
                    offset = record.future.result().offset  # -1 of one that was acknowledged as a double
                    assert log.get(offset) == value if offset >= 0 else value in log.values(), f"{value!r} of {key} at {offset}"
            if self.settings["enable_idempotence"]:
                assert len(set(log.values())) == len(log), f"{key} has a record twice"
                order = [(acknowledged[value].producer, int(value)) for value in log.values() if value in acknowledged]
                assert order == sorted(order), f"{key} is not in order"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_laws_of_sending_hold_whatever_happens_to_brokers(seed: int) -> None:
    async def body(nodes: SimNodes) -> None:
        world = World(nodes, seed)
        await world.make("t-")
        client = SimClient(nodes.simulation, WRITER, nodes.bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
        writing = asyncio.create_task(client.machine.run(world.write(client)))
        disturbing = asyncio.create_task(world.disturb())
        await asyncio.wait([disturbing, writing], return_when=asyncio.FIRST_COMPLETED)
        for task in (disturbing, writing):
            if task.done():
                task.result()
        world.is_over = True
        await writing
        await world.check()

    play(body, seed=seed)
