"""Offsets of groups that are part of a transaction, on one broker, at both levels."""

from __future__ import annotations

import pytest
from tests.broker.test_transactions import BOTH, begun, settled
from tests.broker.transactional import TransactionalProducer
from tests.client.simulated import KEY, create, with_broker
from tests.quiet import silence

from ottla.broker.handlers.offset_fetch import ASK_AGAIN
from ottla.client.admin import Admin
from ottla.errors import ErrorCode
from ottla.sim.cluster import SimBroker
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


@BOTH
@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_count_when_their_transaction_is_committed(level: int, is_commit: bool) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        assert await producer.write(KEY, b"a") == 0
        assert await producer.commit_offsets("g", {KEY: 5}) == 0
        assert await producer.committed("g", KEY) == (-1, 0)
        assert await producer.committed("g", KEY, require_stable=True) == (ASK_AGAIN, UNSTABLE)
        assert await producer.end(is_commit=is_commit) == 0
        await settled(producer)
        assert await producer.committed("g", KEY, require_stable=True) == ((5, 0) if is_commit else (-1, 0))

    with_broker(body)


@BOTH
@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("when", ["open", "ended"])
def test_a_loaded_coordinator_knows_pending_and_aborted_offsets(level: int, is_commit: bool, when: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        assert await producer.commit_offsets("g", {KEY: 3}) == 0
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await producer.commit_offsets("g", {KEY: 5}) == 0
        if when == "ended":
            assert await producer.end(is_commit=is_commit) == 0
            await settled(producer)
        await broker.stop()
        await broker.start()
        if when == "open":
            assert await producer.committed("g", KEY) == (3, 0)
            assert await producer.committed("g", KEY, require_stable=True) == (ASK_AGAIN, UNSTABLE)
            assert await producer.end(is_commit=is_commit) == 0
            await settled(producer)
        assert await producer.committed("g", KEY, require_stable=True) == ((5, 0) if is_commit else (3, 0))

    with_broker(body)


@BOTH
def test_several_commits_of_one_transaction_are_each_written(level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        producer = await begun(broker, level)
        for offset in (5, 6, 7):
            for key in (KEY, TopicPartition("t", 1)):
                assert await producer.commit_offsets("g", {key: offset}) == 0
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        for key in (KEY, TopicPartition("t", 1)):
            assert await producer.committed("g", key, require_stable=True) == (7, 0)

    with_broker(body)


@BOTH
def test_the_transaction_is_looked_at_before_the_generation(level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        producer.producer_id += 1
        assert await producer.commit_offsets("g", {KEY: 5}, generation_id=3, adds=False) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        producer.producer_id -= 1
        assert await producer.commit_offsets("g", {KEY: 5}, generation_id=3) == ErrorCode.ILLEGAL_GENERATION
        assert (await producer.describe()).transaction_state == "Ongoing", "as in Kafka, the group is in it"

    with_broker(body)


@BOTH
def test_a_zombie_commits_no_offsets(level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        zombie = await begun(broker, level)
        assert await zombie.commit_offsets("g", {KEY: 5}) == 0
        successor = await begun(broker, level, "q")
        code = await zombie.commit_offsets("g", {KEY: 6})
        assert code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        assert await successor.committed("g", KEY, require_stable=True) == (-1, 0)

    with_broker(body)


def test_offsets_without_their_group_in_the_transaction_are_refused_at_level_1() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 1)
        await producer.coordinator_of_group("h")
        assert await producer.commit_offsets("h", {KEY: 5}) == 0
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await producer.commit_offsets("h", {KEY: 6}, adds=False) == ErrorCode.TRANSACTION_ABORTABLE
        assert await producer.committed("h", KEY, require_stable=True) == (5, 0)

    with_broker(body)


async def delete(broker: SimBroker, producer: TransactionalProducer, how: str) -> None:
    """The group, its offset, or the topic, which is made again."""
    admin = Admin(broker.client("admin"))
    if how == "group":
        assert await admin.delete_groups(["g"]) == {"g": None}
    elif how == "offset":
        assert await admin.delete_offsets("g", [KEY]) == {KEY: None}
    else:
        assert await admin.delete_topics(["t"]) == {"t": None}
        await create(broker)
        producer.cluster.forget(["t"])
        await producer.cluster.refresh(["t"])


@pytest.mark.parametrize("how", ["group", "offset", "topic"])
def test_what_is_deleted_is_not_committed_afterwards(how: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        assert await producer.commit_offsets("g", {KEY: 5}) == 0
        await delete(broker, producer, how)
        assert await producer.committed("g", KEY, require_stable=True) == (-1, 0)
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await producer.committed("g", KEY, require_stable=True) == (-1, 0)

    with_broker(body)


def test_a_marker_for_a_coordinator_that_is_not_here_is_asked_for_again() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        assert await producer.commit_offsets("g", {KEY: 5}) == 0
        elsewhere = TopicPartition(GROUP_METADATA_TOPIC, 9)
        assert await producer.mark(elsewhere, is_commit=True, epoch=0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_broker(body)
