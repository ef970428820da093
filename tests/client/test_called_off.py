"""A rebalance that is called off, by the group, the application or the coordinator, while the commit before it has no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

from tests.client.simulated import consumer_of, create, fill, take, with_broker

from ottla.client.rebalances import Rebalances
from ottla.errors import ErrorCode
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

FOREVER_MS: Final = 10**9


class Unanswered:
    """Rebalances whose commits have no answer in the time of a poll. ``meanwhile`` is what another task does while one is waited for."""

    def __init__(self, meanwhile: Callable[[Unanswered], None] = lambda _: None) -> None:
        self._meanwhile = meanwhile
        self.membership = SimpleNamespace(needs_rejoin=True)
        self.fetcher = SimpleNamespace(is_held=False)
        self.subscription: Any = SimpleNamespace(is_ended=False)
        clock: Any = None
        parts: Any = (self.membership, {}, SimpleNamespace(commit_by=self._commit_by, was_cut_off=False), self.fetcher, list)
        self.rebalances = Rebalances(clock, *parts)

    async def _commit_by(self, deadline_ms: int) -> bool:
        self._meanwhile(self)
        return False

    def poll(self) -> bool:
        """False when the rebalance outlasts the poll."""
        return asyncio.run(self.rebalances.run(self.subscription, 100))


def test_records_are_handed_out_again() -> None:
    """The group's next answer gives the member what it has, so that there is no round which would end the wait."""
    member = Unanswered()
    assert not member.poll()
    assert member.fetcher.is_held
    member.membership.needs_rejoin = False
    assert member.poll()
    assert not member.fetcher.is_held


def test_a_consumer_that_has_unsubscribed_meanwhile_is_held_up_no_longer() -> None:
    """No round of a subscription follows where it assigns partitions by hand: nothing would ever be handed out."""

    def unsubscribe(member: Unanswered) -> None:
        member.rebalances.abandon()  # the commit that it cancels has not ended yet
        member.subscription.is_ended = True

    member = Unanswered(unsubscribe)
    assert not member.poll()
    assert not member.fetcher.is_held


def test_a_commit_of_one_partition_meanwhile_leaves_the_others_to_no_second_reading() -> None:
    """It ends the automatic commit, which is done again then."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        for index in range(2):
            await fill(broker, 100, partition=index)
        settings = {"partition_assignment_strategy": ["range"], "heartbeat_interval_ms": 500, "auto_offset_reset": "earliest"}
        cluster = broker.client("first")
        network = Interference(cluster)
        first = consumer_of(cluster, group_id="g", auto_commit_interval_ms=FOREVER_MS, **settings)
        first.subscribe(["t"])
        read = [(record.partition, record.offset) for record in await take(first, 120, max_records=10)]
        assert {partition for partition, _ in read} == {0, 1}
        network.refuse = lambda request: Held(20_000) if isinstance(request, OffsetCommitRequest) else None
        second = consumer_of(broker.client("second"), group_id="g", **settings)
        second.subscribe(["t"])
        while not network.of(OffsetCommitRequest):
            assert not await second.poll(10)
            read += [(record.partition, record.offset) for record in await first.poll(500, max_records=1)]
        assert len(read) < 200, "there is something to read yet"
        network.refuse = lambda request: None
        await first.commit({("t", 0): max(offset for partition, offset in read if partition == 0) + 1})
        while len(read) < 200:
            read += [(record.partition, record.offset) for member in (first, second) for record in await member.poll(100)]
        assert sorted(read) == [(index, offset) for index in range(2) for offset in range(100)]
        await first.close()
        await second.close()

    with_broker(body)


def test_partitions_of_a_membership_that_ends_meanwhile_are_not_assigned() -> None:
    """The join was answered, and then the commit of what it takes away is refused: this is no member."""

    async def body(broker: SimBroker) -> None:
        await create(broker, partition_count=2)
        settings = {"partition_assignment_strategy": ["cooperative-sticky"], "heartbeat_interval_ms": 500, "session_timeout_ms": 10_000}
        cluster = broker.client("first")
        network = Interference(cluster)
        first = consumer_of(cluster, group_id="g", auto_commit_interval_ms=FOREVER_MS, **settings)
        lost: list[list[TopicPartition]] = []
        first.subscribe(["t"], on_lost=lost.append)
        while len(first.assignment()) < 2:
            await first.poll(100)
        await first.poll(1_000)

        def alter(request: Request, response: Any) -> Response | None:
            if not isinstance(request, OffsetCommitRequest) or len(network.of(OffsetCommitRequest)) != 2:
                return None
            for partition in response.topics[0].partitions:
                partition.error_code = ErrorCode.UNKNOWN_MEMBER_ID
            return response

        network.alter = alter
        second = consumer_of(broker.client("second"), group_id="g", **settings)
        second.subscribe(["t"])
        for _ in range(20):
            await first.poll(500)
            await second.poll(10)
        network.alter = lambda request, response: None
        while not (first.assignment() and second.assignment()):
            await first.poll(100)
            await second.poll(100)
        assert lost == [[TopicPartition("t", 0), TopicPartition("t", 1)]], "it was not assigned what it had lost already"
        await first.close()
        await second.close()

    with_broker(body)
