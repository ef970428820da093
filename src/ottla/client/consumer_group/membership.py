"""A consumer's membership in a group of the consumer protocol: sends the heartbeats of its ``ConsumerMember``, and carries out the rounds.

Heartbeats run beside the application's polls, in the interval that the coordinator says, and at once when there is news. A round takes no
longer than the application does: it gives up partitions in a poll, and takes others in a poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar
from uuid import UUID

from ottla.client.background import background, end
from ottla.client.cluster import Cluster
from ottla.client.consumer_group.member import LOST, ConsumerMember, Identity, Partitions, Standing, may_leave_after
from ottla.client.consumer_group.topic_names import names_of
from ottla.client.coordinator import EPOCHS_SINCE, Found, GroupCoordinator
from ottla.client.failures import as_kafka_error
from ottla.client.group_metadata import GroupMetadata, Place, no_member, out_for_silence
from ottla.client.membership_settings import MembershipSettings
from ottla.client.positions import Positions
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.ports import Random
from ottla.types import TopicPartition

T = TypeVar("T")
REGEX_SINCE: Final = 1
IDLE_LOOK_MS: Final = 1_000
"""How often a member that has nothing to say looks whether its application still polls."""


class ConsumerMembership:
    """A ``Membership``."""

    def __init__(
        self,
        cluster: Cluster,
        coordinator: GroupCoordinator,
        group_id: str,
        settings: MembershipSettings,
        positions: Positions,
        *,
        rack: str = "",
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._clock = cluster.world.clock
        self._group_id = group_id
        self._settings = settings
        self._positions = positions
        identity = Identity(
            group_id,
            _fresh_id(cluster.world.random),
            settings.max_poll_interval_ms,
            settings.group_instance_id,
            rack or None,
            settings.group_remote_assignor,
        )
        self._member = ConsumerMember(identity)
        self._topics: list[str] | None = None  # by name
        self._may_create = False
        self._is_fresh = False  # the subscription: metadata has yet to be asked for its topics
        self._polled_ms = 0
        self._failed_joins = 0  # since the last one that came to its end
        self.why_out = ""
        self._taking: Partitions = {}  # what the last round was for
        self._names: dict[bytes, str] = {}  # of the topics in it
        self._wake: Callable[[], None] = lambda: None
        self._heartbeats: asyncio.Task[None] | None = None
        self._nudge = asyncio.Event()  # for the heartbeats
        self._moved = asyncio.Event()  # the member, since a waiter has looked

    # What the consumer asks

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def generation_id(self) -> int:
        return self._member.epoch

    @property
    def needs_rejoin(self) -> bool:
        return self._is_fresh or self._member.needs_round()

    @property
    def is_lost(self) -> bool:
        return self._member.was_lost or self._member.standing is not Standing.MEMBER

    @property
    def topics(self) -> list[str]:
        """The topics last subscribed to; where brokers match a pattern, the topics that this member has partitions of."""
        return list(self._topics) if self._topics is not None else sorted({partition.topic for partition in self._positions})

    @property
    def lacks_topics(self) -> bool:
        return any(topic not in self._cluster.topics for topic in self._topics or ())

    def subscribe(self, topics: list[str], *, may_create: bool) -> None:
        self._may_create = may_create
        if topics != self._topics:
            self._topics, self._is_fresh = topics, True
            self._member.subscribe(topics)
            self._nudge.set()

    def subscribe_matching(self, pattern: str) -> None:
        self._topics, self._is_fresh = None, False
        self._member.subscribe((), pattern)
        self._nudge.set()

    def on_metadata(self) -> None:
        """Does nothing: the coordinator sees by itself what becomes of topics."""

    def on_failed_join(self) -> None:
        """Does nothing: what a round was due for still is."""

    def on_poll(self) -> None:
        self._polled_ms = self._clock.monotonic_ms()

    def due_ms(self) -> float:
        return min(IDLE_LOOK_MS, self._settings.max_poll_interval_ms / 2)

    def revoked_before_join(self, owned: list[TopicPartition]) -> list[TopicPartition]:
        """Returns everything where the membership was lost. Otherwise ``join`` says what is to be given up."""
        return owned if self.is_lost else []

    def assigned(self, *, had_to_revoke: bool) -> None:
        self._member.take(self._taking)
        self._nudge.set()

    # Rounds

    async def join(self, wake: Callable[[], None]) -> list[TopicPartition]:
        """Joins if this is no member, and returns what the application is to have after this round; tries while that may help."""
        self._wake = wake
        if self._failed_joins:
            await self._pause(self._failed_joins - 1)
        attempt = 0
        while True:
            try:
                found = await self._join_once()
                self._failed_joins, self.why_out = 0, ""
                return found
            except KafkaError as error:
                if not error.is_transient:
                    self._failed_joins += 1
                    raise
            await self._pause(attempt)
            attempt += 1

    async def _join_once(self) -> list[TopicPartition]:
        member = self._member
        if self._is_fresh and self._topics is not None:
            await self._cluster.refresh(self._topics, allow_create=self._may_create)
            self._is_fresh = False
        while member.standing is not Standing.MEMBER:
            problem = member.take_problem()
            if problem is not None:
                raise problem
            if member.standing is Standing.OUT:
                member.join()
            self._begin()
            await self._next_move()
        return await self._taken(member.next_round())

    async def _taken(self, partitions: Partitions) -> list[TopicPartition]:
        """Returns the round's partitions by name. Topics that the metadata does not have yet are left for a later round."""
        names = {topic: self._names[topic] for topic in partitions if topic in self._names}
        names |= await names_of(self._cluster, partitions.keys() - names.keys())
        self._member.leave_out(partitions.keys() - names.keys(), self._clock.monotonic_ms())
        self._names = names
        self._taking = {topic: indexes for topic, indexes in partitions.items() if topic in names}
        self._cluster.retain({*(self._topics or ()), *names.values()})
        return [TopicPartition(names[topic], index) for topic, indexes in self._taking.items() for index in sorted(indexes)]

    async def _next_move(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(self._cluster.backoff.delay_ms(attempt, self._cluster.world) / 1000)

    # Heartbeats

    def _begin(self) -> None:
        self._nudge.set()
        if self._heartbeats is None:
            self._heartbeats = background(self._beat(), name="ottla-heartbeat")
            self._heartbeats.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Has the poll raise what ended the heartbeats: a join would wait for them for ever."""
        problem = None if task.cancelled() else task.exception()
        if isinstance(problem, Exception):
            self._heartbeats = None
            self._member.refuse(as_kafka_error(problem))
            self._moved.set()
            self._wake()

    async def _beat(self) -> None:
        """Runs until the group is left. Rounds are the poll's work; here they are only asked for."""
        member = self._member
        while True:
            now_ms = self._clock.monotonic_ms()
            if member.standing is Standing.MEMBER and now_ms - self._polled_ms > self._settings.max_poll_interval_ms:
                await self._drop_out()
            elif (request := member.heartbeat(now_ms)) is not None:
                await self._send(request)
            elif topics := member.to_look_for(now_ms):
                await self._look_for(topics)
            else:
                await self._sleep(now_ms)
                continue
            self._moved.set()
            if self.needs_rejoin:
                self._wake()

    async def _sleep(self, now_ms: int) -> None:
        """Waits for the next heartbeat's time, the end of max.poll.interval.ms, or news."""
        due_ms = IDLE_LOOK_MS if self._member.standing is Standing.OUT else self._member.due_ms - now_ms
        if self._member.standing is Standing.MEMBER:
            due_ms = min(due_ms, self._polled_ms + self._settings.max_poll_interval_ms + 1 - now_ms)
        try:
            async with asyncio.timeout(max(0, min(due_ms, IDLE_LOOK_MS)) / 1000):
                await self._nudge.wait()
        except TimeoutError:
            return
        self._nudge.clear()

    async def _look_for(self, topics: frozenset[bytes]) -> None:
        """Has the next round take what was left out, of the topics that there are now."""
        try:
            found = await names_of(self._cluster, topics)
        except KafkaError:
            found = {}  # the next look asks again
        self._names |= found
        self._member.leave_out(topics - found.keys(), self._clock.monotonic_ms())

    async def _send(self, request: ConsumerGroupHeartbeatRequest) -> None:
        member, membership = self._member, self._member.membership
        try:
            version_min = REGEX_SINCE if member.needs_regex else 0
            answer = await self._coordinator.ask(request, ConsumerGroupHeartbeatResponse, version_min=version_min)
            if answer.error_code:
                raise KafkaError(answer.error_code, answer.error_message or f"heartbeat of group {self._group_id!r}")
        except KafkaError as error:
            if membership == member.membership:
                await self._on_error(error)
        else:
            member.on_answer(answer, self._clock.monotonic_ms())

    async def _on_error(self, error: KafkaError) -> None:
        member, was_member = self._member, self._member.standing is Standing.MEMBER
        self._coordinator.on_error(error.code)
        delay_ms = self._cluster.backoff.delay_ms(member.failures, self._cluster.world)
        member.on_error(_in_words(error), self._clock.monotonic_ms(), retry_ms=delay_ms)
        if was_member and member.problem is not None and may_leave_after(error.code):
            await self._send_leave()

    async def _drop_out(self) -> None:
        """Leaves, for the application does not poll. Others get its partitions; a static member's, when its session is over."""
        self.why_out = out_for_silence(self._group_id, self._settings.max_poll_interval_ms)
        self._member.lose()
        await self._send_leave()

    # Offsets

    async def commit(self, offsets: Mapping[TopicPartition, Place]) -> None:
        """Stores the offsets in this member's name and epoch; in the next one, where the coordinator has moved it on meanwhile."""

        def store(place: GroupMetadata) -> Awaitable[None]:
            return self._coordinator.commit(
                offsets,
                generation_id=place.generation_id,
                member_id=place.member_id,
                group_instance_id=place.group_instance_id,
                version_min=EPOCHS_SINCE,
            )

        await self._in_epoch(store)

    async def look_up(self, partitions: list[TopicPartition]) -> Found:
        """Returns what the group has committed; asked as one that is no member while this is none."""
        if self._member.standing is Standing.MEMBER:
            try:
                return await self._in_epoch(lambda place: self._coordinator.look_up(partitions, place))
            except KafkaError as error:
                if error.code not in (*LOST, ErrorCode.ILLEGAL_GENERATION):
                    raise
        return await self._coordinator.look_up(partitions)

    async def _in_epoch(self, ask: Callable[[GroupMetadata], Awaitable[T]]) -> T:
        """Asks as the member in its epoch, and again in the next one where the coordinator has moved it on."""
        member = self._member
        deadline_ms = self._clock.monotonic_ms() + self._cluster.request_timeout_ms
        attempt = 0
        while True:
            place, membership = self.metadata(is_subscribed=True), member.membership
            try:
                return await ask(place)
            except KafkaError as error:
                if error.code in LOST and membership == member.membership:
                    member.lose()
                    self._wake()
                if error.code != ErrorCode.STALE_MEMBER_EPOCH or membership != member.membership:
                    raise
                problem = error
            if member.epoch == place.generation_id:  # the answer with the next one is not here yet
                member.hurry()
                self._nudge.set()
                await self._cluster.pause(attempt, deadline_ms, problem)
            attempt += 1

    def metadata(self, *, is_subscribed: bool) -> GroupMetadata:
        if not is_subscribed:
            return GroupMetadata(self._group_id)
        if self._member.standing is not Standing.MEMBER:
            raise no_member(self.why_out)
        return GroupMetadata(self._group_id, self._member.epoch, self._member.member_id, self._settings.group_instance_id)

    # Leaving

    async def leave(self, limit_ms: int) -> None:
        """Leaves the group; a static member for a while: it may come back in time and keep its partitions."""
        await self.close()
        is_in = self._member.standing is not Standing.OUT
        self._member.end()
        self._topics, self._is_fresh = None, False
        if is_in:
            await self._send_leave(limit_ms)

    async def _send_leave(self, limit_ms: int | None = None) -> None:
        try:
            async with asyncio.timeout(None if limit_ms is None else limit_ms / 1000):
                await self._coordinator.take_leave(self._member.leaving(), ConsumerGroupHeartbeatResponse, limit_ms=limit_ms)
        except (KafkaError, TimeoutError):
            return  # the session times out instead

    async def close(self) -> None:
        heartbeats, self._heartbeats = self._heartbeats, None
        await end(heartbeats)


def _fresh_id(random: Random) -> str:
    """Returns a member id: a random UUID's usual text."""
    return str(UUID(int=random.getrandbits(128), version=4))


def _in_words(error: KafkaError) -> KafkaError:
    """Returns the error with what it means for an application, where its own text does not say that."""
    match error.code:
        case ErrorCode.UNSUPPORTED_VERSION:
            text = (
                "the cluster does not serve group.protocol=consumer (KIP-848): its brokers are too old, or the protocol is off there; use "
                f"group_protocol='classic' ({error.message})"
            )
        case ErrorCode.UNRELEASED_INSTANCE_ID:
            text = f"another member has this group.instance.id, until it leaves or its session is over ({error.message})"
        case _:
            return error
    return KafkaError(error.code, text)
