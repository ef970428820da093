"""Transactional producers among the clients of replicated partitions, and what must hold of their transactions.

``transactional_watch`` looks on. In the end everything heals. Then every transaction has ended; of each, readers get all or nothing, and
all where its producer was told that it is committed; its offsets go with it; and all replicas know the same about it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tests.simulation.explorer import Trial
from tests.simulation.quorum_nodes import HEAL_SECONDS
from tests.simulation.replicated_work import TOPICS, Work
from tests.simulation.transactional_application import NAME, Application
from tests.simulation.transactional_client import Attempts, Outcome, Transactor
from tests.simulation.transactional_watch import TransactionWatch

from ottla.broker.node import Broker
from ottla.broker.replicas.partition import Partition
from ottla.client.admin import Admin, NewTopic
from ottla.records.batch import BatchHeader, iterate_batches
from ottla.records.control import end_marker_of
from ottla.records.iteration import iterate_records
from ottla.sim.cluster import SimClient
from ottla.storage.log.partition_log import PartitionLog
from ottla.transactions.transaction import TransactionState
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

ATOMIC: Final = "atomic"
KEYS: Final = [TopicPartition(ATOMIC, index) for index in range(3)]
IDS: Final = ("alone", "shared", "shared")
"""Transactional ids; two producers take one from each other."""
RIVAL_SECONDS: Final = 20.0


class TransactionalWork(Work):
    """Beside what other clients do."""

    def __init__(self, trial: Trial, *, level: int | None = None) -> None:
        super().__init__(trial)
        level = level_of(trial.seed) if level is None else level
        self.topics = [*TOPICS, NewTopic(ATOMIC, len(KEYS), 3)]
        self.keys = KEYS
        self.attempts = Attempts()
        self._level = level
        self._has_epochs_of_their_own = level >= 2 and trial.seed % 2 == 1  # each transaction, whoever begins it
        self._oldest_level = level if trial.seed % 2 else 1  # of a client that is on its own

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        return [*super().tasks(), *(self._transact(number, name) for number, name in enumerate(IDS)), self._apply()]

    async def _apply(self) -> None:
        client = self._client("application", 3000)
        rng = self._simulation.random("application")
        await client.machine.run(Application(client.cluster, self.attempts, self.keys, rng, self._is_over, self._states).run())

    async def _transact(self, number: int, name: str) -> None:
        client, rng = self._client(f"transactor-{number}", 3000), self._simulation.random(f"transactor-{number}")
        level = self._level if number else self._oldest_level
        transactor = Transactor(client.cluster(), self.attempts, name, self.keys, rng, self._is_over, self._states, level=level)
        waits_seconds = RIVAL_SECONDS if name == "shared" else 1.0
        await client.machine.run(transactor.run(waits_seconds=waits_seconds))

    async def judge(self, brokers: Mapping[int, Broker]) -> list[str]:
        problem = await self._unsettled(brokers)
        if problem is not None:
            return [problem]
        visible: Counter[bytes] = Counter()
        found: list[str] = []
        ends: dict[tuple[int, int], dict[bool, TopicPartition]] = {}
        for key in self._all_keys(brokers):
            batches = await _batches(_leader(brokers, key).log)
            values, problems = _read_committed(key, batches, ends if self._has_epochs_of_their_own else {})
            found += problems
            if key in self.keys:
                visible += values
            found += await _differing(brokers, key)
        found += [f"producer {who[0]} epoch {who[1]}: {outcomes}" for who, outcomes in ends.items() if len(outcomes) > 1]
        found += [f"{value!r} is there {count} times" for value, count in visible.items() if count > 1]
        found += self._torn(visible)
        found += await self._wrong_offsets(visible)
        return found[:6]

    def _all_keys(self, brokers: Mapping[int, Broker]) -> list[TopicPartition]:
        """Where transactions may be; the topic of offsets is made when they are first committed."""
        has_offsets = GROUP_METADATA_TOPIC in brokers[1].image.topics
        return [*self.keys, *([TopicPartition(GROUP_METADATA_TOPIC, 0)] if has_offsets else [])]

    async def _unsettled(self, brokers: Mapping[int, Broker]) -> str | None:
        """What has not ended, a while after everything is healed."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + HEAL_SECONDS
        keys = self._all_keys(brokers)
        while True:
            open_ones = {
                key: (partition.last_stable_offset, partition.high_watermark, partition.log.log_end_offset)
                for key in keys
                if (partition := _leader(brokers, key)).last_stable_offset != partition.log.log_end_offset
            }
            undecided = _undecided(brokers)
            if not (open_ones or undecided):
                return None
            if loop.time() > deadline:
                return f"transactions do not end, of these partitions (stable offset, high watermark, end): {open_ones}, {undecided}"
            await asyncio.sleep(0.5)

    def _torn(self, visible: Counter[bytes]) -> list[str]:
        found = []
        for attempt in self.attempts.all:
            seen = [value for value in attempt.values if visible[value]]
            if attempt.outcome is Outcome.COMMITTED and len(seen) != len(attempt.values):
                found.append(f"{attempt} was committed, and readers get {seen}")
            elif attempt.outcome is Outcome.ABORTED and seen:
                found.append(f"{attempt} was aborted, and readers get {seen}")
            elif seen and len(seen) != len(attempt.values):
                found.append(f"{attempt} is torn: readers get {seen}")
        return found

    async def _wrong_offsets(self, visible: Counter[bytes]) -> list[str]:
        """Of each transactional id the group has the offset of its last transaction that was committed with one."""
        client = SimClient(self._simulation, "transactional judge", self.bootstrap, request_timeout_ms=5000)

        async def ask() -> dict[str, int]:
            admin = Admin(client.cluster())
            committed = {}
            for name in {*IDS, NAME}:
                offset = (await admin.committed_offsets(name)).get(self.keys[0])
                committed[name] = 0 if offset is None else offset.offset
            await admin.close()
            return committed

        committed = await client.machine.run(ask())
        found = []
        for name, offset in committed.items():
            counting = [attempt for attempt in self.attempts.all if attempt.transactional_id == name and visible[attempt.values[0]]]
            expected = max((attempt.offset for attempt in counting), default=0)
            if offset != expected:
                found.append(f"group {name} has committed {offset}, and its last transaction with one {expected}")
        return found


def _leader(brokers: Mapping[int, Broker], key: TopicPartition) -> Partition:
    leader = brokers[1].image.topics[key.topic].partitions[key.partition].leader
    return brokers[leader].partitions.by_name[key.topic][key.partition]


def _undecided(brokers: Mapping[int, Broker]) -> list[str]:
    """The transactions that coordinators know to be open, or not yet ended in all their partitions."""
    return [
        f"node {node}: {name} {found.state.name} {sorted(found.partitions)}"
        for node, broker in brokers.items()
        for shard in broker.parts.transactions._shards.values()
        for name, found in shard._machine._transactions.items()
        if found.state is TransactionState.ONGOING or found.state.is_prepared
    ]


async def _batches(log: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    found = []
    offset = log.log_start_offset
    while (part := await log.read(offset, max_bytes=1 << 20, end_offset=log.log_end_offset)) is not None:
        data = bytes(part.region.read())
        for at, header in iterate_batches(data):
            found.append((header, data[at : at + header.size_bytes]))
            offset = header.last_offset + 1
    return found


def _read_committed(
    key: TopicPartition, batches: list[tuple[BatchHeader, bytes]], ends: dict[tuple[int, int], dict[bool, TopicPartition]]
) -> tuple[Counter[bytes], list[str]]:
    """The values that count, by what the log itself says; and what no log may have."""
    visible: Counter[bytes] = Counter()
    found: list[str] = []
    undecided: dict[int, list[bytes]] = {}
    ended: dict[int, int] = {}  # the epoch of the producer's last marker
    for header, data in batches:
        producer_id, epoch = header.producer_id, header.producer_epoch
        if header.is_control:
            marker = end_marker_of(iterate_records(data)[0]) if producer_id >= 0 else None
            if marker is None:
                continue
            if epoch < ended.get(producer_id, -1):
                found.append(f"{key}: producer {producer_id} has a marker of epoch {epoch} after one of {ended[producer_id]}")
            ended[producer_id] = epoch
            ends.setdefault((producer_id, epoch), {})[marker.is_commit] = key
            values = undecided.pop(producer_id, [])
            visible.update(values if marker.is_commit else ())
        elif header.is_transactional:
            if epoch < ended.get(producer_id, -1):
                found.append(f"{key}: producer {producer_id} has records of epoch {epoch} after a marker of {ended[producer_id]}")
            undecided.setdefault(producer_id, []).extend(record.value or b"" for record in iterate_records(data))
    found += [f"{key}: the transaction of producer {producer_id} is open" for producer_id in undecided]
    return visible, found


async def _differing(brokers: Mapping[int, Broker], key: TopicPartition) -> list[str]:
    """Replicas that do not know the same of transactions."""
    known = {}
    for node, broker in brokers.items():
        partition = broker.partitions.find(key.topic, key.partition)
        if partition is not None:
            log = partition.log
            states = {producer_id: (state.epoch, state.transaction_first_offset) for producer_id, state in log.producers.states.items()}
            entries = await log.aborted.between(0, log.log_end_offset)
            aborted = sorted((one.producer_id, one.first_offset, one.last_offset) for one in entries)
            known[node] = states, aborted
    first = next(iter(known.values()))
    return [f"{key}: replicas know {known}"] if any(other != first for other in known.values()) else []


def level_of(seed: int) -> int:
    return 2 if seed % 3 else 1


@contextmanager
def watching(trial: Trial) -> Iterator[None]:
    """The transactions of the run are watched."""
    with TransactionWatch(trial.result.findings, trial.states).watching():
        yield
