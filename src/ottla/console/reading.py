"""Topics, messages and groups, read as a client does: each within a time, and as much as a page can show."""

from __future__ import annotations

import asyncio
import binascii
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.aio import Admin, Consumer, ConsumerRecord, KafkaError
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

READ_SECONDS_MAX: Final = 3.0
LOOKED_AT_MAX: Final = 20_000
"""Records that a search looks at."""
SHOWN_BYTES_MAX: Final = 2_000
GROUPS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Message:
    """A record, as text. ``is_cut`` says that its value is longer than what is shown."""

    partition: int
    offset: int
    time: str
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Found:
    """The messages that fit, newest first, and how many records were looked at for them."""

    messages: list[Message]
    looked_at: int
    is_complete: bool


def shown(data: bytes | None, form: str) -> str | None:
    """Returns the bytes as text for a person: ``json`` is indented, ``hex`` has two digits a byte, ``raw`` is the text as it is."""
    if data is None:
        return None
    if form == "hex":
        return binascii.hexlify(data, " ").decode()
    text = data.decode("utf-8", "backslashreplace")
    if form == "json":
        try:
            return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        except ValueError:
            return text
    return text


def message_of(record: ConsumerRecord[Any, Any], form: str) -> Message:
    value: bytes | None = record.value
    is_cut = value is not None and len(value) > SHOWN_BYTES_MAX
    cut = value[:SHOWN_BYTES_MAX] if is_cut and value is not None else value
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.timestamp_ms / 1000))
    headers = tuple((name, shown(data, "raw") or "") for name, data in record.headers)
    return Message(record.partition, record.offset, moment, shown(record.key, "raw"), shown(cut, form), headers, is_cut)


def fits(record: ConsumerRecord[Any, Any], text: bytes) -> bool:
    """True when the text is in the key, the value, or a header's name or value."""
    parts = [record.key, record.value, *(part for name, data in record.headers for part in (name.encode(), data))]
    return not text or any(text in part for part in parts if part is not None)


async def messages(
    bootstrap: str, settings: Mapping[str, Any], topic: str, *, partition: int | None, count: int, search: str, form: str
) -> Found:
    """Reads the newest records of the topic, or of one partition, that contain the text."""
    async with Admin(bootstrap, **settings) as admin:
        known = await admin.describe_topic(topic)
        keys = [TopicPartition(topic, index) for index in known.partitions if partition in (None, index)]
        starts = await admin.offsets_for_times(dict.fromkeys(keys, EARLIEST_TIMESTAMP))
        ends = await admin.offsets_for_times(dict.fromkeys(keys, LATEST_TIMESTAMP))
    each = LOOKED_AT_MAX // max(1, len(keys)) if search else count
    first = {key: max(starts[key].offset, ends[key].offset - each) for key in keys}
    left = {key for key in keys if first[key] < ends[key].offset}
    found: list[ConsumerRecord[Any, Any]] = []
    looked_at, deadline = 0, time.monotonic() + READ_SECONDS_MAX
    async with Consumer(bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign(left)
        for key in left:
            consumer.seek(key, first[key])
        while left and time.monotonic() < deadline:
            for record in await consumer.poll(200):
                key = TopicPartition(record.topic, record.partition)
                if record.offset < ends[key].offset:
                    looked_at += 1
                    if fits(record, search.encode()):
                        found.append(record)
            left -= {key for key in left if await consumer.position(key) >= ends[key].offset}
    found.sort(key=lambda record: (record.timestamp_ms, record.offset), reverse=True)
    return Found([message_of(record, form) for record in found[:count]], looked_at, is_complete=not left)


@dataclass(frozen=True, slots=True)
class Lag:
    """The progress of a group in a partition that it has committed for."""

    partition: TopicPartition
    committed: int
    end: int
    lag: int


async def lags(admin: Admin, group_id: str) -> list[Lag]:
    """Returns the lag of each partition that the group has committed an offset for."""
    committed = await admin.committed_offsets(group_id)
    ends = await admin.offsets_for_times(dict.fromkeys(committed, LATEST_TIMESTAMP)) if committed else {}
    found = []
    for key, offset in sorted(committed.items()):
        end = ends[key].offset
        found.append(Lag(key, offset.offset, end, max(0, end - offset.offset)))
    return found


async def all_lags(admin: Admin) -> dict[str, list[Lag]]:
    """Returns the lags of each group; a group that cannot be asked now has none."""
    groups = [listed.group_id for listed in await admin.list_groups()][:GROUPS_MAX]

    async def of(group_id: str) -> list[Lag]:
        try:
            return await lags(admin, group_id)
        except KafkaError:
            return []

    return dict(zip(groups, await asyncio.gather(*map(of, groups)), strict=True))


def worst_lags(groups: Mapping[str, list[Lag]]) -> dict[str, tuple[int, str]]:
    """Returns, for each topic, the largest lag of a group over all its partitions, and that group."""
    worst: dict[str, tuple[int, str]] = {}
    for group_id, found in groups.items():
        sums: dict[str, int] = {}
        for one in found:
            sums[one.partition.topic] = sums.get(one.partition.topic, 0) + one.lag
        for topic, lag in sums.items():
            worst[topic] = max(worst.get(topic, (-1, "")), (lag, group_id))
    return worst
