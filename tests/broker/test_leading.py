"""A partition of several replicas that has just been given to this broker."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.replicas.leading import Leading
from ottla.broker.replicas.unread import Unread
from ottla.broker.replicas.waiting import AT_ONCE
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import LOST_DIRECTORY, PartitionImage
from ottla.replication.high_watermark import HighWatermark


class Given:
    """Broker 1 leads it; what is below ``high_watermark`` was known to be committed when it was elected."""

    topic, topic_id, index = "t", bytes(16), 0

    def __init__(self, end_offset: int, high_watermark: int) -> None:
        self.log: Any = SimpleNamespace(
            log_end_offset=end_offset, log_start_offset=0, config=SimpleNamespace(min_insync_replicas=1),
            durability=SimpleNamespace(owes_sync=False),
        )  # fmt: skip
        self.committed = HighWatermark(high_watermark)
        self.unread = Unread()
        self.woken: list[int] = []

    def wake(self, size_bytes: int) -> None:
        self.woken.append(size_bytes)

    def tell_followers(self, size_bytes: int = 0) -> None: ...


def replication_of(monotonic_ms: Callable[[], int] = lambda: 0, may_join: Callable[[], bool] = lambda: True) -> Any:
    """Of node 1."""
    clock = SimpleNamespace(monotonic_ms=monotonic_ms)
    return SimpleNamespace(
        node_id=1, clock=clock, lag_ms_max=30_000, deleting={}, may_join=lambda node, epoch: may_join(), high_watermark_size=0
    )


@pytest.mark.parametrize(("high_watermark", "woken"), [(3, [AT_ONCE]), (5, [])])
def test_consumers_that_wait_are_woken_when_records_of_an_earlier_epoch_are_committed(high_watermark: int, woken: list[int]) -> None:
    """Otherwise they wait for their ``fetch.max.wait.ms`` after each failover."""
    partition = Given(5, high_watermark)
    replication = replication_of()
    leading = Leading(partition, PartitionImage((1, 2), (1, 2), 1, 3, 5), replication, epoch_start_offset=5)
    if leading.on_follower_fetch(2, broker_epoch=-1, offset=5, start_offset=0):
        leading.committed()
    assert partition.committed.offset == 5
    assert partition.woken == woken
    leading.grew(100)
    partition.log.log_end_offset = 6
    assert leading.on_follower_fetch(2, broker_epoch=-1, offset=6, start_offset=0)
    leading.committed()
    assert partition.woken == [*woken, 100]


def test_a_follower_that_was_about_to_join_and_falls_silent_holds_nothing_back_for_ever() -> None:
    """Nobody else writes or comes to have more: what waits for the last record would wait until somebody does."""
    now_ms, may_join = 0, False
    partition = Given(5, 5)
    replication = replication_of(monotonic_ms=lambda: now_ms, may_join=lambda: may_join)
    leading = Leading(partition, PartitionImage((1, 2, 3), (1, 2), 1, 3, 5), replication, epoch_start_offset=5)
    leading.on_follower_fetch(3, broker_epoch=-1, offset=5, start_offset=0)
    partition.log.log_end_offset, may_join = 6, True
    leading.grew(100)
    assert not leading.on_follower_fetch(2, broker_epoch=-1, offset=6, start_offset=0), "the third one is waited for"
    now_ms = 31_000
    leading.on_follower_fetch(2, broker_epoch=-1, offset=6, start_offset=0)
    leading.look_for_laggards()
    assert partition.committed.offset == 6


def test_writes_do_not_wait_for_a_follower_that_the_controller_keeps_out_of_the_isr() -> None:
    """Its disk is full. All others had everything, and rested: writes stood for half of replica.lag.time.max.ms."""
    partition = Given(5, 5)
    replication = replication_of()
    asked: list[Leading] = []
    replication.on_isr_change = asked.append
    leading = Leading(partition, PartitionImage((1, 2, 3), (1, 2), 1, 3, 5), replication, epoch_start_offset=5)
    leading.on_follower_fetch(3, broker_epoch=-1, offset=5, start_offset=0)
    assert asked == [leading]
    change = leading.machine.take_change()
    assert change is not None
    partition.log.log_end_offset = 6
    leading.grew(100)
    leading.on_follower_fetch(2, broker_epoch=-1, offset=6, start_offset=0)
    assert partition.committed.offset == 5, "the third one is waited for"
    assert not leading.on_isr_refused(change, ErrorCode.INELIGIBLE_REPLICA)
    assert partition.committed.offset == 6


def test_a_fetch_that_was_on_its_way_when_its_replica_was_given_up_holds_nothing_back() -> None:
    """Its disk is full. What it had asked for before seemed to say that it had caught up a moment ago, and was about to join."""
    partition = Given(5, 5)
    image = PartitionImage((1, 2, 3), (1, 2, 3), 1, 3, 5)
    replication, asked = replication_of(), list[Leading]()
    replication.on_isr_change = asked.append
    leading = Leading(partition, image, replication, epoch_start_offset=5)
    for node in (2, 3):
        leading.on_follower_fetch(node, broker_epoch=-1, offset=5, start_offset=0)
    partition.log.log_end_offset = 6
    leading.grew(100)
    leading.on_image(PartitionImage((1, 2, 3), (1, 2), 1, 3, 6, directories=(bytes(16), bytes(16), LOST_DIRECTORY)))
    leading.on_follower_fetch(3, broker_epoch=-1, offset=5, start_offset=0)
    if leading.on_follower_fetch(2, broker_epoch=-1, offset=6, start_offset=0):
        leading.committed()
    assert (partition.committed.offset, asked) == (6, [])


def test_records_that_the_leader_has_not_synced_are_not_committed_though_its_followers_have_them() -> None:
    """With flush.messages: it may lead again after a power cut of all, and a consumer had read what it lacks."""
    partition = Given(5, 5)
    replication = replication_of()
    leading = Leading(partition, PartitionImage((1, 2), (1, 2), 1, 3, 5), replication, epoch_start_offset=5)
    partition.log.log_end_offset = 6
    partition.log.durability = SimpleNamespace(owes_sync=True, recovery_point=5)
    assert not leading.on_follower_fetch(2, broker_epoch=-1, offset=6, start_offset=0)
    leading.grew(0)
    assert partition.committed.offset == 5
    partition.log.durability = SimpleNamespace(owes_sync=False, recovery_point=6)
    leading.grew(100)
    assert partition.committed.offset == 6


def test_offsets_a_follower_reached_in_an_earlier_epoch_do_not_count_in_the_next() -> None:
    """Others may have led in between, and the follower may have been cut. Those who wait for its acknowledgement wait on."""
    partition = Given(10, 5)
    replication = replication_of(may_join=lambda: False)
    earlier = Leading(partition, PartitionImage((1, 2, 3), (1, 2, 3), 1, 3, 5), replication, epoch_start_offset=5)
    assert not earlier.on_follower_fetch(2, broker_epoch=-1, offset=10, start_offset=0), "the third one has yet to fetch"
    waiting = earlier.hand_over()
    later = Leading(partition, PartitionImage((1, 2, 3), (1, 2), 1, 6, 8), replication, epoch_start_offset=10, waiting=waiting)
    assert partition.committed.offset == 5
    later.grew(100)
    assert partition.committed.offset == 5
    assert later.on_follower_fetch(2, broker_epoch=-1, offset=8, start_offset=0)
    later.committed()
    assert partition.committed.offset == 8


def test_a_late_answer_of_the_controller_moves_nothing_once_the_epoch_has_ended() -> None:
    """The partition has another role by then, and its log may be another one."""
    partition = Given(5, 5)
    leading = Leading(partition, PartitionImage((1, 2), (1, 2), 1, 3, 5), replication_of(), epoch_start_offset=5)
    partition.log.log_end_offset = 9
    leading.grew(100)
    assert leading.machine.change is None
    leading.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads"))
    leading.on_image(PartitionImage((1, 2), (1,), 1, 3, 6))
    assert partition.committed.offset == 5
