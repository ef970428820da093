"""What was promised, and whether it holds."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.simulation.crowd.knowledge import KEPT, PARTITIONS, ROTTEN, TABLE, TOPICS, Knowledge

from ottla.broker.node import Broker
from ottla.broker.replicas.partition import Partition
from ottla.client.admin import Admin
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import iterate_batches
from ottla.records.iteration import Record, iterate_records
from ottla.types import TopicPartition

HEALING_SECONDS: Final = 90.0
UNEXPECTED: Final = frozenset({
    "request_failed", "housekeeping_failed", "log_cleaner_failed", "scrub_failed", "replica_mover_failed", "leadership_not_settled",
    "groups_not_loaded", "broker_failed", "log_dir_failed",
})  # fmt: skip
"""Events that say that a part met what it did not expect."""
DAMAGE: Final = frozenset({"segment_damaged", "segment_unreadable", "retention_failed", "log_cut"})
"""The same, but for the partition whose bits rot; and a power cut may tear the end off a log."""


def judge_events(known: Knowledge, events: Sequence[Mapping[str, Any]]) -> None:
    """Nothing unexpected was logged."""
    damage = DAMAGE - {"log_cut"} if known.meetings.counts["power cut"] else DAMAGE
    for event in events:
        name, problem = event["event"], event.get("exc_info")
        is_damage = name in damage and f"/{ROTTEN}-0/" not in event.get("file", f"/{event.get('topic')}-{event.get('partition')}/")
        if name in UNEXPECTED or is_damage:
            where = "".join(traceback.format_exception(problem)[-3:]) if isinstance(problem, BaseException) else event
            known.findings.append(f"{name}: {where}")
        known.meetings.counts[f"event {name}"] += 1


def judge_context(known: Knowledge, context: Mapping[str, Any]) -> None:
    """Nothing is raised where no task awaits it."""
    problem = context.get("exception")
    if problem is not None:
        known.findings.append(f"{context['message']}: {''.join(traceback.format_exception(problem)[-3:])}")


async def watch_starts(known: Knowledge) -> None:
    """No log's start goes back while a broker runs; and what was deleted with an answer stays deleted."""
    starts: dict[tuple[Broker, bytes, TopicPartition], int] = {}
    while not known.is_over.is_set():
        broker = known.running
        if broker is None:
            await asyncio.sleep(0.05)
            continue
        for partition in broker.partitions.all():
            key, start_offset = TopicPartition(partition.topic, partition.index), partition.log.log_start_offset
            before = max(starts.get((broker, partition.topic_id, key), 0), known.deleted.get(key, 0))
            if start_offset < before and not partition.log.is_failed:
                known.findings.append(f"{key} began at {before}, and begins at {start_offset}")
            starts[broker, partition.topic_id, key] = start_offset
        await asyncio.sleep(0.05)


async def heal(known: Knowledge) -> None:
    """Without troubles every partition but a rotten one takes records again."""
    known.broker.machine.disk.faults.clear()
    producer = Producer(known.client("healer"), ProducerSettings(linger_ms=0, delivery_timeout_ms=int(HEALING_SECONDS * 1000)))
    sent = {
        (topic, index): await producer.send(topic, b"healed", key=b"k", partition=index) for topic in TOPICS for index in range(PARTITIONS)
    }
    for (topic, index), future in sent.items():
        try:
            await future
        except KafkaError as error:
            if topic != ROTTEN or error.code == ErrorCode.INVALID_RECORD:
                known.findings.append(f"{topic}-{index} takes no records after {HEALING_SECONDS:.0f} s without trouble: {error}")
    try:
        await producer.close()
    except KafkaError:
        return


async def judge(known: Knowledge) -> None:
    """The broker is intact, and everything that was promised is there."""
    broker = known.running
    assert broker is not None, "it runs"
    if broker.failure is not None:
        known.findings.append(f"the broker has ended: {broker.failure}")
    if broker.partitions.offline_directory_count:
        known.findings.append("a log directory is offline, and no disk has failed")
    for topic in (KEPT, TABLE):
        for index, partition in broker.partitions.by_name[topic].items():
            key = TopicPartition(topic, index)
            if partition.log.is_failed:
                known.findings.append(f"{key} is offline")
                continue
            found = {record.offset: record for record in await _records(partition)}
            if topic == KEPT:
                known.findings += [
                    f"{key} offset {offset}: {value!r} was acknowledged, {found.get(offset)} is there"
                    for (where, offset), value in known.acknowledged.items()
                    if where == key and (offset not in found or found[offset].value != value)
                ]
            kept = {record.key: record.offset for record in found.values()}
            known.findings += [
                f"{key}: the newest {record_key!r} was at {offset}, it is at {kept.get(record_key)}"
                for (where, record_key), offset in known.newest.items()
                if where == key and kept.get(record_key, -1) < offset
            ]
    admin = Admin(known.client("auditor"))
    for key, offset in known.committed.items():
        stands = (await admin.committed_offsets("alone")).get(key)
        if stands is None or stands.offset < offset:
            known.findings.append(f"{key}: {offset} was committed, the group is at {stands}")
    await admin.close()


async def _records(partition: Partition) -> list[Record]:
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
