"""What a consumer looks up goes on until the limit of the call while brokers do not answer, and has the answer of one that came back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.client.simulated import KEY, consumer_of, create, fill, with_broker

from ottla.cli.unanswered import why_silent
from ottla.client.cluster import Cluster
from ottla.client.consumer import Consumer
from ottla.client.out_of_reach import BrokerOutOfReach
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.list_offsets import ListOffsetsRequest
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference, Lost
from ottla.wire.schema import Request

AWAY_MS = 20_000
CALLS: dict[str, Callable[[Consumer], Awaitable[object]]] = {
    "end_offsets": lambda consumer: consumer.end_offsets([KEY]),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([KEY]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({KEY: 0}),
    "committed": lambda consumer: consumer.committed([KEY]),
    "commit": lambda consumer: consumer.commit({KEY: 1}),
}
LOOK_UPS = ("end_offsets", "beginning_offsets", "offsets_for_times")


async def timed(cluster: Cluster, call: Awaitable[object]) -> tuple[object, int]:
    """What the call returns or raises, and after how many milliseconds of the virtual clock."""
    began_ms = cluster.world.clock.monotonic_ms()
    try:
        found: object = await call
    except KafkaError as error:
        found = error
    return found, cluster.world.clock.monotonic_ms() - began_ms


@pytest.mark.parametrize("name", CALLS)
def test_a_call_gets_its_answer_from_a_broker_that_was_away(name: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        await fill(broker, 3)
        cluster = broker.client("c")
        consumer = consumer_of(cluster, group_id="g", default_api_timeout_ms=60_000)
        expected = await CALLS[name](consumer)
        await broker.stop()
        calling = asyncio.ensure_future(timed(cluster, CALLS[name](consumer)))
        await asyncio.sleep(AWAY_MS / 1000)
        assert not calling.done()
        await broker.start()
        found, _ = await calling
        assert found == expected
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize("limit_ms", [6_000, 60_000])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_fails_when_its_limit_has_passed_and_says_what_was_in_the_way(name: str, limit_ms: int) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        consumer = consumer_of(cluster, group_id="g", default_api_timeout_ms=limit_ms)
        await CALLS[name](consumer)
        await broker.stop()
        error, taken_ms = await timed(cluster, CALLS[name](consumer))
        assert isinstance(error, KafkaError)
        assert error.is_transient
        assert "broker" in str(error)
        assert limit_ms - 2_000 <= taken_ms <= limit_ms
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize("name", LOOK_UPS)
def test_a_call_may_have_a_limit_of_its_own(name: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        consumer = consumer_of(cluster)
        wanted = {KEY: 0} if name == "offsets_for_times" else [KEY]
        await getattr(consumer, name)(wanted, timeout_ms=3_000)
        await broker.stop()
        for limit_ms, at_least_ms in ((3_000, 1_000), (0, 0)):
            error, taken_ms = await timed(cluster, getattr(consumer, name)(wanted, timeout_ms=limit_ms))
            assert isinstance(error, KafkaError)
            assert at_least_ms <= taken_ms <= max(1_000, limit_ms)
        with pytest.raises(KafkaError, match="leave it out for default_api_timeout_ms"):
            await getattr(consumer, name)(wanted, timeout_ms=-1)
        await consumer.close()

    with_broker(body)


def test_a_broker_that_takes_the_question_and_does_not_answer_is_named() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, default_api_timeout_ms=6_000)
        network.refuse = lambda request: Held(10_000_000) if isinstance(request, ListOffsetsRequest) else None
        error, taken_ms = await timed(cluster, consumer.end_offsets([KEY]))
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.REQUEST_TIMED_OUT
        assert "end_offsets has not ended in default_api_timeout_ms=6000: it waited for" in str(error)
        assert "its own work" not in str(error)
        assert taken_ms == pytest.approx(6_000, abs=50)
        await consumer.close()

    with_broker(body)


def test_a_try_that_the_limit_cuts_short_leaves_the_problem_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command tells from it a broker that cannot be reached from one that runs and does not answer."""

    async def known(*args: object, **kwargs: object) -> None:
        """Metadata comes from the other brokers."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        network = Interference(cluster)
        consumer = consumer_of(cluster, default_api_timeout_ms=6_000)
        await consumer.end_offsets([KEY])
        clock = cluster.world.clock
        later_ms = clock.monotonic_ms() + 3_000

        def refuse(request: Request) -> Lost | Held | None:
            if isinstance(request, ApiVersionsRequest):
                return Lost() if clock.monotonic_ms() < later_ms else Held(10_000_000)
            return Lost()

        network.refuse = refuse
        monkeypatch.setattr(cluster, "refresh", known)
        error, taken_ms = await timed(cluster, consumer.end_offsets([KEY]))
        assert isinstance(error, KafkaError)
        assert error.code == ErrorCode.REQUEST_TIMED_OUT
        assert isinstance(error.__cause__, BrokerOutOfReach)
        assert "broker 1 cannot be reached" in why_silent(1, error)
        assert taken_ms == pytest.approx(6_000, abs=50)
        await consumer.close()

    with_broker(body)


@pytest.mark.parametrize("name", LOOK_UPS)
def test_a_partition_that_does_not_exist_is_not_waited_for(name: str) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        cluster = broker.client("c")
        consumer = consumer_of(cluster)
        for partition in (("t", 7), ("other", 0)):
            error, taken_ms = await timed(cluster, getattr(consumer, name)({partition: 0} if name == "offsets_for_times" else [partition]))
            assert isinstance(error, KafkaError)
            assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert taken_ms < 1_000
        await consumer.close()

    with_broker(body)
