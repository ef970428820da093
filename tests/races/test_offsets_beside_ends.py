"""A group's offsets beside the end of their transaction, a rebalance, a coordinator that loads, and what deletes them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractContextManager

import pytest
import structlog
from tests.broker.test_transactional_offsets import UNSTABLE, delete
from tests.broker.test_transactions import BOTH, begun, settled
from tests.broker.transactional import TransactionalProducer
from tests.client.simulated import KEY, consumer_of, create, with_broker
from tests.quiet import silence
from tests.races.gates import Gate, gate_after, gate_before
from tests.races.one_broker import nothing_is_open, parts_of, twin_of

from ottla.broker.coordinators.shard import Shard
from ottla.broker.handlers.offset_fetch import ASK_AGAIN
from ottla.errors import ErrorCode
from ottla.sim.cluster import SimBroker
from ottla.types import GROUP_METADATA_TOPIC

OUTCOMES = pytest.mark.parametrize("is_commit", [True, False])


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def appends_of_groups(broker: SimBroker) -> AbstractContextManager[Gate]:
    def is_append(operation: str, path: str, *_: object) -> bool:
        return operation == "append" and GROUP_METADATA_TOPIC in path

    return gate_before(broker.machine.disk, "step", is_append)


async def with_offset_3(broker: SimBroker, level: int) -> TransactionalProducer:
    """Committed by the producer's first transaction."""
    producer = await begun(broker, level)
    assert await producer.commit_offsets("g", {KEY: 3}) == 0
    assert await producer.end(is_commit=True) == 0
    await settled(producer)
    return producer


@BOTH
@OUTCOMES
def test_offsets_that_were_permitted_before_the_end_and_come_after_it_are_refused(is_commit: bool, level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await with_offset_3(broker, level)
        twin = twin_of(broker, producer)
        with gate_after(parts_of(broker).permits, "permit") as permitted:
            committing = asyncio.get_running_loop().create_task(producer.commit_offsets("g", {KEY: 5}))
            await permitted.reached()
            assert await twin.end(is_commit=is_commit) == 0
            await settled(twin)
            await permitted.open()
            assert await committing in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH)
        assert await twin.committed("g", KEY, require_stable=True) == (3, 0)

    with structlog.testing.capture_logs() as events:
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
        with_broker(body)
    tried = [event["log_level"] for event in events if event["event"] == "shard_command_failed"]
    assert tried == ["debug"], "the handler asks again by itself: nobody has to read of it"


@BOTH
@OUTCOMES
def test_offsets_that_are_being_written_when_the_end_comes_are_part_of_it(is_commit: bool, level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await with_offset_3(broker, level)
        twin = twin_of(broker, producer)
        await twin.coordinator_of_group("g")
        with appends_of_groups(broker) as appends:
            loop = asyncio.get_running_loop()
            committing = loop.create_task(producer.commit_offsets("g", {KEY: 5}))
            await appends.reached()
            assert await twin.end(is_commit=is_commit) == 0
            await asyncio.sleep(0.5)
            assert (await twin.describe()).transaction_state.startswith("Prepare")
            await appends.open()
            assert await committing == 0
        await settled(twin)
        assert await twin.committed("g", KEY, require_stable=True) == ((5, 0) if is_commit else (3, 0))
        assert nothing_is_open(broker, parts_of(broker).groups.partition_for("g"))

    with_broker(body)


@BOTH
@pytest.mark.parametrize("is_late", [True, False])
def test_offsets_of_a_member_beside_a_rebalance(is_late: bool, level: int) -> None:
    """Its generation is looked at before the transaction's coordinator is asked, and once more when the offsets are written."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        consumer = consumer_of(broker.client("member"), group_id="g", enable_auto_commit=False)
        consumer.subscribe(["t"])
        await consumer.poll(1000)
        place = consumer.group_metadata()
        offsets = producer.commit_offsets("g", {KEY: 5}, generation_id=place.generation_id, member_id=place.member_id)
        with gate_after(parts_of(broker).permits, "permit") as permitted:
            committing = asyncio.get_running_loop().create_task(offsets)
            await permitted.reached()
            if not is_late:
                await permitted.open()
                assert await committing == 0
            await consumer.close()
            if is_late:
                await permitted.open()
                assert await committing in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await producer.committed("g", KEY, require_stable=True) == ((-1, 0) if is_late else (5, 0))

    with_broker(body)


@BOTH
@OUTCOMES
def test_a_marker_that_comes_while_the_group_is_loaded_counts_when_it_is(is_commit: bool, level: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, level)
        assert await producer.commit_offsets("g", {KEY: 5}) == 0
        with gate_before(parts_of(broker).end_markers, "write") as writing:
            assert await producer.end(is_commit=is_commit) == 0
            await writing.reached()
            broker.kill(power_cut=False)
        with gate_before(Shard, "_read_log", lambda shard, _: shard.partition.topic == GROUP_METADATA_TOPIC) as loading:
            await broker.start()
            await loading.reached()
            again = twin_of(broker, producer)
            await asyncio.sleep(3)
            assert (await again.describe()).transaction_state.startswith("Prepare")
            await loading.open()
            await settled(again)
        assert await again.committed("g", KEY, require_stable=True) == ((5, 0) if is_commit else (-1, 0))

    with_broker(body)


@OUTCOMES
def test_stable_offsets_before_the_marker_and_while_it_is_written(is_commit: bool) -> None:
    """Before it there is no stable one; while it is written the answer waits for it: a reader must not have what may be lost."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        assert await producer.commit_offsets("g", {KEY: 5}) == 0
        reader = twin_of(broker, producer)
        assert await reader.committed("g", KEY, require_stable=True) == (ASK_AGAIN, UNSTABLE)
        with appends_of_groups(broker) as appends:
            assert await producer.end(is_commit=is_commit) == 0
            await appends.reached()
            asking = asyncio.get_running_loop().create_task(reader.committed("g", KEY, require_stable=True))
            await asyncio.sleep(0.5)
            assert not asking.done()
            await appends.open()
            assert await asking == ((5, 0) if is_commit else (-1, 0))

    with_broker(body)


@pytest.mark.parametrize("how", ["group", "offset", "topic"])
def test_what_is_committed_before_it_is_deleted_is_deleted(how: str) -> None:
    """The other order, in which nothing is committed, is in tests/broker/test_transactional_offsets.py."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        producer = await begun(broker, 2)
        assert await producer.commit_offsets("g", {KEY: 5}) == 0
        assert await producer.end(is_commit=True) == 0
        await settled(producer)
        assert await producer.committed("g", KEY, require_stable=True) == (5, 0)
        await delete(broker, producer, how)
        assert await producer.committed("g", KEY, require_stable=True) == (-1, 0)

    with_broker(body)
