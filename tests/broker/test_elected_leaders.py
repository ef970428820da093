"""A leader that was elected does not say what is committed before it knows that again (KIP-207), and says so when too few have it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.broker.leaders import OTHER, add_other, own_id
from tests.broker.test_leadership import ask, fetch, fetched, produce
from tests.broker.test_leading import Given
from tests.broker.test_log_care import attempt, create, play

from ottla.broker.replicas.leading import Leading
from ottla.controller.decided import Recorded
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import PartitionImage
from ottla.sim.cluster import SimBroker

EARLIEST, LATEST, MAX_TIMESTAMP, BY_TIME = -2, -1, -3, 1


async def led_by(broker: SimBroker, leader: int, topic: str = "t") -> None:
    """The partition has two replicas, in sync; the other one is in the image alone, and fetches nothing."""
    assert broker.broker is not None
    replicas, topic_id = [own_id(broker), OTHER], broker.broker.image.topics[topic].topic_id
    record = PartitionChangeRecord(0, topic_id, isr=replicas, leader=leader, replicas=replicas)
    await broker.broker.controller.decide([lambda image: Recorded((record,))])


def test_an_elected_leader_answers_with_the_log_end_once_it_knows_what_is_committed() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        await led_by(broker, own_id(broker))
        await produce(broker)  # acknowledged by this replica alone, and not committed
        await led_by(broker, OTHER)
        await led_by(broker, own_id(broker))
        for timestamp, expected in (
            (EARLIEST, ErrorCode.NONE), (LATEST, ErrorCode.OFFSET_NOT_AVAILABLE), (BY_TIME, ErrorCode.OFFSET_NOT_AVAILABLE)
        ):  # fmt: skip
            wanted = ListOffsetsTopic("t", [ListOffsetsPartition(0, current_leader_epoch=-1, timestamp=timestamp)])
            answer = await ask(broker, ListOffsetsRequest(-1, topics=[wanted]), ListOffsetsResponse)
            assert answer.topics[0].partitions[0].error_code == expected, timestamp
        for offset in (0, 1):  # a consumer may have read what an earlier leader knew to be committed
            found = fetched(await fetch(broker, offset=offset))
            assert (found.error_code, found.high_watermark, len(found.records or b"")) == (ErrorCode.NONE, 0, 0), "never out of range"

    play(body)


def test_what_was_committed_before_a_restart_is_readable_after_it_though_no_follower_has_fetched() -> None:
    """The leader knows it from its checkpoint; what was not committed is not readable."""

    async def body(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        await produce(broker)
        await led_by(broker, own_id(broker))
        await produce(broker)
        for _ in range(2):
            found = fetched(await fetch(broker))
            assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 1)
            assert found.records
            await broker.stop()
            await broker.start()

    play(body)


def test_a_record_that_is_not_committed_is_no_answer_to_a_question_of_time() -> None:
    """It is at the high watermark itself: the first that nobody may read."""

    async def body(broker: SimBroker) -> None:
        await create(broker, "t", retention_ms="-1")
        await add_other(broker)
        await produce(broker)  # of time 1
        await led_by(broker, own_id(broker))
        assert await attempt(broker, 0) == ErrorCode.NONE
        assert broker.broker is not None
        partition = broker.broker.partitions.by_name["t"][0]
        newest = await partition.log.offset_of_max_timestamp()
        assert newest is not None
        assert (partition.high_watermark, newest.offset, partition.log.log_end_offset) == (1, 1, 2)
        for timestamp, offset in ((MAX_TIMESTAMP, -1), (newest.timestamp_ms, -1), (2, -1), (BY_TIME, 0)):
            wanted = ListOffsetsTopic("t", [ListOffsetsPartition(0, current_leader_epoch=-1, timestamp=timestamp)])
            answer = await ask(broker, ListOffsetsRequest(-1, topics=[wanted]), ListOffsetsResponse)
            [found] = answer.topics[0].partitions
            assert (found.error_code, found.offset) == (ErrorCode.NONE, offset), timestamp

    play(body)


def test_records_that_too_few_replicas_have_kept_are_not_acknowledged() -> None:
    """Those in sync had them, and one has left the ISR before anybody was told."""
    partition = Given(5, 5)
    partition.log.config.min_insync_replicas = 3
    replication: Any = SimpleNamespace(
        node_id=1, clock=SimpleNamespace(monotonic_ms=lambda: 0), lag_ms_max=30_000, may_join=lambda node, epoch: True,
        high_watermark_size=0,
    )  # fmt: skip
    told: list[KafkaError | None] = []
    waiter: Any = SimpleNamespace(on_commit=lambda what, error: told.append(error))
    leading = Leading(partition, PartitionImage((1, 2, 3), (1, 2, 3), 1, 3, 5), replication, epoch_start_offset=5)
    partition.log.log_end_offset = 6
    leading.grew(100)
    leading.wait_for_commit(6, waiter, "the sixth")
    leading.on_follower_fetch(2, broker_epoch=-1, offset=6, start_offset=0)
    assert leading.on_follower_fetch(3, broker_epoch=-1, offset=6, start_offset=0)
    leading.on_image(PartitionImage((1, 2, 3), (1, 2), 1, 3, 6))
    leading.committed()
    [error] = told
    assert error is not None
    assert error.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert partition.committed.offset == 6, "they are committed all the same"
