"""Offsets in a transaction that is still open: consumers wait for its end, administration shows what was committed before it."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, take, with_broker

from ottla.client.admin import Admin
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Interference
from ottla.types import TopicPartition

OTHER = TopicPartition("t", 1)


class OpenTransaction:
    """Of the broker's answers about stable offsets, those of partition 0 are as Kafka's while a transaction has offsets of it."""

    def __init__(self, network: Interference) -> None:
        self.network = network
        self.is_open = True
        network.alter = self._alter

    def _alter(self, request: object, response: object) -> OffsetFetchResponse | None:
        if not isinstance(request, OffsetFetchRequest) or not isinstance(response, OffsetFetchResponse):
            return None
        for topic in response.topics:
            for answer in topic.partitions:
                if request.require_stable and self.is_open and answer.partition_index == 0:
                    answer.error_code, answer.committed_offset = ErrorCode.UNSTABLE_OFFSET_COMMIT, -1
        return response

    @property
    def asked_count(self) -> int:
        return len(self.network.of(OffsetFetchRequest))


async def commit(broker: SimBroker, offsets: dict[TopicPartition, int]) -> None:
    admin = Admin(broker.client("committing"))
    await admin.set_offsets("g", offsets)
    await admin.close()


def test_a_consumer_waits_for_the_end_of_the_transaction_and_reads_its_other_partitions() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await fill(broker, 5)
        await fill(broker, 3, partition=1)
        await commit(broker, {KEY: 2, OTHER: 1})
        cluster = broker.client("c")
        transaction = OpenTransaction(Interference(cluster))
        consumer = consumer_of(cluster, group_id="g", enable_auto_commit=False)
        consumer.assign([KEY, OTHER])
        assert [record.value for record in await take(consumer, 2)] == [b"1", b"2"], "of the other partition"
        for _ in range(60):  # for longer than a request may take
            assert await consumer.poll(1000) == []
        assert 30 < transaction.asked_count < 120, "about once a second"
        await commit(broker, {KEY: 4})  # as the transaction does
        transaction.is_open = False
        assert [record.value for record in await take(consumer, 1)] == [b"4"]
        await consumer.close()

    with_broker(body)


def test_a_poll_returns_in_its_time_though_the_transaction_is_open() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await commit(broker, {KEY: 0})
        cluster = broker.client("c")
        OpenTransaction(Interference(cluster))
        consumer = consumer_of(cluster, group_id="g")
        consumer.assign([KEY])
        clock = cluster.world.clock
        began_ms = clock.monotonic_ms()
        assert await consumer.poll(500) == []
        assert clock.monotonic_ms() - began_ms < 1000
        consumer.seek(KEY, 0)
        await fill(broker, 1)
        assert [record.value for record in await take(consumer, 1)] == [b"0"], "the application knows better"
        await consumer.close()

    with_broker(body)


def test_reading_committed_offsets_waits_for_a_pending_one_until_the_limit_of_the_call() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await commit(broker, {KEY: 3})
        cluster = broker.client("c")
        transaction = OpenTransaction(Interference(cluster))
        consumer = consumer_of(cluster, group_id="g")
        with pytest.raises(KafkaError) as caught:
            await consumer.committed([KEY])
        assert caught.value.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert "t-0" in str(caught.value)
        asking = asyncio.ensure_future(consumer.committed([KEY]))
        await asyncio.sleep(5)
        assert not asking.done()
        transaction.is_open = False
        assert await asking == {KEY: 3}
        await consumer.close()

    with_broker(body)


def test_administration_shows_what_is_committed_and_where_a_transaction_has_more() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        await commit(broker, {KEY: 3, OTHER: 1})
        cluster = broker.client("a")
        transaction = OpenTransaction(Interference(cluster))
        admin = Admin(cluster)
        assert {key: found.offset for key, found in (await admin.committed_offsets("g")).items()} == {KEY: 3, OTHER: 1}
        assert await admin.pending_offsets("g") == {KEY}
        assert await admin.pending_offsets("g", [OTHER]) == set()
        with pytest.raises(KafkaError, match="has not ended") as caught:
            await admin.committed_offsets("g", require_stable=True)
        assert caught.value.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert set(await admin.committed_offsets("g", [OTHER], require_stable=True)) == {OTHER}
        transaction.is_open = False
        assert await admin.pending_offsets("g") == set()
        assert set(await admin.committed_offsets("g", require_stable=True)) == {KEY, OTHER}
        await admin.close()

    with_broker(body)
