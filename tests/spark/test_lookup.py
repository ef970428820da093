"""How long the driver repeats what it asks, on a virtual clock."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.simulated import with_broker

from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker
from ottla.spark.lookup import Lookup

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}


class Outage:
    """A request that fails until ``end_ms`` of the virtual clock."""

    def __init__(self, broker: SimBroker, seconds: float, code: ErrorCode = ErrorCode.NETWORK_EXCEPTION, **options: Any) -> None:
        cluster = broker.client("driver")
        lookup = Lookup(OPTIONS | options)
        link: Any = SimpleNamespace(cluster=cluster)
        lookup.link = link
        self.clock, self.code = cluster.world.clock, code
        self.begin_ms = self.clock.monotonic_ms()
        self.end_ms = self.begin_ms + seconds * 1000
        self.asked = 0
        self.ask = lambda: lookup._ask(self.answer)

    async def answer(self) -> str:
        self.asked += 1
        if self.clock.monotonic_ms() < self.end_ms:
            raise KafkaError(self.code, "away")
        return "offsets"

    @property
    def took_s(self) -> float:
        return (self.clock.monotonic_ms() - self.begin_ms) / 1000


@pytest.mark.parametrize("seconds", [0, 15, 55, 200])
@pytest.mark.parametrize("code", [ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE])
def test_a_broker_that_is_away_for_some_time_ends_no_query(seconds: int, code: ErrorCode) -> None:
    async def body(broker: SimBroker) -> None:
        outage = Outage(broker, seconds, code)
        assert await outage.ask() == "offsets"
        assert seconds <= outage.took_s <= seconds + 2

    with_broker(body)


def test_a_broker_that_stays_away_is_an_error_after_a_minute_of_each_try() -> None:
    async def body(broker: SimBroker) -> None:
        outage = Outage(broker, 3600)
        with pytest.raises(KafkaError, match="away"):
            await outage.ask()
        assert 4 * 55 <= outage.took_s <= 4 * 60 + 3

    with_broker(body)


def test_how_long_a_request_is_repeated_is_what_the_options_say() -> None:
    async def body(broker: SimBroker) -> None:
        options: dict[str, Any] = {"kafka.default.api.timeout.ms": "5000", "fetchOffset.numRetries": "1"}
        outage = Outage(broker, 3600, **options)
        with pytest.raises(KafkaError, match="away"):
            await outage.ask()
        assert 2 * 3 <= outage.took_s <= 2 * 5 + 1

    with_broker(body)


def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    async def body(broker: SimBroker) -> None:
        outage = Outage(broker, 3600, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(KafkaError, match="away"):
            await outage.ask()
        assert outage.asked == 1

    with_broker(body)
