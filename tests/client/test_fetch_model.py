"""The laws of fetching, from three brokers that are killed, hang, leave in order, and whose links are cut or slow.

What is handed out after a seek are the records from there on, each once, in their order, and no aborted one with read_committed. Nothing
is of a partition that is paused, or no longer assigned. A partition whose own leader is well keeps up, whatever the other brokers do.
``OTTLA_SEEDS`` says how many seeds are tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from typing import Any, Final

import pytest
from tests.client.faults import KINDS, NODES, Faults
from tests.client.simulated import consumer_of
from tests.cluster.in_simulation import SimNodes, play

from ottla.client.admin import Admin
from ottla.client.consumer import Consumer
from ottla.client.flights import BRIEF_MS, HELD_MS
from ottla.client.late_answers import AGAIN_MS, LATE_MS
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import KafkaError
from ottla.sim.cluster import SimClient
from ottla.storage.log.replay import records_between
from ottla.types import TopicPartition

SEEDS: Final = int(os.environ.get("OTTLA_SEEDS", "0")) or 3
KEYS: Final = [TopicPartition("t", index) for index in range(6)]
READER: Final = "reader"  # its machine
FAULT_COUNT: Final = 12
SOON: Final = (HELD_MS + BRIEF_MS) / 1000 + 0.5
CALM: Final = 15.0
"""Seconds without a fault after which a broker is well: a session, and what follows its end."""
RECOVERY: Final = 100.0


def now() -> float:
    return asyncio.get_running_loop().time()


class Run:
    """What was handed out of one partition since the application last said where it is to be read from."""

    def __init__(self, start: int | None, next_offset: int) -> None:
        self.start = start  # None while it is the end, and nothing has come
        self.next_offset = next_offset
        self.since = now()
        self.records: list[tuple[int, bytes]] = []


class World:
    """The brokers, who writes to them, and one reader with its faults."""

    def __init__(self, nodes: SimNodes, seed: int) -> None:
        self.nodes = nodes
        self.rng = nodes.simulation.random("fetch model")
        self.acknowledged: dict[TopicPartition, list[tuple[int, float]]] = {key: [] for key in KEYS}  # offsets, and when
        self.committed: set[bytes] = set()
        self.is_transacting = False
        self.transacted_at = 0.0
        self.faults = Faults(nodes, self.rng, READER)
        self.led: dict[TopicPartition, tuple[int | None, float]] = dict.fromkeys(KEYS, (None, 0.0))
        self.led_before: dict[TopicPartition, int | None] = dict.fromkeys(KEYS)
        self.runs: dict[TopicPartition, list[Run]] = {key: [] for key in KEYS}
        self.assigned: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        self.awake_since = 0.0
        self.is_over = False
        self.transacts = self.rng.random() < 0.5
        self.judged_beside_faults = 0  # how often the pace of a partition was, while a broker was not well
        self.settings: dict[str, Any] = {
            "fetch_max_wait_ms": self.rng.choice([500, 500, 5000, 60_000]),
            "max_partition_fetch_bytes": self.rng.choice([150, 1_000_000]),
            "isolation_level": self.rng.choice(["read_committed", "read_uncommitted"]),
        }

    @property
    def found_after(self) -> float:
        """Seconds after which the reader has found a new leader, whether or not the old one answers."""
        return float(self.settings["fetch_max_wait_ms"] + LATE_MS + AGAIN_MS) / 1000

    @property
    def is_committed_only(self) -> bool:
        return bool(self.settings["isolation_level"] == "read_committed")

    # Who writes

    async def write(self, client: SimClient) -> None:
        """One partition has most of the records."""
        producer = Producer(client.cluster(), ProducerSettings(acks="all"))
        numbers = itertools.count()
        sending: set[asyncio.Task[None]] = set()

        async def send(key: TopicPartition) -> None:
            try:
                sent = await producer.send_and_wait(key.topic, b"%d" % next(numbers), partition=key.partition)
            except KafkaError:
                return
            self.acknowledged[key].append((sent.offset, now()))

        while not self.is_over:
            key = self.rng.choice([*KEYS, *[KEYS[0]] * 6])
            for _ in range(self.rng.choice([1, 1, 1, 20])):
                task = asyncio.create_task(send(key))
                sending.add(task)
                task.add_done_callback(sending.discard)
            await asyncio.sleep(self.rng.choice([0.01, 0.1, 0.5, 2]))
        await asyncio.gather(*sending)
        await producer.close()

    async def transact(self, client: SimClient) -> None:
        """Commits some transactions, and aborts the others. What a producer cannot go on after is for the next one."""
        numbers = itertools.count()
        while not self.is_over:
            producer = Producer(client.cluster(), ProducerSettings(acks="all", transactional_id="x", transaction_timeout_ms=15_000))
            try:
                await producer.init_transactions()
                while not self.is_over:
                    await asyncio.sleep(self.rng.choice([0.1, 2]))
                    values = [b"of transactions %d" % next(numbers) for _ in range(self.rng.choice([1, 5, 30]))]
                    self.is_transacting = True
                    await producer.begin_transaction()
                    for value in values:
                        await producer.send("t", value, partition=self.rng.choice(KEYS).partition)
                    if self.rng.random() < 0.5:
                        await producer.flush()
                        await producer.abort_transaction()
                    else:
                        self.committed.update(values)
                        await producer.commit_transaction()
                    self.transacted_at, self.is_transacting = now(), False
            except KafkaError:  # some brokers are not well, and the next producer would fail at once, too
                await asyncio.sleep(self.rng.choice([0.1, 2]))
            finally:
                with contextlib.suppress(KafkaError):  # which it has raised before
                    await producer.close()
        self.is_transacting = True  # the last one may be open still

    # Who reads

    async def read(self, client: SimClient) -> None:
        consumer = consumer_of(client.cluster(), **self.settings)
        self._assign(consumer, set(KEYS))
        while not self.is_over:
            await self._act(consumer)
            await self._poll(consumer)
            self._check_pace()
        self._resume(consumer, self.paused)
        deadline = now() + RECOVERY
        while behind := [key for key in self.assigned if self._is_behind(key)]:
            assert now() < deadline, f"the reader never comes to the end of {behind}"
            await self._poll(consumer)
        await consumer.close()

    def _is_behind(self, key: TopicPartition) -> bool:
        run = self.runs[key][-1]
        return run.start is not None and bool(self.acknowledged[key]) and run.next_offset <= self.acknowledged[key][-1][0]

    async def _act(self, consumer: Consumer) -> None:
        """Mostly nothing: an application polls."""
        key = self.rng.choice(sorted(self.assigned))
        run = self.runs[key][-1]
        actions = ["nothing", "seek", "to beginning", "to end", "pause", "resume", "assign", "sleep"]
        match self.rng.choices(actions, [980, 3, 2, 2, 2, 4, 1, 4])[0]:
            case "seek":
                offset = self.rng.choice([0, run.next_offset, max(0, run.next_offset - 5)])
                consumer.seek(key, offset)
                self.runs[key].append(Run(offset, offset))
            case "to beginning":
                consumer.seek_to_beginning([key])
                self.runs[key].append(Run(0, 0))
            case "to end":
                consumer.seek_to_end([key])
                # Otherwise a leader may say it that has hung, and does not know yet that another one leads.
                is_calm = all(at + CALM <= now() for at in self.faults.well_at.values())
                is_known = is_calm and bool(self.acknowledged[key]) and not self.is_committed_only
                self.runs[key].append(Run(None, self.acknowledged[key][-1][0] + 1 if is_known else 0))
            case "pause":
                consumer.pause([key])
                self.paused.add(key)
            case "resume":
                self._resume(consumer, {key} & self.paused)
            case "assign":
                self._assign(consumer, set(self.rng.sample(KEYS, self.rng.randint(3, len(KEYS)))))
            case "sleep":
                await asyncio.sleep(self.rng.choice([0.3, 2]))
                self.awake_since = now()

    def _assign(self, consumer: Consumer, keys: set[TopicPartition]) -> None:
        consumer.assign(sorted(keys))
        for key in keys - self.assigned:
            self.runs[key].append(Run(0, 0))
        self.assigned, self.paused = keys, self.paused & keys

    def _resume(self, consumer: Consumer, keys: set[TopicPartition]) -> None:
        consumer.resume(sorted(keys))
        for key in keys:
            self.runs[key][-1].since = now()
        self.paused = self.paused - keys

    async def _poll(self, consumer: Consumer) -> None:
        for record in await consumer.poll(self.rng.choice([1, 50, 200]), max_records=self.rng.choice([1, 10, 500])):
            key = TopicPartition(record.topic, record.partition)
            assert key in self.assigned - self.paused, f"{key} is not to be read"
            run = self.runs[key][-1]
            assert record.offset >= run.next_offset, f"offset {record.offset} of {key}, and {run.next_offset} is next"
            if run.start is None:
                run.start, run.since = record.offset, now()
            run.next_offset = record.offset + 1
            run.records.append((record.offset, record.value or b""))

    def _check_pace(self) -> None:
        is_held = self.is_committed_only and self.is_transacting
        for key in self.assigned - self.paused:
            run, well_since = self.runs[key][-1], self._well_since(key)
            if run.start is None or is_held or well_since is None:
                continue
            self.judged_beside_faults += any(map(self.faults.is_under_way, NODES))
            before = self.led_before[key]  # the reader may still have to find out that it does not answer
            asked_at = run.since + (self.found_after if before is not None and self.faults.is_under_way(before) else 0)
            for offset, at in reversed(self.acknowledged[key]):
                if offset < run.next_offset:
                    break
                since = max(at, asked_at, self.awake_since, self.transacted_at, well_since)
                assert now() - since < SOON, f"offset {offset} of {key} was there at {since}, and the next is {run.next_offset} at {now()}"

    def _well_since(self, key: TopicPartition) -> float | None:
        """From when on the partition's leader has been well; None while it is not."""
        leader = self.faults.leader(key)
        if self.led[key][0] != leader:
            self.led_before[key], self.led[key] = self.led[key][0], (leader, now())
        if leader is None or self.faults.is_under_way(leader):
            return None
        well_since = max(self.led[key][1] + self.found_after, self.faults.well_at[leader] + CALM)
        return well_since if well_since <= now() else None

    # What goes wrong

    async def disturb(self) -> None:
        for _ in range(FAULT_COUNT):
            await asyncio.sleep(self.rng.uniform(1, 25))
            kind = self.rng.choice([*KINDS, "delete"])
            if kind == "delete":
                await self._delete_some()
            else:
                await self.faults.befall(kind)

    async def _delete_some(self) -> None:
        key = self.rng.choice([key for key in KEYS if self.acknowledged[key]])
        before = self.rng.randint(0, self.acknowledged[key][-1][0])
        await self.nodes.act(lambda cluster: Admin(cluster).delete_records({key: before}))

    # What is true at the end

    async def check(self) -> None:
        """The log has what was handed out. Records before its start are gone. And the run has met what it is to be judged by."""
        assert sum(len(run.records) for runs in self.runs.values() for run in runs) > 500
        is_held = self.is_committed_only and self.transacts  # by open transactions, most of the time
        assert self.judged_beside_faults > 20 or is_held
        assert not self.transacts or len(self.committed) > 20
        for key in KEYS:
            leader = self.faults.leader(key)
            assert leader is not None, "every broker is well"
            partition = self.nodes.partition(leader, key.topic, key.partition)
            start = partition.log.log_start_offset
            reading = records_between(partition.log, start, partition.high_watermark, check_crc=True)
            log = [(record.offset, record.value or b"") async for found in reading for record in found]
            if self.is_committed_only:
                log = [(offset, value) for offset, value in log if not value.startswith(b"of transactions") or value in self.committed]
            for run in self.runs[key]:
                handed_out = [(offset, value) for offset, value in run.records if offset >= start]
                there = [record for record in log if record[0] >= (run.start or 0)]
                assert handed_out == there[: len(handed_out)], f"{key} from {run.start} on"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_laws_of_fetching_hold_whatever_happens_to_brokers(seed: int) -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", *[[1 + (index + place) % 3 for place in range(3)] for index in range(len(KEYS))])
        world = World(nodes, seed)
        machines = [SimClient(nodes.simulation, name, nodes.bootstrap) for name in ("writer", READER, "transactor")]
        acts = [world.write, world.read, *[world.transact] * world.transacts]
        running = [asyncio.create_task(client.machine.run(act(client))) for client, act in zip(machines, acts, strict=False)]
        disturbing = asyncio.create_task(world.disturb())
        await asyncio.wait([disturbing, *running], return_when=asyncio.FIRST_COMPLETED)
        for task in (disturbing, *running):
            if task.done():
                task.result()
        world.is_over = True
        await asyncio.gather(*running)
        await world.check()

    play(body, seed=seed)
