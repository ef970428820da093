"""Incremental fetches of consumers look at what has changed alone, and answer as if they had looked at everything."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.broker.test_log_care import create, play, send
from tests.broker.test_throttling import set_quota
from tests.broker.two_sessions import Client, play_history
from tests.quiet import silence

from ottla.broker.replicas.partition import Partition
from ottla.client.admin import Admin
from ottla.errors import ErrorCode
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from ottla.replication.fetch_sessions import WATCHED_PARTITIONS_MIN
from ottla.sim.cluster import SimBroker
from ottla.storage.log.partition_log import PartitionLog

MANY = 20
FOR_EVER_MS = 600_000
BY_NAME = 12
"""The last version in which a session has topics by name."""

GROUPS = 3
SEEDS_A_GROUP = 10
FIRST_SEED = 200
"""In about one history of 400 a partition's high watermark moves between the looks of the two sessions, and their answers differ."""
STEPS = 40
RARE = [
    "answers with records", "errors", "diverging", "aborted", "throttled", "waited", "retained less", "recreate", "fail_log", "reconnect",
    "append while they wait", "commit while they wait", "hold while they wait", "elsewhere while they wait",
    "delete_records while they wait",
]  # fmt: skip
PROPERTIES = {"log_retention_bytes": "1000", "log_retention_check_interval_ms": "3600000", "log_retention_ms": "-1"}


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


@pytest.mark.parametrize("group", range(GROUPS))
def test_a_watched_session_answers_as_one_that_looks_at_everything(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    for seed in range(FIRST_SEED + group * SEEDS_A_GROUP, FIRST_SEED + (group + 1) * SEEDS_A_GROUP):

        async def act(broker: SimBroker, seed: int = seed) -> None:
            try:
                seen.update(await play_history(broker, seed, STEPS, monkeypatch))
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error

        play(act, auto_create_topics_enable="false", **PROPERTIES)
    assert [what for what in RARE if not seen[what]] == [], f"something never happened: {seen}"


class Watched:
    """A consumer with a session of the partitions of ``t``, which was answered in full, and again with nothing."""

    def __init__(self, broker: SimBroker, client: Client) -> None:
        self._broker = broker
        self._client = client
        self._epoch = 0

    @classmethod
    async def begin(cls, broker: SimBroker, count: int = MANY, version: int = 17) -> Watched:
        assert broker.broker is not None
        await create(broker, "t", count)
        consumer = cls(broker, Client("watched", broker.broker, version, is_watched=True))
        await consumer.fetch(*[FetchPartition(index, partition_max_bytes=1 << 20) for index in range(count)])
        assert await consumer.fetch() == {}
        return consumer

    def ask(
        self, *named: FetchPartition, wait_ms: int = 0, min_bytes: int = 1, isolation_level: int = 0, forgotten: Sequence[int] = ()
    ) -> Any:
        """The future of an answer."""
        assert self._broker.broker is not None
        topic_id = self._broker.broker.image.topics["t"].topic_id
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, isolation_level=isolation_level, session_epoch=self._epoch)
        request.topics = [FetchTopic("t", topic_id, list(named))] if named else []
        request.forgotten_topics_data = [ForgottenTopic("t", topic_id, list(forgotten))] if forgotten else []
        self._epoch += 1

        async def asked() -> Any:
            return self._client.ask(request)

        return self._broker.machine.run(asked())

    async def given(self, asked: Any) -> dict[int, PartitionData]:
        """What the answer has of each partition."""
        _, response = await asked
        assert response.error_code == 0
        self._client.session_id = response.session_id
        return {data.partition_index: data for topic in response.responses for data in topic.partitions}

    async def fetch(self, *named: FetchPartition, wait_ms: int = 0) -> dict[int, PartitionData]:
        return await self.given(await self.ask(*named, wait_ms=wait_ms))

    @property
    def parked(self) -> dict[Any, None]:
        return self._client.connection.parked

    def close(self) -> None:
        self._client.connection.close()


def looks(broker: SimBroker) -> int:
    """How many partitions of the topic fetches have looked at."""
    assert broker.broker is not None
    return broker.broker.partitions.meters["t"].fetch_requests


def waiters(broker: SimBroker) -> int:
    """How many wait for all partitions together."""
    assert broker.broker is not None
    return sum(len(found.waiters) for found in broker.broker.partitions.by_name["t"].values())


def test_an_idle_fetch_looks_at_no_partition_and_a_record_costs_two_looks() -> None:
    async def act(broker: SimBroker) -> None:
        consumer = await Watched.begin(broker)
        before = looks(broker)
        for _ in range(10):
            assert await consumer.fetch(wait_ms=500) == {}
        assert looks(broker) == before
        waiting = await consumer.ask(wait_ms=60_000)
        await send(broker, "t", [(None, b"x")], partition=7)
        assert list(await consumer.given(waiting)) == [7]
        assert list(await consumer.fetch()) == [7], "it was not read to its end: the consumer did not go on"
        assert await consumer.fetch(FetchPartition(7, fetch_offset=1, partition_max_bytes=1 << 20)) == {}
        assert await consumer.fetch() == {}
        assert looks(broker) == before + 3

    play(act)


class SlowLog:
    """A log whose reads wait for the disk."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self.is_reading = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def read(self, *values: Any, **named: Any) -> Any:
        self.is_reading.set()
        await asyncio.sleep(5)
        return await self._log.read(*values, **named)


def partition_of(broker: SimBroker, index: int) -> Partition:
    assert broker.broker is not None
    return broker.broker.partitions.by_name["t"][index]


async def slowed(broker: SimBroker, index: int, monkeypatch: pytest.MonkeyPatch) -> SlowLog:
    """The partition has a record, and is read slowly."""
    await send(broker, "t", [(None, b"x")], partition=index)
    found = partition_of(broker, index)
    slow = SlowLog(found.log)
    monkeypatch.setattr(found, "log", slow)
    return slow


def test_a_partition_that_fails_during_a_read_is_reported_by_the_next_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition 3 is looked at, and there is nothing; a read of partition 5 waits for the disk; then the log of partition 3 fails."""

    async def act(broker: SimBroker) -> None:
        consumer = await Watched.begin(broker)
        slow = await slowed(broker, 5, monkeypatch)
        partition_of(broker, 3).wake(0)  # it is due
        waiting = await consumer.ask()
        await slow.is_reading.wait()
        partition_of(broker, 3).log.health.fail()
        assert list(await consumer.given(waiting)) == [5]
        assert (await consumer.fetch())[3].error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    play(act)


def test_a_log_that_fails_while_its_partition_is_at_rest_is_told_to_the_session_at_once() -> None:
    """Not only once the broker has left the lead: a session that was not told passes the partition over."""

    class Waiter:
        def __init__(self) -> None:
            self.told: list[int] = []

        def on_append(self, size_bytes: int) -> None:
            self.told.append(size_bytes)

    async def act(broker: SimBroker) -> None:
        await Watched.begin(broker)
        waiter, partition = Waiter(), partition_of(broker, 3)
        partition.waiters[waiter] = None
        partition.log.health.fail()
        assert waiter.told == [0]
        del partition.waiters[waiter]

    play(act)


def test_records_that_arrive_at_a_partition_at_rest_during_a_read_end_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(broker: SimBroker) -> None:
        consumer = await Watched.begin(broker)
        slow = await slowed(broker, 5, monkeypatch)
        waiting = await consumer.ask(wait_ms=FOR_EVER_MS, min_bytes=300)
        await slow.is_reading.wait()
        await send(broker, "t", [(None, b"y" * 400)], partition=3)
        began = asyncio.get_running_loop().time()
        assert list(await consumer.given(waiting)) == [3, 5]
        assert asyncio.get_running_loop().time() - began < FOR_EVER_MS / 2000

    play(act)


def test_a_request_that_changes_the_session_of_one_that_waits_does_not_lose_records() -> None:
    """The first fetch waits; the second names a partition from its beginning; the first one ends, and gives those records, too."""

    async def act(broker: SimBroker) -> None:
        consumer = await Watched.begin(broker)
        await send(broker, "t", [(None, b"x")], partition=7)
        end = FetchPartition(7, fetch_offset=1, partition_max_bytes=1 << 20)
        waiting = await consumer.ask(end, wait_ms=5_000)
        assert list(await consumer.fetch(FetchPartition(7, partition_max_bytes=1 << 20))) == [7]
        assert list(await consumer.given(waiting)) == [7]
        assert list(await consumer.fetch()) == [7], "nothing has moved the consumer on"

    play(act)


def test_a_partition_that_leaves_the_session_while_others_are_read_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first answer is not there yet, and a second request, which knows the session all the same, forgets a partition."""

    async def act(broker: SimBroker) -> None:
        await create(broker, "t", MANY)
        slow = await slowed(broker, 5, monkeypatch)
        assert broker.broker is not None
        consumer = Watched(broker, Client("watched", broker.broker, 17, is_watched=True))
        waiting = await consumer.ask(*[FetchPartition(index, partition_max_bytes=1 << 20) for index in range(MANY)])
        await slow.is_reading.wait()
        [consumer._client.session_id] = broker.broker.parts.fetch_sessions._sessions
        leaving = await consumer.ask(forgotten=[9])
        assert len(await consumer.given(waiting)) == MANY
        await consumer.given(leaving)
        assert len(partition_of(broker, 9).waiters) == 0
        await send(broker, "t", [(None, b"x")], partition=9)
        assert 9 not in await consumer.fetch()

    play(act)


def test_a_topic_that_is_made_again_between_two_fetches_by_name_is_watched() -> None:
    async def act(broker: SimBroker) -> None:
        consumer = await Watched.begin(broker, version=BY_NAME)
        admin = Admin(broker.client("admin"))
        await admin.delete_topics(["t"])
        await admin.close()
        await create(broker, "t", MANY)
        await consumer.fetch()
        await send(broker, "t", [(None, b"x")], partition=3)
        assert list(await consumer.fetch()) == [3]

    play(act)


def test_partitions_left_out_of_a_throttled_answer_are_in_a_later_one() -> None:
    async def act(broker: SimBroker) -> None:
        consumer = await Watched.begin(broker)
        await send(broker, "t", [(None, b"x")], partition=3)
        await send(broker, "t", [(None, b"x" * 400)], partition=5)
        assert list(await consumer.fetch(FetchPartition(3, fetch_offset=1))) == [3, 5]
        await set_quota(broker.client("admin"), {"client-id": "watched"}, consumer_byte_rate=20)
        assert list(await consumer.fetch()) == [5]
        third = partition_of(broker, 3)
        third.log.advance_log_start_offset(1)
        third.start_moved()
        assert await consumer.fetch() == {}, "the rate is exceeded"
        await asyncio.sleep(60)
        given = await consumer.fetch()
        assert given[3].log_start_offset == 1

    play(act)


def test_a_session_of_few_partitions_is_not_watched() -> None:
    async def act(broker: SimBroker) -> None:
        consumer = await Watched.begin(broker, count=WATCHED_PARTITIONS_MIN - 1)
        assert waiters(broker) == 0
        before = looks(broker)
        assert await consumer.fetch() == {}
        assert looks(broker) == before + WATCHED_PARTITIONS_MIN - 1

    play(act)


def test_a_watch_ends_with_its_connection() -> None:
    async def act(broker: SimBroker) -> None:
        consumer = await Watched.begin(broker)
        assert waiters(broker) == MANY
        assert not consumer.parked, "it is no request that waits"
        consumer.close()
        assert waiters(broker) == 0

    play(act)


def test_a_fetch_that_waits_is_answered_when_its_session_ends() -> None:
    async def act(broker: SimBroker) -> None:
        consumer = await Watched.begin(broker)
        waiting = await consumer.ask(wait_ms=FOR_EVER_MS)
        assert broker.broker is not None
        other = Client("another", broker.broker, 17, is_watched=True)
        other.session_id = consumer._client.session_id

        async def end() -> Any:
            return other.ask(FetchRequest(session_epoch=-1))

        await (await broker.machine.run(end()))
        began = asyncio.get_running_loop().time()
        _, response = await waiting
        assert response.responses == []
        assert asyncio.get_running_loop().time() - began < 5
        assert waiters(broker) == 0

    play(act)
