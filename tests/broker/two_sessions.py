"""Two consumers that ask one broker the same: the session of one is watched, and of the other every partition is looked at each time.

Their answers have to be equal, whatever happened before, and come at the same time. ``History`` draws what happens.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from tests.broker.leaders import OTHER, add_other
from tests.broker.test_leadership import batch

from ottla.broker.authorization import AllowAll
from ottla.broker.handlers import delete_records, fetch
from ottla.broker.node import Broker
from ottla.broker.replicas.partition import Partition
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices
from ottla.broker.upkeep.retention import Retention
from ottla.controller.decided import Recorded
from ottla.controller.topics import NewTopic
from ottla.errors import KafkaError
from ottla.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from ottla.messages.metadata_records import PartitionChangeRecord, RemoveTopicRecord
from ottla.metadata.image import ClusterImage, QuotaEntity
from ottla.metrics import RequestMeters
from ottla.quotas import ClientQuotas
from ottla.records.builder import BatchBuilder
from ottla.records.control import build_end_marker
from ottla.replication.fetch_sessions import FetchSession
from ottla.security.principal import ANONYMOUS
from ottla.sim.cluster import SimBroker

ALONE, SHARED = "alone", "shared"
"""Topics of one replica, and of three, two of which are other brokers' and are played."""
PARTITIONS = 12
FOLLOWERS = (OTHER, OTHER + 1)
_watching = True


@contextmanager
def watching_chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whether a session is watched is what the consumer says that asks, and not how many partitions it has."""
    with monkeypatch.context() as patched:
        patched.setattr(FetchSession, "is_worth_watching", property(lambda session: _watching))
        yield


class Connection:
    """Of a consumer; nothing is sent over it."""

    def __init__(self) -> None:
        self.parked: dict[Any, None] = {}
        self.watches: dict[Any, None] = {}
        self.listener = "PLAINTEXT"
        self.principal = ANONYMOUS
        self.rights = AllowAll()
        self.muted_until_ms = 0
        self.transport = self
        self.is_closed = False

    def update_reading(self) -> None: ...

    def abort(self) -> None:
        raise AssertionError("the broker refused the request")

    def close(self) -> None:
        for parked in [*self.parked, *self.watches]:
            parked.abandon()


class Context:
    """A request of it."""

    def __init__(self, connection: Connection, version: int, client_id: str) -> None:
        self.connection = connection
        self.version = version
        self.client_id = client_id
        self.principal = connection.principal
        self.may = connection.rights.may
        self.meters = RequestMeters(version, has_error_code=True)
        self.is_of_node = False
        self.answer: asyncio.Future[tuple[float, FetchResponse]] = asyncio.get_running_loop().create_future()

    def reply(self, response: FetchResponse) -> None:
        self.answer.set_result((asyncio.get_running_loop().time(), response))


class Client:
    def __init__(self, name: str, broker: Broker, version: int, *, is_watched: bool) -> None:
        self._name = name
        self._broker = broker
        self._version = version
        self.is_watched = is_watched
        self.connection = Connection()
        self.session_id = 0

    def ask(self, request: FetchRequest) -> asyncio.Future[tuple[float, FetchResponse]]:
        """When it is answered, and by what."""
        global _watching  # noqa: PLW0603 - what is patched has no place of its own
        _watching = self.is_watched
        context = Context(self.connection, self._version, self._name)
        own = FetchRequest(**{name: getattr(request, name) for name in request.__struct_fields__})
        own.session_id = self.session_id

        def done(response: FetchResponse | None, error: BaseException | None) -> None:
            if error is not None:
                context.answer.set_exception(error)
            elif response is not None:
                context.reply(response)

        eager.run(fetch.handle(self._broker.parts, context, own), done)  # type: ignore[arg-type]
        return context.answer


def plain(response: FetchResponse) -> tuple[object, ...]:
    """All that the answer says, but for the id of its session."""
    topics = []
    for topic in response.responses:
        partitions = []
        for data in topic.partitions:
            values: dict[str, Any] = {name: getattr(data, name) for name in data.__struct_fields__}
            values["records"] = bytes(data.records.read() if hasattr(data.records, "read") else data.records or b"")  # type: ignore[union-attr]
            values["aborted_transactions"] = data.aborted_transactions and list(data.aborted_transactions)
            partitions.append(repr(values))
        topics.append((topic.topic, topic.topic_id, partitions))
    return response.error_code, response.throttle_time_ms, response.session_id != 0, topics, repr(response.node_endpoints)


@dataclass
class History:
    """One draw of what happens, and what the two consumers are answered."""

    random: Random
    sim: SimBroker
    version: int
    held: dict[Partition, int] = field(default_factory=dict)  # where a transaction has not ended, and its producer
    seen: Counter[str] = field(default_factory=Counter)
    producer_count: int = 0

    async def begin(self) -> None:
        assert self.sim.broker is not None
        self.broker: Broker = self.sim.broker
        for name in (ALONE, SHARED):
            await self.create(name)
        self._new_clients()

    def _new_clients(self) -> None:
        self.clients = [Client(name, self.broker, self.version, is_watched=name == "watched") for name in ("watched", "complete")]
        self.epoch = 0
        self.named: set[tuple[str, int]] = set()  # what the sessions have
        self.given: set[tuple[str, int]] = set()  # what the last answer had records or an error of

    @property
    def partitions(self) -> list[Partition]:
        return [found for found in self.broker.partitions.all() if not found.is_internal]

    async def create(self, name: str) -> None:
        await self.broker.controller.create_topics([NewTopic(name, PARTITIONS, 1)])
        if name == SHARED:
            for index in range(PARTITIONS):
                await self.lead(name, index, is_led=True)

    # -- what happens

    async def lead(self, topic: str, index: int, *, is_led: bool) -> None:
        """This broker leads the partition in a new epoch, or another one does."""
        own = self.broker.node_id
        replicas = [own, *FOLLOWERS] if topic == SHARED else [own, OTHER] if not is_led else [own]
        leader = own if is_led else OTHER

        def decide(image: ClusterImage) -> Recorded:
            isr = replicas if is_led else [leader]
            topic_id = image.topics[topic].topic_id
            return Recorded(
                (PartitionChangeRecord(index, topic_id, isr=isr, leader=leader, replicas=replicas, eligible_leader_replicas=[]),)
            )

        await self.broker.controller.decide([decide])

    async def happens(self) -> None:
        often = {self.append: 30, self.commit: 20, self.delete_records: 6, self.elsewhere: 2, self.again: 12, self.expire: 4, self.hold: 14}
        seldom = {self.recreate: 0.7, self.fail_log: 0.4, self.quota: 2, self.reconnect: 1}
        shares = often | seldom
        what = self.random.choices(list(shares), list(shares.values()))[0]
        self.seen[what.__name__] += 1
        await what()

    async def append(self) -> None:
        led = [found for found in self.partitions if found.led_epoch >= 0 and not found.log.is_failed]
        if not led:
            return
        found = self.random.choice(led if self.random.random() < 0.5 else led[:: len(led) // 2])
        for _ in range(self.random.choice([1, 1, 6])):
            found.stage(batch(b"x" * self.random.choice([10, 10, 400])), now_ms=1)
        await found.flush()

    async def commit(self) -> None:
        """The followers of a partition have fetched more of it."""
        led = [found for found in self.partitions if found.leading is not None]
        if led:
            found = self.random.choice(led)
            assert found.leading is not None
            end = found.log.log_end_offset
            low = min(found.high_watermark, end)
            for node in FOLLOWERS:
                try:
                    if found.leading.on_follower_fetch(node, broker_epoch=1000, offset=self.random.randint(low, end), start_offset=0):
                        found.leading.committed()
                except KafkaError:
                    self.seen["no replica"] += 1

    async def delete_records(self) -> None:
        found = self.random.choice(self.partitions)
        offset = self.random.randint(found.log.log_start_offset, max(found.high_watermark, found.log.log_start_offset))
        wanted = DeleteRecordsTopic(found.topic, [DeleteRecordsPartition(found.index, offset)])
        context = Context(Connection(), 2, "deleting")
        answer = await delete_records.handle(self.broker.parts, context, DeleteRecordsRequest([wanted], 0))  # type: ignore[arg-type]
        if answer is None:
            await context.answer

    async def elsewhere(self) -> None:
        found = self.random.choice(self.partitions)
        await self.lead(found.topic, found.index, is_led=False)

    async def again(self) -> None:
        away = [found for found in self.partitions if found.led_epoch < 0]
        if away:
            found = self.random.choice(away)
            await self.lead(found.topic, found.index, is_led=True)

    async def expire(self) -> None:
        """Retention."""
        starts = sum(found.log.log_start_offset for found in self.partitions)
        await Retention(self.broker.config, self.broker.partitions).run(1 << 40, wall_ms=1 << 41, slices=Slices(self.broker.world.clock))
        self.seen["retained less"] += sum(found.log.log_start_offset for found in self.partitions) > starts

    async def recreate(self) -> None:
        """A topic is deleted, and another one has its name."""
        name = self.random.choice([ALONE, SHARED])

        def delete(image: ClusterImage) -> Recorded:
            return Recorded((RemoveTopicRecord(image.topics[name].topic_id),))

        await self.broker.controller.decide([delete])
        if self.random.random() < 0.5:
            await self.both_fetch(wait_ms=0)
        await self.create(name)

    async def fail_log(self) -> None:
        self.random.choice(self.partitions).log.health.fail()

    async def quota(self) -> None:
        """Each client has a rate of its own, or none again."""
        throttling = self.broker.parts.throttling
        throttling._quotas = ClientQuotas(window_count=11, window_ms=1000)
        throttling.limits_fetch = self.random.random() < 0.5
        quotas: dict[QuotaEntity, dict[str, float]] = {}
        if throttling.limits_fetch:
            quotas[(("client-id", None),)] = {"consumer_byte_rate": float(self.random.choice([3, 30]))}
        throttling._quotas.set_quotas(quotas)

    async def hold(self) -> None:
        """A transaction begins, or ends: the last stable offset stops, or moves."""
        led = [found for found in self.partitions if found.led_epoch >= 0 and not found.log.is_failed]
        held = [found for found in led if found in self.held]
        if not led:
            return
        if held and self.random.random() < 0.7:
            found = self.random.choice(held)
            view = build_end_marker(
                is_commit=self.random.random() < 0.5,
                producer_id=self.held.pop(found),
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=1,
            )
            self.seen["ends"] += 1
        else:
            found = self.random.choice(led)
            if found in self.held:
                return
            builder = BatchBuilder()
            builder.append(None, b"held", timestamp_ms=1)
            self.producer_count += 1
            self.held[found] = self.producer_count
            view = builder.build(producer_id=self.held[found], producer_epoch=0, base_sequence=0, is_transactional=True)
        found.stage_own(memoryview(view), leader_epoch=found.led_epoch, now_ms=1)
        await found.flush()

    async def reconnect(self) -> None:
        """The consumers' connections are closed; their sessions are gone on with over others, or begun again."""
        for client in self.clients:
            client.connection.close()
            client.connection = Connection()
        if self.random.random() < 0.5:
            self._new_clients()

    # -- fetches

    def _name(self, key: tuple[str, int]) -> FetchPartition:
        """What a consumer may ask of the partition: mostly what comes next, now and then something that is wrong."""
        topic, index = key
        found = self.broker.partitions.find(topic, index)
        if found is None:
            return FetchPartition(index)
        random, end, epoch = self.random, found.log.log_end_offset, found.leader_epoch
        offset, known, last = end, NO, NO
        if random.random() < 0.3:
            start = found.log.log_start_offset
            offset = random.choice([start, start, start, max(start, end - 1), 0, end + 1])
        if random.random() < 0.3:
            known = epoch if random.random() < 0.9 else epoch - 1
        if random.random() < 0.3:
            last = epoch if random.random() < 0.9 else max(0, epoch - 1)
        partition_max_bytes = random.choice([60, 1 << 20])
        return FetchPartition(
            index, fetch_offset=offset, partition_max_bytes=partition_max_bytes, current_leader_epoch=known, last_fetched_epoch=last
        )

    def _request(self, wait_ms: int) -> FetchRequest:
        random = self.random
        keys = [(topic, index) for topic in (ALONE, SHARED) for index in range(PARTITIONS)]
        if self.epoch == 0:
            chosen, gone = keys if random.random() < 0.9 else [*keys, (ALONE, PARTITIONS)], set[tuple[str, int]]()
        else:
            served = [(found.topic, found.index) for found in self.partitions if found.led_epoch >= 0 and not found.log.is_failed]
            followed = {key for key in sorted(self.given) if random.random() < 0.9}  # a consumer goes on after what it was given
            back = [key for key in keys if key not in self.named and key in served]
            others = random.sample(keys, random.choice([0] * 10 + [1, len(keys)]))
            chosen = list(dict.fromkeys([*sorted(followed & set(served)), *others, *back]))
            gone = (followed - set(served)) | set(random.sample(sorted(self.named), min(len(self.named), random.choice([0, 0, 0, 2]))))
            chosen = [key for key in chosen if key not in gone]
        self.given.clear()
        topics, forgotten = [], []
        for topic in (ALONE, SHARED):
            known = self.broker.image.topics.get(topic)
            topic_id = known.topic_id if known is not None else bytes(16)
            named = [self._name(key) for key in chosen if key[0] == topic]
            self.named |= {(topic, each.partition) for each in named}
            if named:
                topics.append(FetchTopic(topic, topic_id, named))
            indexes = [index for name, index in sorted(gone) if name == topic]
            if indexes:
                forgotten.append(ForgottenTopic(topic, topic_id, indexes))
        self.named -= gone
        max_bytes = random.choice([100, 1 << 20, 1 << 20])
        isolation_level = random.choice([0, 1])
        return FetchRequest(
            max_wait_ms=wait_ms, min_bytes=random.choice([1, 1, 300]), max_bytes=max_bytes, isolation_level=isolation_level,
            session_epoch=self.epoch, topics=topics, forgotten_topics_data=forgotten,
        )  # fmt: skip

    async def both_fetch(self, wait_ms: int) -> None:
        request = self._request(wait_ms)
        self.epoch += 1
        answers, loop = [client.ask(request) for client in self.clients], asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000 - 2 * SAME_SECONDS  # not while one looks, and the other has looked
        await asyncio.sleep(0.1)  # reads of the disk
        for _ in range(20):
            if all(answer.done() for answer in answers):
                break
            self.seen["waited"] += 1
            if loop.time() < until:
                await self.happens_in_place()
            await asyncio.sleep(0.1)
        (one_at, one), (other_at, other) = [await asyncio.wait_for(answer, wait_ms + 60) for answer in answers]
        assert plain(one) == plain(other), f"of the fetch {request}"
        assert abs(one_at - other_at) < SAME_SECONDS, "they come at the same time"
        self.seen["answers"] += 1
        self.seen["answers with records"] += sum(len(data.records or b"") for topic in one.responses for data in topic.partitions) > 0
        self.seen["errors"] += any(data.error_code for topic in one.responses for data in topic.partitions)
        self.seen["diverging"] += any(data.diverging_epoch is not None for topic in one.responses for data in topic.partitions)
        self.seen["aborted"] += any(data.aborted_transactions for topic in one.responses for data in topic.partitions)
        self.seen["throttled"] += one.throttle_time_ms > 0
        if one.error_code or (one.session_id == 0) or (other.session_id == 0):
            self._new_clients()
            return
        for client, response in zip(self.clients, (one, other), strict=True):
            client.session_id = response.session_id
        names = self.broker.image.topic_names
        for topic in one.responses:
            for data in topic.partitions:
                if data.records or data.error_code or data.diverging_epoch is not None:
                    self.given.add((topic.topic or names.get(topic.topic_id, ""), data.partition_index))
        self.given &= self.named

    async def happens_in_place(self) -> None:
        """Something that leaves the consumers as they are."""
        what = self.random.choice(
            [self.append, self.append, self.commit, self.delete_records, self.elsewhere, self.again, self.expire, self.hold]
        )
        self.seen[f"{what.__name__} while they wait"] += 1
        await what()


NO = -1
SAME_SECONDS = 0.05
"""Reads of the simulated disk take some milliseconds each."""


async def play_history(sim: SimBroker, seed: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What has happened how often. AssertionError where the answers differ."""
    random = Random(seed)
    history = History(random, sim, version=random.choice([11, 12, 13, 17]))

    with watching_chosen(monkeypatch):
        await add_other(sim)
        await sim.machine.run(history.begin())
        for _ in range(steps):
            for _ in range(random.choice([0, 1, 2, 4])):
                await sim.machine.run(history.happens())
            await sim.machine.run(history.both_fetch(random.choice([0, 0, 500])))
    return history.seen
