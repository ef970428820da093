"""Fetching ahead: one request to each broker, for all its partitions, once none of them has anything buffered.

Partitions are fetched from their leaders, or from the replicas in the client's rack that these name (KIP-392).

What comes back is decoded at once and buffered (``buffer.py``). Records below the position (a fetch returns complete batches) and
control records are passed over; with read_committed aborted records too. Fetches have a connection of their own to each
leader: nothing that is asked meanwhile waits until one that has found no records is answered. Source: KIP-74 (limits), KIP-98
(isolation), KIP-320 (epochs).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping
from itertools import repeat
from typing import Final

from ottla.client.absent_topics import AbsentTopics
from ottla.client.background import background
from ottla.client.buffer import AnyRecord, ConsumerRecord, FetchBuffer, Fetched
from ottla.client.cluster import Cluster
from ottla.client.fetch_request import by_partition, fetch_topics
from ottla.client.fetch_settings import RESET_TIMESTAMPS, FetchSettings
from ottla.client.flights import NEVER_MS, Flight, Flights
from ottla.client.meters import ConsumerMeters
from ottla.client.positions import Positions
from ottla.client.resets import Resets
from ottla.client.usable import closed
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.fetch import EpochEndOffset, FetchRequest, FetchResponse, PartitionData
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import iterate_batches
from ottla.records.iteration import read_columns
from ottla.types import NO_EPOCH, TopicPartition

log = get_logger(__name__)
application_log: Final = logging.getLogger("ottla.client")  # as in watch.py


class Fetcher:
    def __init__(self, cluster: Cluster, positions: Positions, settings: FetchSettings, buffer: FetchBuffer, absent: AbsentTopics) -> None:
        self._cluster = cluster
        self._positions = positions
        self._absent = absent
        self._settings = settings
        self._buffer = buffer
        self.meters = ConsumerMeters()
        self._flights = Flights(settings.fetch_max_wait_ms)
        self._looked_ms = 0  # when it was last looked what is due
        self._held_ms = NEVER_MS  # when a partition's next fetch no longer waits for another's answer, or an answer is late
        self._resets = Resets(cluster, positions, settings.isolation_level_number, recover=self._recover, ended=self._end)
        self._looking: asyncio.Task[None] | None = None  # for leaders
        self._look_up_failures = 0  # one after the other
        self._news = asyncio.Event()
        self._problem: KafkaError | None = None
        self.is_held = False  # nothing is handed out
        self.is_ended = False

    def end(self) -> None:
        """Ends what waits for records, in whichever task: the consumer is being closed."""
        self.is_ended = True
        self._news.set()

    async def close(self) -> None:
        tasks = [task for task in (*(flight.task for flight in self._flights), *self._resets, self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def take(self, count_max: int) -> list[AnyRecord]:
        """Takes up to ``count_max`` records that are here already, and moves their partitions' positions after them."""
        if self.is_ended:
            raise closed()
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        if self.is_held:
            return []
        taken = self._buffer.take(count_max)
        self.meters.records += len(taken)
        return taken

    def wake(self) -> None:
        self._news.set()

    async def wait(self, timeout_ms: float, *, for_more: bool = False) -> None:
        """Waits until something has come, or the time is over. Keeps one fetch in flight to every broker meanwhile.

        Records that have come before count, unless it is ``for_more``: who waits for a position would not let go of the loop for them.
        """
        if self.is_ended:
            raise closed()
        self._news.clear()
        self.start()
        if self._buffer.has_some() and not for_more:
            return
        try:
            async with asyncio.timeout(min(timeout_ms, self._retry_in_ms()) / 1000):
                await self._news.wait()
        except TimeoutError:
            return
        if self.is_ended:  # no step of a poll follows, which could join the group again
            raise closed()

    def _retry_in_ms(self) -> float:
        """Returns the time until a partition that failed, or that another fetch holds up, is fetched again; 0 once it is due."""
        now_ms = self._cluster.world.clock.monotonic_ms()
        held = [state.retry_ms for state in map(self._positions.of, self._positions) if state.retry_ms > self._looked_ms]
        return max(0, min((*held, self._held_ms)) - now_ms)

    def start(self) -> None:
        """Sends what is due to the brokers (``flights.py``).

        A fetch of a broker's quiet partitions alone would wait there, and the next one of its busy partitions for its answer (KAFKA-17182).
        So while records of some are still to be handed out, those alone are fetched that are known to have more, without a wait.
        """
        wanted: dict[int, dict[TopicPartition, int]] = {}  # and the version of the position that is asked for
        buffered: set[int | None] = set()  # brokers of partitions whose records are still to be handed out
        starting: dict[int, dict[TopicPartition, int]] = {}  # where their positions are to be: at the start or at the end
        needs_leader = False
        now_ms = self._cluster.world.clock.monotonic_ms()
        self._held_ms = NEVER_MS
        self._looked_ms = now_ms
        for partition in self._positions:
            state = self._positions.of(partition)
            if state.position is None:
                if state.seek_timestamp is not None and state.retry_ms <= now_ms:
                    leader = self._cluster.leader(partition)
                    if leader is None:
                        needs_leader = True
                    else:
                        starting.setdefault(leader, {})[partition] = state.seek_timestamp
            elif not state.is_paused:
                node = state.nearby(now_ms)
                if node is None:
                    node = self._cluster.leader(partition)
                if partition in self._buffer:
                    buffered.add(node)
                elif state.retry_ms <= now_ms:
                    due_ms = None if node is None else self._flights.due_ms(node, partition, state.version)
                    if node is None:
                        needs_leader = True
                    elif due_ms is not None and due_ms <= now_ms:
                        wanted.setdefault(node, {})[partition] = state.version
                    elif due_ms is not None:
                        self._held_ms = min(self._held_ms, due_ms)
        for node, versions in wanted.items():
            if node in buffered:
                versions = {partition: version for partition, version in versions.items() if self._positions.of(partition).has_more}
                if not versions:
                    continue
            flight = self._flights.depart(node, versions, now_ms, waits=node not in buffered)
            flight.task = background(self._fetch(flight))
            flight.task.add_done_callback(functools.partial(self._fetched, flight))
        self._resets.start(starting)
        if self._looking is None:
            late = self._flights.late(now_ms)
            needs_leader = needs_leader or len(late) > 0
            for flight in late:
                self._suspect(flight)
        self._held_ms = min(self._held_ms, self._flights.late_ms(now_ms))
        if needs_leader and self._looking is None:
            self._looking = background(self._look_up())
            self._looking.add_done_callback(self._looked_up)

    def _suspect(self, flight: Flight) -> None:
        """Has others asked who leads: the broker does not answer. Partitions are fetched from the leaders that they name meanwhile."""
        connection = self._cluster.open_connection(flight.node, flight.lane)
        if connection is not None:
            connection.suspect()
        for state in filter(None, map(self._positions.get, flight.versions)):
            state.read_from_leader()

    def _fetched(self, flight: Flight, task: asyncio.Task[None]) -> None:
        self._flights.land(flight)
        self._end(task)

    def _looked_up(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        self._end(task)

    def _end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            error = task.exception()
            if isinstance(error, KafkaError):
                self._problem = error
            elif error is not None:
                self._problem = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
        self._news.set()

    async def _fetch(self, flight: Flight) -> None:
        node, versions = flight.node, flight.versions
        sent = {partition: self._cluster.leader_epoch(partition) for partition in versions}
        try:
            connection = await self._cluster.connection(node, flight.lane)
            request = self._request([partition for partition in versions if self._is_as_asked(partition, versions)], flight.wait_ms)
            if request is None:
                return
            timeout_ms = self._cluster.request_timeout_ms + flight.wait_ms
            response = await connection.ask(request, FetchResponse, timeout_ms=timeout_ms)
            if response.error_code:
                raise KafkaError(response.error_code, "fetch")
        except KafkaError as error:
            self.meters.failed += 1
            self._flights.recover(flight, versions)
            await self._recover(dict.fromkeys(versions, error), sent)
            return
        self.meters.fetches += 1
        self._cluster.take_endpoints(response.node_endpoints)
        problems: dict[TopicPartition, KafkaError] = {}
        damage: KafkaError | None = None
        for partition, data in by_partition(request, response):
            state = self._positions.get(partition)
            if state is None or not self._is_as_asked(partition, versions):
                continue
            if partition in self._buffer:  # two leaders were asked, one after the other, and the other one has answered first
                continue
            if data.preferred_read_replica >= 0:
                state.read_from(data.preferred_read_replica, self._cluster.world.clock.monotonic_ms() + self._cluster.metadata_max_age_ms)
                continue
            problem = self._partition_problem(partition, data)
            if problem is not None:
                problems[partition] = problem
                continue
            state.failures = state.retry_ms = 0
            if not data.error_code and data.diverging_epoch is None:
                state.high_watermark = data.high_watermark
                state.known_end = data.high_watermark if data.last_stable_offset < 0 else min(data.high_watermark, data.last_stable_offset)
                try:
                    self._keep(partition, data, versions[partition])
                except DecodeError as error:
                    damage = self._damaged(node, partition, error)
        if problems:
            self._flights.recover(flight, problems)
            self._news.set()
            await self._recover(problems, sent)
        if damage is not None:
            raise damage

    def _damaged(self, node: int, partition: TopicPartition, found: DecodeError) -> KafkaError:
        """Returns what is said of a partition whose next batch is damaged. It is asked for again after a pause: others may lead by then."""
        state = self._positions.of(partition)
        state.failures += 1
        state.retry_ms = self._cluster.world.clock.monotonic_ms() + int(self._cluster.backoff.delay_ms(state.failures, self._cluster.world))
        text = f"{partition} at offset {state.position}, from broker {node}: {found.message}; that broker's copy is damaged"
        return KafkaError(found.code, f"{text} (docs/troubleshooting.md has what to do), and seek() reads what comes after it")

    def _is_as_asked(self, partition: TopicPartition, versions: Mapping[TopicPartition, int]) -> bool:
        """True when the partition is still assigned, and its position has not moved since the fetch was sent."""
        state = self._positions.get(partition)
        return state is not None and state.version == versions.get(partition)

    def _request(self, partitions: list[TopicPartition], wait_ms: int) -> FetchRequest | None:
        """Returns the request; None when none of the partitions can be asked for."""
        positions = {partition: self._position_of(partition) for partition in partitions}
        settings = self._settings
        epochs = {partition: self._positions.of(partition).fetched_epoch for partition in partitions}
        topics = fetch_topics(self._cluster, positions, partition_bytes_max=settings.max_partition_fetch_bytes, epochs=epochs)
        if not topics:
            return None
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_max_bytes,
            isolation_level=settings.isolation_level_number,
            topics=topics,
            rack_id=settings.client_rack,
        )

    def _position_of(self, partition: TopicPartition) -> int:
        position = self._positions.of(partition).position
        assert position is not None, "only partitions with a position are fetched"
        return position

    def _keep(self, partition: TopicPartition, data: PartitionData, version: int) -> None:
        """Keeps the records that are consumed. DecodeError when there are none before a damaged batch."""
        state = self._positions.of(partition)
        start = state.position
        assert start is not None, "a partition that was fetched has a position"
        view = data.records
        if view is None or not len(view):
            return
        assert isinstance(view, (bytes, memoryview)), "a response's records are bytes"
        self.meters.bytes += len(view)
        records: list[AnyRecord] = []
        next_offset, last_epoch = start, NO_EPOCH
        # With read_uncommitted brokers list none. A batch below the position may still end a transaction, so each one is asked about.
        aborted = AbortedTransactions(data.aborted_transactions or ())
        try:
            for at, header in iterate_batches(view, check_crc=self._settings.check_crcs):
                is_committed = aborted.admits(view, at, header)
                if header.last_offset < start:
                    continue
                if not header.is_control and is_committed:
                    columns = read_columns(view, at, header, start=start)
                    records.extend(
                        map(
                            ConsumerRecord,
                            repeat(partition.topic),
                            repeat(partition.partition),
                            columns.offsets,
                            columns.times_ms,
                            repeat(1 if header.is_log_append_time else 0),
                            columns.keys,
                            columns.values,
                            columns.headers,
                            repeat(header.leader_epoch),
                        )
                    )
                next_offset, last_epoch = header.last_offset + 1, header.leader_epoch
        except DecodeError:
            if next_offset == start:
                raise
        if next_offset > start:
            self._buffer.add(Fetched(partition, version, records, next_offset, last_epoch))

    def _partition_problem(self, partition: TopicPartition, data: PartitionData) -> KafkaError | None:
        """Handles the error of one partition. Returns what is left to be done; None without such."""
        state, policy = self._positions.of(partition), self._settings.auto_offset_reset
        if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
            return self._truncated(partition, data.diverging_epoch)
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.nearby(self._cluster.world.clock.monotonic_ms()) is not None:  # the leader knows whether that is so
                return KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"fetch from {partition}")
            if policy == "none":
                text = f"offset {state.position} of {partition} is out of range and auto_offset_reset=none"
                return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
            why = "offset %d of %s is out of range: it was deleted, or was never there; the consumer goes on at the %s (auto_offset_reset)"
            application_log.warning(why, state.position, partition, {"earliest": "first record", "latest": "end"}[policy])
            state.seek_to(RESET_TIMESTAMPS[policy])
            return None
        if data.current_leader is not None:
            self._cluster.take_leader(partition, data.current_leader.leader_id, data.current_leader.leader_epoch)
        return KafkaError(data.error_code, f"fetch from {partition}") if data.error_code else None

    def _truncated(self, partition: TopicPartition, diverging: EpochEndOffset) -> KafkaError | None:
        """Handles a truncation: records that were read are gone, and other records may have their offsets now (KIP-320)."""
        state, policy = self._positions.of(partition), self._settings.auto_offset_reset
        lost = f"{partition} was truncated: what was read up to offset {state.position} was removed from offset {diverging.end_offset} on"
        if policy == "none":
            text = f"{lost}, and auto_offset_reset=none: seek to {diverging.end_offset} to read what is there now"
            return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
        log.error("log_truncation", partition=str(partition), position=state.position, diverges_at=diverging.end_offset)
        state.seek(diverging.end_offset)
        return None

    async def _recover(self, problems: dict[TopicPartition, KafkaError], sent: dict[TopicPartition, int]) -> None:
        """Gets newer metadata for what may pass; everything else is raised to the application.

        A partition is asked for at once where a newer leader is known than that of the epoch under which it was ``sent``, and after its
        first failure; then it waits longer with each one.
        """
        for error in problems.values():
            if not error.is_transient:
                raise error
        if not all(self._cluster.leader_epoch(partition) > sent[partition] for partition in problems):
            try:
                await self._cluster.refresh({partition.topic for partition in problems})
            except KafkaError as again:
                if not again.is_transient:
                    raise
        now_ms = self._cluster.world.clock.monotonic_ms()
        for partition in problems:
            state = self._positions.get(partition)
            if state is None:
                continue
            state.failures += 1
            state.read_from_leader()
            is_elsewhere = self._cluster.leader_epoch(partition) > sent[partition]
            delay_ms = 0.0 if is_elsewhere else self._delay_ms(state.failures)
            state.retry_ms = now_ms + int(delay_ms)

    def _delay_ms(self, failures: int) -> float:
        """Returns the pause before the next try: none after the first failure, since newer metadata may have solved it."""
        return self._cluster.backoff.delay_ms(failures - 2, self._cluster.world) if failures > 1 else 0.0

    async def _look_up(self) -> None:
        """Looks up who leads the partitions."""
        topics = {partition.topic for partition in self._positions}
        if self._look_up_failures > 0:
            await asyncio.sleep(self._delay_ms(self._look_up_failures) / 1000)
        self._look_up_failures += 1
        try:
            await self._cluster.refresh(topics)
        except KafkaError as error:
            if not error.is_transient:
                raise
        if all(self._cluster.leader(partition) is not None for partition in self._positions):
            self._look_up_failures = 0
            return
        self._absent.look_for_partitions(self._positions)
        refusal = self._absent.refusal(topics)
        if refusal is not None:
            raise refusal
