"""Where a stream that starts at the latest offset began, kept in the cluster until its first batch is done.

Spark asks for the initial offset twice in the first batch, and again after a restart when that batch was never committed; its
checkpoint holds only where batches end. An answer looked up anew each time would jump over records written in between. So the
first answer is committed as offsets of a consumer group, marked by its metadata, and read from there until the source hears
that a batch is done; then the mark is taken away, and a later query with a new checkpoint begins at the latest offset again.

The group is ``kafka.group.id``, or a name drawn from the options that say what is read: two queries that differ in nothing else
share it, and may then begin a little earlier than their own start, never later. A query of a single batch does not hear that it
is done, so its mark stays: with ``availableNow``, give each new checkpoint a ``groupIdPrefix`` or ``kafka.group.id`` of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from ottla.client.admin import CommittedOffset
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.spark.lookup import SELECTIONS, Lookup
from ottla.spark.offsets import Offsets
from ottla.spark.options import invalid
from ottla.types import TopicPartition

MARK: Final = "ottla-spark: pinned start"


def group_of(options: Mapping[str, str]) -> str:
    if options.get("kafka.group.id"):
        return options["kafka.group.id"]
    said = "\n".join(f"{name}={options[name]}" for name in (*SELECTIONS, "path", "startingOffsets") if name in options)
    return f"{options.get('groupIdPrefix', 'ottla-spark')}-{hashlib.sha256(said.encode()).hexdigest()[:12]}"


class Pins:
    """The pinned starts of one group."""

    def __init__(self, lookup: Lookup, group_id: str) -> None:
        self._lookup = lookup
        self._group_id = group_id

    def pinned(self, latest: Offsets) -> Offsets:
        """The start of each partition: what was pinned before, else what is given, which is pinned from now on."""
        kept = {
            partition: found.offset
            for partition, found in self._committed().items()
            if found.metadata == MARK and found.offset <= latest.get(partition, -1)  # beyond the end: of a topic since made anew
        }
        fresh = {partition: offset for partition, offset in latest.items() if partition not in kept}
        if fresh:
            self._commit(fresh, MARK)
        return fresh | kept

    def release(self, progress: Offsets) -> None:
        """No start is pinned; the group's offsets are the progress instead."""
        self._commit(progress, "")

    def _committed(self) -> dict[TopicPartition, CommittedOffset]:
        return self._lookup.ask(lambda: self._lookup.link.admin.committed_offsets(self._group_id))

    def _commit(self, offsets: Offsets, metadata: str) -> None:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, offset in offsets.items():
            topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(partition.topic))
            topic.partitions.append(OffsetCommitRequestPartition(partition.partition, offset, -1, metadata))
        cluster = self._lookup.link.cluster

        async def commit() -> None:
            connection = await cluster.connection(await cluster.coordinator(self._group_id))
            request = OffsetCommitRequest(self._group_id, topics=list(topics.values()))
            # Version 9 is the last that names topics instead of their ids.
            response = await connection.ask(request, OffsetCommitResponse, timeout_ms=cluster.request_timeout_ms, version_max=9)
            for answer in response.topics:
                for result in answer.partitions:
                    if result.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                        raise invalid(f"group {self._group_id!r} has members; give the stream a kafka.group.id of its own")
                    if result.error_code:
                        raise KafkaError(result.error_code, f"{answer.name}-{result.partition_index} of group {self._group_id!r}")

        self._lookup.ask(commit)
