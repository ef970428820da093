"""Everything at once: one broker whose parts all work on the same logs while clients come and go, and disks misbehave.

A seed draws what a run has: one or two log directories, small rates for the scrubber and the mover, and troubles: a disk that stays
full for a while, descriptors that run out for a while, a killed process, a power cut, bits that rot. Through all of it clients
write, read from the beginning, join and leave a group, create topics and delete them, delete records and move replicas, and
retention, compaction and scrubbing run every moment.

When it is over the troubles end, and the broker has a while to find itself again. Then what was promised must hold
(``_verdict``), and nothing that the broker did not expect may have been logged. ``Outcome.meetings`` counts what met what.

With one replica a power cut takes back what was not synced, so such runs have flush.messages=1.
"""

from __future__ import annotations

import asyncio
import errno
import random
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from ottla.client.admin import Admin, NewTopic
from ottla.client.consumer import Consumer
from ottla.client.consumer_settings import ConsumerSettings
from ottla.client.fetcher import FetchSettings
from ottla.client.producer import Producer, ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import iterate_batches
from ottla.records.iteration import Record, iterate_records
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.disk import Fault, PowerCut
from ottla.sim.loop import run
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

SECONDS: Final = 12.0
HEALING_SECONDS: Final = 90.0
KEPT, TABLE, AGED, ROTTEN = "kept", "table", "aged", "rotten"
TOPICS: Final = {
    KEPT: {},
    TABLE: {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"},
    AGED: {"cleanup.policy": "compact,delete", "retention.bytes": "3000", "min.cleanable.dirty.ratio": "0.01"},
    ROTTEN: {"retention.bytes": "20000"},
}
PARTITIONS: Final = 2
UNEXPECTED: Final = frozenset({
    "request_failed", "housekeeping_failed", "log_cleaner_failed", "scrub_failed", "replica_mover_failed", "leadership_not_settled",
    "groups_not_loaded", "broker_failed", "log_dir_failed",
})  # fmt: skip
"""Events that say that a part met what it did not expect."""


@dataclass(slots=True)
class _Run:
    """What a run has drawn, what its clients know, and what was noticed."""

    broker: SimBroker
    rng: random.Random
    is_flushed: bool
    acknowledged: dict[tuple[TopicPartition, int], bytes] = field(default_factory=dict)
    newest: dict[tuple[TopicPartition, bytes], int] = field(default_factory=dict)  # of table: the newest acknowledged offset of a key
    starts: dict[tuple[TopicPartition, bytes], int] = field(default_factory=dict)  # log start offsets, by topic id
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    meetings: Counter[str] = field(default_factory=Counter)
    is_over: bool = False
    is_down: bool = False
    has_rot: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    findings: list[str]
    meetings: Counter[str]
    acknowledged: int
    events: str


def explore_crowd(seed: int) -> Outcome:
    """One run. ``findings`` is empty when every promise held."""
    simulation = Simulation(seed)
    rng = random.Random(seed)
    is_flushed = rng.random() < 0.4
    properties = {
        "log.dirs": rng.choice(["/data", "/data,/spare"]),
        "log.segment.bytes": "1024",
        "log.index.interval.bytes": "200",
        "log.retention.check.interval.ms": "300",
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.io.max.bytes.per.second": str(rng.choice([1500, 20_000, 10**9])),
        "log.segment.delete.delay.ms": str(rng.choice([0, 500, 3000])),
        "ottla.log.scrub.interval.ms": "1",
        "ottla.log.scrub.bytes.per.second": str(rng.choice([2000, 50_000])),
        "replica.alter.log.dirs.io.max.bytes.per.second": str(rng.choice([1500, 50_000])),
    }
    if is_flushed:
        properties["log.flush.interval.messages"] = "1"
    state = _Run(SimBroker(simulation, properties), rng, is_flushed)

    async def main() -> None:
        await _start(state)
        broker = state.broker.broker
        assert broker is not None, "it was started"
        _watch_jobs(state)
        await _make_topics(state)
        work: list[Awaitable[None]] = [_client(state, name, job) for name, job in _jobs(state)]
        work += [_troubles(state), _watch_starts(state), _end(state)]
        await asyncio.gather(*work)
        await _heal(state)
        await _verdict(state)
        _judge(state, logs)

    with structlog.testing.capture_logs() as logs:
        run(main())
    return Outcome(state.findings, state.meetings, len(state.acknowledged), simulation.trace.tail())


def _judge(state: _Run, logs: Sequence[MutableMapping[str, Any]]) -> None:
    """Nothing unexpected was logged; what a process says that is killed in the middle of something does not count."""
    for event in logs:
        problem = event.get("exc_info")
        if event["event"] in UNEXPECTED and not isinstance(problem, PowerCut):
            where = "".join(traceback.format_exception(problem)[-3:]) if isinstance(problem, BaseException) else event
            state.findings.append(f"{event['event']}: {where}")
        state.meetings[f"event {event['event']}"] += 1


Job = Callable[[_Run, str], Awaitable[None]]


def _jobs(state: _Run) -> list[tuple[str, Job]]:
    jobs: list[tuple[str, Job]] = [(f"writer-{topic}", _write(topic)) for topic in TOPICS]
    jobs += [("reader", _read_from_the_beginning), ("churn", _create_and_delete), ("member-1", _take_part), ("member-2", _take_part)]
    jobs += [("deleter", _delete_records), ("committer", _commit)]
    if "," in state.broker._properties["log.dirs"]:
        jobs.append(("mover", _move))
    return jobs


async def _client(state: _Run, name: str, job: Job) -> None:
    """The job again and again; what a client is refused, it tries again later."""
    while not state.is_over:
        try:
            await job(state, name)
        except KafkaError:
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.05 * state.rng.random())


async def _make_topics(state: _Run) -> None:
    admin = Admin(state.broker.client("maker"))
    await admin.create_topics([NewTopic(name, PARTITIONS, configs=configs) for name, configs in TOPICS.items()])
    await admin.close()


def _write(topic: str) -> Job:
    async def job(state: _Run, name: str) -> None:
        producer = Producer(state.broker.client(name), ProducerSettings(linger_ms=1, batch_size=300, delivery_timeout_ms=20_000))
        sent = []
        for _ in range(state.rng.randrange(5, 25)):
            index, key = state.rng.randrange(PARTITIONS), b"%d" % state.rng.randrange(6)
            value = b"%d" % state.rng.getrandbits(64) + b"x" * state.rng.randrange(60)
            sent.append((TopicPartition(topic, index), key, value, await producer.send(topic, value, key=key, partition=index)))
            if state.rng.random() < 0.2:
                await asyncio.sleep(state.rng.random() * 0.02)
        for partition, key, value, future in sent:
            try:
                offset = (await future).offset
            except KafkaError:
                continue
            if offset >= 0:
                state.acknowledged[partition, offset] = value
                state.newest[partition, key] = max(offset, state.newest.get((partition, key), -1))
        try:
            await producer.close()
        except KafkaError:
            return

    return job


async def _read_from_the_beginning(state: _Run, name: str) -> None:
    """A reader of ``kept`` finds every offset, in order, with what was acknowledged there."""
    known = dict(state.acknowledged)
    consumer = Consumer(
        state.broker.client(name), ConsumerSettings(fetch=FetchSettings(auto_offset_reset="earliest", max_partition_fetch_bytes=400))
    )
    partition = TopicPartition(KEPT, state.rng.randrange(PARTITIONS))
    await consumer.assign([partition])
    expected = 0
    for _ in range(state.rng.randrange(3, 30)):
        for record in await consumer.poll(50):
            if record.offset != expected:
                state.findings.append(f"{partition}: offset {expected} was passed over, {record.offset} came")
            if known.get((partition, record.offset), record.value) != record.value:
                state.findings.append(f"{partition} offset {record.offset}: {record.value!r} is not what was acknowledged")
            expected = record.offset + 1
    await consumer.close()


async def _create_and_delete(state: _Run, name: str) -> None:
    topic = f"temporary-{state.rng.randrange(3)}"
    admin = Admin(state.broker.client(name))
    configs = {"cleanup.policy": state.rng.choice(["compact", "delete"]), "min.cleanable.dirty.ratio": "0.01"}
    try:
        await admin.create_topics([NewTopic(topic, state.rng.randrange(1, 4), configs=configs)])
        producer = Producer(state.broker.client(name), ProducerSettings(linger_ms=0, batch_size=200, delivery_timeout_ms=5_000))
        sent = [await producer.send(topic, b"x" * 150, key=b"%d" % (number % 3), partition=0) for number in range(state.rng.randrange(40))]
        await asyncio.gather(*sent, return_exceptions=True)
        await asyncio.sleep(state.rng.random())
        _note_deletion(state, topic)
        await admin.delete_topics([topic])
        try:
            await producer.close()
        except KafkaError:
            return
    finally:
        await admin.close()


async def _take_part(state: _Run, name: str) -> None:
    consumer = Consumer(
        state.broker.client(name),
        ConsumerSettings(group_id="group", fetch=FetchSettings(auto_offset_reset="earliest")),
    )
    await consumer.subscribe([KEPT, AGED])
    for _ in range(state.rng.randrange(2, 20)):
        await consumer.poll(50)
    await consumer.close()


async def _commit(state: _Run, name: str) -> None:
    """Commits of a group without members go up, and are kept."""
    consumer = Consumer(state.broker.client(name), ConsumerSettings(group_id="alone", enable_auto_commit=False))
    partition = TopicPartition(KEPT, 0)
    await consumer.assign([partition])
    for _ in range(5):
        offset = state.committed.get(partition, 0) + 1
        await consumer.commit({partition: offset})
        state.committed[partition] = offset
    await consumer.close()


async def _delete_records(state: _Run, name: str) -> None:
    admin = Admin(state.broker.client(name))
    partition = TopicPartition(AGED, state.rng.randrange(PARTITIONS))
    try:
        log = state.broker.broker.partitions.by_name[AGED][partition.partition].log if state.broker.broker is not None else None
        if log is not None:
            await admin.delete_records({partition: min(log.log_start_offset + 3, log.log_end_offset)})
    finally:
        await admin.close()
    await asyncio.sleep(state.rng.random())


async def _move(state: _Run, name: str) -> None:
    admin = Admin(state.broker.client(name))
    partition = TopicPartition(state.rng.choice([KEPT, TABLE, AGED]), state.rng.randrange(PARTITIONS))
    try:
        await admin.alter_replica_log_dirs(1, {partition: state.rng.choice(["/data", "/spare"])})
        state.meetings["moves asked for"] += 1
    finally:
        await admin.close()
    await asyncio.sleep(state.rng.random() * 2)


async def _troubles(state: _Run) -> None:
    disk, rng = state.broker.machine.disk, state.rng
    while not state.is_over:
        await asyncio.sleep(0.5 + 3 * rng.random())
        match rng.choice(["none", "full", "descriptors", "kill", "power", "rot", "look"]):
            case "full":
                await _for_a_while(state, ("append", "create", "make_dirs"), errno.ENOSPC)
            case "descriptors":
                await _for_a_while(state, ("create",), errno.EMFILE)
            case "kill":
                await _crash(state, power_cut=False)
            case "power" if state.is_flushed:
                await _crash(state, power_cut=True)
            case "rot":
                _let_rot(state)
    disk.faults.clear()


async def _for_a_while(state: _Run, operations: tuple[str, ...], code: int) -> None:
    """The metadata log does not come back from a full disk, as is promised, and is spared."""
    disk = state.broker.machine.disk
    faults = [Fault(operation, "", code, lasts=True, spares="__cluster_metadata") for operation in operations]
    disk.faults += faults
    state.meetings[errno.errorcode[code]] += 1
    await asyncio.sleep(2 * state.rng.random())
    disk.faults = [fault for fault in disk.faults if fault not in faults]


async def _crash(state: _Run, *, power_cut: bool) -> None:
    state.meetings["power cut" if power_cut else "kill"] += 1
    state.is_down = True
    state.broker.kill(power_cut=power_cut)
    await asyncio.sleep(0.3)
    await _start(state)
    state.is_down = False


async def _start(state: _Run) -> None:
    await state.broker.start()
    assert state.broker.broker is not None, "it was started"
    state.broker.broker._scrubber._rounds.start(100)


def _let_rot(state: _Run) -> None:
    """A bit of a closed segment that the scrubber alone will meet."""
    broker = state.broker.broker
    partition = broker.partitions.by_name.get(ROTTEN, {}).get(0) if broker is not None else None
    if partition is None or len(partition.log.segments) < 3 or state.has_rot:
        return
    inode = state.broker.machine.disk._files.get(partition.log.segments[1].path)
    if inode is not None and len(inode.written) > 200:
        inode.written[150] ^= 1
        state.has_rot = True
        state.meetings["rot"] += 1


def _watch_jobs(state: _Run) -> None:
    """Counts what a worker does while something else happens to the same log."""
    disk = state.broker.machine.disk
    work = disk.work
    state.meetings["runs"] += 1

    async def watched(job: Any, request: Any, **more: Any) -> Any:
        name = job.name.rsplit(":", 1)[1]
        path = getattr(request, "folder", None) or getattr(request, "path", None) or getattr(request, "source", "")
        _working.append((name, str(path)))
        try:
            return await work(job, request, **more)
        except FileNotFoundError:
            state.meetings[f"{name} met a file that another part removed"] += 1
            raise
        finally:
            _working.remove((name, str(path)))

    _working: list[tuple[str, str]] = []
    disk.work = watched  # type: ignore[method-assign]
    state.broker.machine.working = _working  # type: ignore[attr-defined]


def _note_deletion(state: _Run, topic: str) -> None:
    for name, path in getattr(state.broker.machine, "working", ()):
        if f"/{topic}-" in path:
            state.meetings[f"deletion during {name}"] += 1


async def _watch_starts(state: _Run) -> None:
    """No log's start goes back while the broker runs."""
    while not state.is_over:
        broker = state.broker.broker
        for partition in broker.partitions.all() if broker is not None else ():
            key = TopicPartition(partition.topic, partition.index), partition.topic_id
            if partition.log.log_start_offset < state.starts.get(key, 0) and not state.is_down:
                state.findings.append(f"{key[0]} began at {state.starts[key]}, and begins at {partition.log.log_start_offset}")
            if not state.meetings["power cut"]:
                state.starts[key] = partition.log.log_start_offset
        await asyncio.sleep(0.05)


async def _end(state: _Run) -> None:
    await asyncio.sleep(SECONDS)
    state.is_over = True


async def _heal(state: _Run) -> None:
    """Without troubles every partition but a rotten one takes records again."""
    state.broker.machine.disk.faults.clear()
    if state.broker.broker is None:
        await _start(state)
    producer = Producer(state.broker.client("healer"), ProducerSettings(linger_ms=0, delivery_timeout_ms=int(HEALING_SECONDS * 1000)))
    sent = {
        (topic, index): await producer.send(topic, b"healed", key=b"k", partition=index) for topic in TOPICS for index in range(PARTITIONS)
    }
    for (topic, index), future in sent.items():
        try:
            await future
        except KafkaError as error:
            if topic != ROTTEN or error.code == ErrorCode.INVALID_RECORD:
                state.findings.append(f"{topic}-{index} takes no records after {HEALING_SECONDS:.0f} s without trouble: {error}")
    try:
        await producer.close()
    except KafkaError:
        return


async def _verdict(state: _Run) -> None:
    broker = state.broker.broker
    assert broker is not None, "it runs"
    if broker.failure is not None:
        state.findings.append(f"the broker has ended: {broker.failure}")
    if broker.partitions.offline_folder_count:
        state.findings.append("a log directory is offline, and no disk has failed")
    for topic in (KEPT, TABLE):
        for index, partition in broker.partitions.by_name[topic].items():
            key = TopicPartition(topic, index)
            if partition.log.is_failed:
                state.findings.append(f"{key} is offline")
                continue
            found = {record.offset: record for record in await _records(partition)}
            if topic == KEPT:
                state.findings += [
                    f"{key} offset {offset}: {value!r} was acknowledged, {found.get(offset)} is there"
                    for (where, offset), value in state.acknowledged.items()
                    if where == key and (offset not in found or found[offset].value != value)
                ]
            kept = {record.key: record.offset for record in found.values()}
            state.findings += [
                f"{key}: the newest {record_key!r} was at {offset}, it is at {kept.get(record_key)}"
                for (where, record_key), offset in state.newest.items()
                if where == key and kept.get(record_key, -1) < offset
            ]
    state.meetings["partitions of groups"] += len(broker.partitions.by_name.get(GROUP_METADATA_TOPIC, {}))
    admin = Admin(state.broker.client("auditor"))
    for key, offset in state.committed.items():
        stands = (await admin.committed_offsets("alone")).get(key)
        if stands is None or stands.offset < offset:
            state.findings.append(f"{key}: {offset} was committed, the group stands at {stands}")
    await admin.close()


async def _records(partition: Any) -> list[Record]:
    records: list[Record] = []
    log, offset = partition.log, partition.log.log_start_offset
    while offset < partition.high_watermark:
        part = await log.read(offset, max_bytes=1 << 20, end_offset=partition.high_watermark)
        if part is None:
            break
        data = part.region.read()
        for position, header in iterate_batches(data, check_crc=True):
            records += [record for record in iterate_records(data, position) if record.offset >= offset]
            offset = header.last_offset + 1
    return records
