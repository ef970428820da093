"""The last stable offset as consumers are told of it, where the log's start has passed the beginning of an open transaction."""

from __future__ import annotations

import pytest
from tests.client.simulated import KEY, consumer_of, create, take, with_broker

from ottla.broker.replicas.partition import Partition
from ottla.client.admin import Admin
from ottla.records.builder import BatchBuilder
from ottla.records.control import build_end_marker
from ottla.sim.cluster import SimBroker

PRODUCER = 7


def records(*values: bytes) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=1)
    return builder.build(producer_id=PRODUCER, producer_epoch=0, base_sequence=0, is_transactional=True)


def marker(*, is_commit: bool) -> bytearray:
    return build_end_marker(is_commit=is_commit, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1)


async def put(broker: SimBroker, view: bytearray) -> Partition:
    assert broker.broker is not None
    partition = broker.broker.partitions.by_name["t"][0]

    async def write() -> None:
        partition.stage_own(memoryview(view), leader_epoch=partition.led_epoch, now_ms=1)
        await partition.flush()

    await broker.machine.run(write())
    return partition


async def delete(broker: SimBroker, how: str) -> None:
    """The five records that the log has."""
    if how == "DeleteRecords":
        assert await Admin(broker.client("admin")).delete_records({KEY: 5}) == {KEY: 5}
        return
    partition = await put(broker, records(b"sixth"))
    opened = partition.log
    opened.tail.close_segment_soon()

    async def retain() -> None:
        await opened.flush()
        async with partition.changing:
            await opened.delete_segments_below(opened.segments[-1].base_offset)

    await broker.machine.run(retain())


@pytest.mark.parametrize("how", ["DeleteRecords", "retention"])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_consumer_begins_at_the_logs_start_when_that_is_within_an_open_transaction(how: str, is_commit: bool) -> None:
    """Not before it: its fetches were out of range, it began again where the stable offset was, and so for ever."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        partition = await put(broker, records(b"a", b"b", b"c", b"d", b"e"))
        await delete(broker, how)
        start = partition.log.log_start_offset
        assert start == (5 if how == "DeleteRecords" else 6)
        consumer = consumer_of(broker.client("c"), isolation_level="read_committed", auto_offset_reset="latest")
        consumer.assign([KEY])
        assert (await consumer.end_offsets([KEY])) == {KEY: start}
        assert await consumer.poll(1000) == []
        assert await consumer.position(KEY) == start
        await put(broker, records(b"last"))
        assert await consumer.poll(5000) == [], "the transaction is open"
        await put(broker, marker(is_commit=is_commit))
        if is_commit:
            assert [record.value for record in await take(consumer, 1)] == [b"last"]
        else:
            assert await consumer.poll(5000) == []
        assert await consumer.position(KEY) == start + 2
        await consumer.close()

    with_broker(body)
