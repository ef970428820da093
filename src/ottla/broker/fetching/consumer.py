"""What a consumer is given of each partition: all up to the high watermark, or up to the last stable offset (READ_COMMITTED)."""

from __future__ import annotations

from typing import ClassVar

from ottla.broker.fetching.aborted_run import AbortedRun
from ottla.broker.fetching.fetch_pass import FetchPass, ParkedFetch
from ottla.broker.replicas.partition import Partition
from ottla.broker.requests.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.fetch import READ_COMMITTED, FetchPartition, FetchRequest, PartitionData
from ottla.replication.fetch_sessions import PartitionKey
from ottla.types import NO_EPOCH


class ConsumerPolicy:
    """A ``fetch_pass.Policy``, for fetches without a session that is watched."""

    waits_for_leaders: ClassVar = True
    settles: ClassVar = False
    settles_before_waiting: ClassVar = False
    __slots__ = ("_held", "is_read_committed")

    def __init__(self, request: FetchRequest) -> None:
        self.is_read_committed = request.isolation_level == READ_COMMITTED

    def may_read(self, context: RequestContext, topic: str) -> bool:
        return context.may(Operation.READ, ResourceType.TOPIC, topic)

    def begin(self) -> None:
        self._held: dict[Partition, int] = {}  # where an open transaction keeps a read_committed reader, and at what offset

    async def read(self, fetch: FetchPass, partition: Partition, wanted: FetchPartition, data: PartitionData, budget: int) -> None:
        log, led, known = partition.log, partition.led_epoch, wanted.current_leader_epoch
        if led < 0 or (known != led and known >= 0) or log.health.is_failed:
            self.check(partition, known)
        end = data.high_watermark = partition.high_watermark
        log_end = log.tail.end_offset
        data.last_stable_offset = partition.last_stable_offset
        start = data.log_start_offset = log.log_start_offset
        data.aborted_transactions = None
        if self.is_read_committed:
            if data.last_stable_offset < end:
                self._held[partition] = data.last_stable_offset
            end = data.last_stable_offset
            data.aborted_transactions = []
        if wanted.last_fetched_epoch != NO_EPOCH and fetch.diverges(partition, wanted, data):
            return
        offset = wanted.fetch_offset
        if not start <= offset <= log_end:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        fetch.seen.setdefault(partition, end)
        if offset >= end or (budget <= 0 and fetch.size_bytes):
            return
        part = await log.read(
            offset, max_bytes=min(wanted.partition_max_bytes, budget), end_offset=end, min_one_message=not fetch.size_bytes,
            with_aborted=self.is_read_committed,
        )  # fmt: skip
        if part is not None:
            data.records = part.region
            size = len(part.region)
            fetch.size_bytes += size
            partition.meters.bytes_out += size
            if partition.leading is not None:
                partition.leading.sent_to_consumer(fetch.context.client_id or "", offset)
            if part.aborted:
                data.aborted_transactions = AbortedRun(part.aborted, fetch.context.version)  # type: ignore[assignment]  # as a list is sent

    def check(self, partition: Partition, known_epoch: int) -> None:
        """Checks that the partition may be read here under that leader epoch; KafkaError otherwise."""
        partition.check_leads(known_epoch)

    def is_absent(self, key: PartitionKey) -> None:
        pass

    def end(self) -> None:
        pass

    def answered(self) -> None:
        pass

    def settle(self, key: PartitionKey) -> None:
        raise AssertionError("only the partitions of a watched session settle")

    # -- waiting

    def may_wait(self, fetch: FetchPass) -> bool:
        return len(fetch.seen) > 0

    def is_enough(self, fetch: FetchPass, missing_bytes: int) -> bool:
        """True when enough came. Records of open transactions cannot be read: they count when their transaction ends.

        How much those have that were open already is not known: a fetch does not wait for more when one of them has ended.
        """
        if not self.is_read_committed:
            return missing_bytes <= 0
        has_ended = any(partition.last_stable_offset > stable_offset for partition, stable_offset in self._held.items())
        return has_ended or (missing_bytes <= 0 and self.has_news(fetch))

    def has_news(self, fetch: FetchPass) -> bool:
        if self.is_read_committed:
            return any(partition.last_stable_offset > seen for partition, seen in fetch.seen.items())
        return any(partition.high_watermark > seen for partition, seen in fetch.seen.items())

    def wait(self, fetch: FetchPass, parked: ParkedFetch) -> None:
        for partition in fetch.seen:
            partition.waiters[parked] = None

    def leave(self, fetch: FetchPass, parked: ParkedFetch) -> None:
        for partition in fetch.seen:
            partition.waiters.pop(parked, None)

    def is_held_back(self, partition: Partition) -> bool:
        return False


class ComparingPolicy(ConsumerPolicy):
    """The policy for tools that compare replicas: leader or not, the broker shows its log up to the high watermark that it knows."""

    waits_for_leaders: ClassVar = False
    __slots__ = ()

    def check(self, partition: Partition, known_epoch: int) -> None:
        partition.check_epoch(known_epoch)


class RefusedPolicy(ConsumerPolicy):
    """The policy for a client that claims to be a follower without the right: it gets no records, and its progress does not count."""

    __slots__ = ()

    def may_read(self, context: RequestContext, topic: str) -> bool:
        return False
