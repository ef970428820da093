"""A rebalance that is called off, by the group, the application or the coordinator, while the commit before it has no answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Final

from tests.client.simulated import consumer_of, create, with_broker

from ottla.client.rebalances import Rebalances
from ottla.errors import ErrorCode
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Interference
from ottla.types import TopicPartition
from ottla.wire.schema import Request, Response

FOREVER_MS: Final = 10**9


def test_records_are_handed_out_again() -> None:
    """The group's next answer gives the member what it has, so that there is no round which would end the wait."""

    async def main() -> None:
        async def commit_by(deadline_ms: int) -> bool:
            return False

        membership, fetcher = SimpleNamespace(needs_rejoin=True), SimpleNamespace(is_held=False)
        clock: Any = None
        parts: Any = (membership, {}, SimpleNamespace(commit_by=commit_by), fetcher, list)
        rebalances = Rebalances(clock, *parts)
        subscription: Any = SimpleNamespace(is_ended=False)
        assert not await rebalances.run(subscription, 100)
        assert fetcher.is_held
        membership.needs_rejoin = False
        assert await rebalances.run(subscription, 200)
        assert not fetcher.is_held

    asyncio.run(main())


def test_a_consumer_that_has_unsubscribed_meanwhile_is_held_up_no_longer() -> None:
    """No round of a subscription follows where it assigns partitions by hand: nothing would ever be handed out."""

    async def main() -> None:
        async def commit_by(deadline_ms: int) -> bool:
            rebalances.abandon()  # as another task's unsubscribe does, while the commit that it cancels has not ended yet
            subscription.is_ended = True
            return False

        membership, fetcher = SimpleNamespace(needs_rejoin=True), SimpleNamespace(is_held=False)
        clock: Any = None
        parts: Any = (membership, {}, SimpleNamespace(commit_by=commit_by), fetcher, list)
        rebalances = Rebalances(clock, *parts)
        subscription: Any = SimpleNamespace(is_ended=False)
        assert not await rebalances.run(subscription, 100)
        assert not fetcher.is_held

    asyncio.run(main())


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
