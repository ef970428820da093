"""One leader's partitions are fetched over one connection, on which one fetch is always on its way.

What an answer means for a partition is the machine's (``replication/follower.py``); here its records are appended, its log is cut, and the
next fetch leaves when all of that is done. A leader that is lost changes nothing: it is asked again until the metadata names another one.
A partition that comes while a fetch waits at the leader does not wait with it: that fetch is given up, and a new session starts.

What a fetch reports is what this broker has kept: a log start that is on its disk, and no record that ``flush.messages`` has it sync first.
On a disk without room it reports less, and tries again (``broker/replicas/unkept_starts.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.broker.peers.peers import Address, Peers
from ottla.broker.replicas.follower_log import Cut, append, settle, take_progress, truncate_each
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.replicas.unkept_starts import UnkeptStarts
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.fetch import FetchResponse, PartitionData
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.ports import TimerHandle, World
from ottla.replication.follower import NEVER, Append, AskOffsets, Followed, StartOver, Step, Truncate
from ottla.replication.replica_session import Asked, PartitionKey, ReplicaSession
from ottla.wire.schema import Response

log = get_logger(__name__)

RETRY_MS: Final = 20
RETRY_MS_MAX: Final = 500
JOIN_MS: Final = 5
JOIN_MS_MAX: Final = 500
"""So long a fetch may wait at the leader once there are partitions that it does not ask for: the first time, and when one after the
other was given up. Where partitions join all the time, as at a start, no answer that takes longer would ever be taken in.

No fetch is given up after ``replica.fetch.wait.max.ms``: by then it waits for no records, but for a leader that has much to do.
"""
NO_ROOM_MS: Final = 100
LATEST, EARLIEST = -1, -2


class ReplicaFetcher:
    """Fetches from one leader.

    ``on_lost``: the connection to it has ended, or none could be made. ``on_may_fetch``: a partition is to be fetched again; another
    fetcher may have it since the leader was asked for its offsets.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        peers: Peers,
        address: Callable[[], Address | None],
        broker_epoch: Callable[[], int],
        store: PartitionStore,
        *,
        on_lost: Callable[[], None],
        on_answered: Callable[[], None],
        on_may_fetch: Callable[[Partition], None],
    ) -> None:
        self._world = world
        self._config = config
        self._peers = peers
        self._address = address
        self._broker_epoch = broker_epoch
        self._store = store
        self._throttle = store.replication.throttles.follower
        self._waiting: dict[Partition, None] = {}  # that the timer asks for again
        self._settling: dict[Partition, None] = {}  # that are asked for when they are written and synced
        self._unkept_starts = UnkeptStarts(store)
        self._session = ReplicaSession(config.node_id)
        self._partitions: dict[PartitionKey, Partition] = {}
        self._fetch_number = 0  # of the fetch on its way; answers to earlier ones do not count
        self._is_fetching = self._is_taking = self._is_closed = False
        self._retry_ms = RETRY_MS
        self._join_ms = JOIN_MS  # so long a fetch may go on when a partition joins; longer after each that was given up for one
        self._timer: TimerHandle | None = None
        self._timer_at_ms = NEVER
        self._joining: TimerHandle | None = None  # of the fetch on its way: it is given up then
        self._on_lost = on_lost
        self._on_answered = on_answered
        self._on_may_fetch = on_may_fetch

    def join(self, partition: Partition) -> None:
        self._partitions[partition.topic_id, partition.index] = partition
        self._want(partition)
        if not self._is_fetching:
            self._fetch_soon()
        elif self._joining is None and self._join_ms < self._config["replica.fetch.wait.max.ms"]:
            self._joining = self._world.timers.call_later_ms(self._join_ms, self._give_up)

    def ask_for(self, partition: Partition) -> None:
        """Adds the partition to the next fetch, where it may be fetched; nothing where it has left."""
        self._want(partition)
        self._fetch_soon()

    def leave(self, partition: Partition) -> None:
        key = partition.topic_id, partition.index
        self._partitions.pop(key, None)
        self._waiting.pop(partition, None)
        self._unkept_starts.leave(partition)
        self._session.forget(key)

    def close(self) -> None:
        self._is_closed = True
        self._partitions.clear()
        self._waiting.clear()
        for timer in (self._timer, self._joining):
            if timer is not None:
                timer.cancel()

    # -- asking

    def _want(self, partition: Partition) -> None:
        """Asks for the partition, unless it waits, or has left while its part of an answer was taken in."""
        key, followed, opened = (partition.topic_id, partition.index), partition.followed, partition.log
        if self._partitions.get(key) is not partition:
            return
        now_ms = self._world.clock.monotonic_ms()
        self._waiting.pop(partition, None)
        if followed is None or opened.is_failed:
            self._session.forget(key)
        elif not followed.may_fetch(now_ms):
            self._session.forget(key)
            if followed.wait_until_ms != NEVER and not followed.is_finding_offsets:
                self._ask_in(partition, followed.wait_until_ms - now_ms)
        elif self._is_held_back(partition, followed):
            self._session.forget(key)
            self._ask_in(partition, self._throttle.wait_ms)
        elif opened.health.has_no_room:
            self._session.forget(key)
            self._ask_in(partition, NO_ROOM_MS)
        elif opened.durability.owes_sync or not partition.role.is_end_known:
            self._session.forget(key)
            self._settle(partition, followed)
        else:
            asked = Asked(opened.log_end_offset, followed.leader_epoch, opened.epochs.latest_epoch, opened.durability.start_offset)
            self._session.want(key, asked)

    def _is_held_back(self, partition: Partition, followed: Followed) -> bool:
        """True when a replica that catches up is throttled, and the rate is exceeded (KIP-73)."""
        throttle = self._throttle
        return bool(throttle.topics) and not followed.is_caught_up and throttle.is_throttled(partition.key) and throttle.is_exceeded

    def _ask_in(self, partition: Partition, delay_ms: int) -> None:
        self._waiting[partition] = None
        self._wake_in(delay_ms)

    def _wake_in(self, delay_ms: int) -> None:
        at_ms = self._world.clock.monotonic_ms() + max(0, delay_ms)
        if at_ms >= self._timer_at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = self._world.timers.call_later_ms(max(0, delay_ms), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at_ms = None, NEVER
        if self._is_closed:
            return
        for partition in list(self._waiting):
            self._want(partition)
        self._fetch_soon()

    def _give_up(self) -> None:
        """Gives the waiting fetch up: it waits at the leader for what others send; what has come since is asked for at once."""
        assert self._is_fetching, "the time for that ends with the fetch"
        self._fetch_number += 1
        self._fetch_ended()
        self._join_ms = min(2 * self._join_ms, JOIN_MS_MAX)
        self._session.reset()
        address = self._address()
        if address is not None:
            self._peers.drop(address)
        self._fetch_soon()

    def _fetch_ended(self) -> None:
        self._is_fetching = False
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None

    def _fetch_soon(self) -> None:
        if self._is_fetching or self._is_taking or self._is_closed or not self._session.has_partitions:
            return
        address, broker_epoch = self._address(), self._broker_epoch()
        if address is None or broker_epoch < 0:  # a leader must not take it for the process that it was before
            self._wake_in(self._retry_ms)
            return
        config = self._config
        request = self._session.request(
            broker_epoch=broker_epoch,
            max_wait_ms=config["replica.fetch.wait.max.ms"],
            min_bytes=config["replica.fetch.min.bytes"],
            max_bytes=config["replica.fetch.response.max.bytes"],
            partition_max_bytes=config["replica.fetch.max.bytes"],
        )
        self._is_fetching = True
        self._fetch_number += 1
        self._peers.send(address, request, partial(self._on_answer, self._fetch_number))

    # -- answers

    def _on_answer(self, number: int, response: Response | None) -> None:
        if self._is_closed or number != self._fetch_number:
            return
        self._fetch_ended()
        if response is None:
            self._on_lost()
            self._session.reset()
            self._wake_in(self._retry_ms)
            self._retry_ms = min(2 * self._retry_ms, RETRY_MS_MAX)
            return
        assert isinstance(response, FetchResponse), "an API has one response type"
        self._retry_ms, self._join_ms = RETRY_MS, max(JOIN_MS, self._join_ms // 2)
        self._on_answered()
        if response.error_code:
            log.info("replica_fetch_refused", reason=ErrorCode(response.error_code).name)
            self._session.reset()
            self._wake_in(RETRY_MS)
            return
        said = self._session.said
        self._session.on_answer(response.session_id)
        self._is_taking = True
        eager.run(self._take_all(response, said), self._taken)

    def _taken(self, _: None, error: BaseException | None) -> None:
        self._is_taking = False
        if error is not None and not self._is_closed:
            log.error("replica_fetch_failed", exc_info=error)
            self._session.reset()
            for partition in self._partitions.values():  # some may not have been come to
                self._want(partition)
            self._wake_in(RETRY_MS_MAX)
            return
        self._fetch_soon()

    async def _take_all(self, response: FetchResponse, said: dict[PartitionKey, Asked]) -> None:
        cuts = list[Cut]()
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                partition, asked = self._partitions.get(key), said.get(key)
                followed = None if partition is None else partition.followed
                if partition is None or asked is None or followed is None:
                    continue
                try:
                    if await self._take(partition, followed, asked, data, cuts):
                        self._unkept_starts.add(partition)
                except KafkaError as error:
                    self._failed(partition, followed, error)
                self._want(partition)
        if cuts:
            await self._cut(cuts)
        now_ms = self._world.clock.monotonic_ms()
        if self._unkept_starts.are_due(now_ms):
            for partition in await self._unkept_starts.keep(now_ms, backoff_ms=self._config["replica.fetch.backoff.ms"]):
                self._want(partition)

    def _failed(self, partition: Partition, followed: Followed, error: BaseException) -> None:
        if partition.followed is followed:  # else it follows another leader by now, or none
            if isinstance(error, KafkaError):
                log.warning("replica_not_fetched", partition=str(partition.key), leader_id=followed.leader_id, reason=error.message)
            else:
                log.error("replica_not_fetched", partition=str(partition.key), leader_id=followed.leader_id, exc_info=error)
            followed.wait_until_ms = self._world.clock.monotonic_ms() + self._config["replica.fetch.backoff.ms"]

    async def _cut(self, cuts: list[Cut]) -> None:
        """Cuts all that one answer cuts, together."""
        for cut in cuts:
            what, partition = "replica_starts_over" if cut.starts_over else "replica_truncated", cut.partition
            log.info(what, partition=str(partition.key), end_offset=cut.offset, was=partition.log.log_end_offset)
        failed: dict[Partition, Exception]
        try:
            failed = await truncate_each(self._store, cuts)
        except KafkaError as error:
            failed = {cut.partition: error for cut in cuts}
        for cut in cuts:
            if (reason := failed.get(cut.partition)) is not None:
                self._failed(cut.partition, cut.followed, reason)
            self._want(cut.partition)

    def _settle(self, partition: Partition, followed: Followed) -> None:
        """Asks for the partition when its log's end is known, and synced as ``flush.messages`` has it."""
        if partition in self._settling:
            return
        self._settling[partition] = None

        def on_end(_: None, error: BaseException | None) -> None:
            del self._settling[partition]
            if self._is_closed or self._partitions.get((partition.topic_id, partition.index)) is not partition:
                return
            if error is not None:
                self._failed(partition, followed, error)
            self._want(partition)
            self._fetch_soon()

        eager.run(settle(partition), on_end)

    async def _take(self, partition: Partition, followed: Followed, asked: Asked, data: PartitionData, cuts: list[Cut]) -> bool:
        """Does what the answer says of the partition, or adds it to the ``cuts``; True when its log starts later by it."""
        if not partition.role.is_end_known:  # it was asked for at an end that may be another one by now
            return False
        now_ms, known = self._world.clock.monotonic_ms(), partition.high_watermark
        step = followed.on_answer(asked.offset, asked.leader_epoch, data, partition.log, now_ms)
        if isinstance(step, Append):
            records = memoryview(step.records)  # type: ignore[arg-type]
            await append(self._store, partition, followed, asked.offset, records, now_ms=self._world.clock.now_ms())
            followed.leader_high_watermark(data.high_watermark, partition.log)
        if partition.high_watermark > known:
            partition.follower_committed()
        if isinstance(step, AskOffsets):
            self._ask_offsets(partition, followed)
        elif (cut := _cut_of(partition, followed, step)) is not None:
            cuts.append(cut)
            return False
        return partition.followed is followed and take_progress(partition, followed)

    # -- where the leader's log is

    def _ask_offsets(self, partition: Partition, followed: Followed) -> None:
        address, found = self._address(), list[int]()

        def on_answer(response: Response | None) -> None:
            if partition.followed is not followed or self._is_closed:
                return
            offset = _offset_in(response)
            if offset is None:
                followed.on_no_offsets(self._world.clock.monotonic_ms())
                self._on_may_fetch(partition)
                return
            found.append(offset)
            if len(found) == 1:
                ask(LATEST)
                return
            step = followed.on_offsets(found[0], found[1], partition.log)
            cut = _cut_of(partition, followed, step)
            eager.run(self._cut([] if cut is None else [cut]), lambda _, error: self._found(partition, error))

        def ask(timestamp: int) -> None:
            wanted = ListOffsetsPartition(partition.index, followed.leader_epoch, timestamp)
            request = ListOffsetsRequest(self._config.node_id, topics=[ListOffsetsTopic(partition.topic, [wanted])])
            if address is None:
                on_answer(None)
            else:
                self._peers.send(address, request, on_answer)

        ask(EARLIEST)

    def _found(self, partition: Partition, error: BaseException | None) -> None:
        if error is not None:
            log.error("replica_not_truncated", partition=str(partition.key), exc_info=error)
        self._on_may_fetch(partition)


def _offset_in(response: Response | None) -> int | None:
    """Returns the offset of the one partition that was asked for; None where the leader does not say, or is lost."""
    for topic in response.topics if isinstance(response, ListOffsetsResponse) else ():
        for result in topic.partitions:
            return None if result.error_code else result.offset
    return None


def _cut_of(partition: Partition, followed: Followed, step: Step) -> Cut | None:
    if isinstance(step, Truncate):
        return Cut(partition, followed, step.end_offset)
    return Cut(partition, followed, step.offset, starts_over=True) if isinstance(step, StartOver) else None
