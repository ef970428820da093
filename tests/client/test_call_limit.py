"""The limit of a whole call of administration: default.api.timeout.ms, with what was waited for."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from tests.client.simulated import create, with_broker

from ottla import sync
from ottla.client import call_limit
from ottla.client.admin import Admin, NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.create_topics import CreateTopicsRequest
from ottla.messages.find_coordinator import FindCoordinatorResponse
from ottla.sim.cluster import SimBroker
from ottla.sim.interference import Held, Interference
from ottla.sim.loop import run

LIMIT_MS = 5_000


async def refused(admin: Admin, call: str, *args: object) -> str:
    """The text of the call's error, which comes when the limit ends and not before."""
    clock = admin._cluster.world.clock
    began_ms = clock.monotonic_ms()
    with pytest.raises(KafkaError) as error:
        await getattr(admin, call)(*args)
    assert error.value.code == ErrorCode.REQUEST_TIMED_OUT
    assert LIMIT_MS <= clock.monotonic_ms() - began_ms < LIMIT_MS + 10
    beginning = f"{call}() has not ended in default_api_timeout_ms={LIMIT_MS}: it waited for "
    assert error.value.message.startswith(beginning)
    return error.value.message.removeprefix(beginning)


def limited(broker: SimBroker) -> Admin:
    return Admin(broker.client("c"), default_api_timeout_ms=LIMIT_MS)


def test_a_call_that_waits_for_a_connection_or_an_answer_ends_by_its_limit_and_says_so() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        admin = limited(broker)
        silent = limited(broker)
        await admin.list_topics()
        broker.machine.pause_process()
        assert await refused(admin, "list_topics") == "broker:9092 to answer Metadata"
        assert await refused(silent, "list_topics") == "a connection to a broker of broker:9092"
        assert await refused(admin, "list_topics") == "a connection to broker 1", "the silent one is closed"
        await silent.close()
        broker.machine.resume_process()
        assert "t" in await admin.list_topics()
        await admin.close()

    with_broker(body)


def test_tries_for_a_coordinator_end_by_the_limit_and_not_before_and_their_problem_is_named() -> None:
    async def body(broker: SimBroker) -> None:
        admin = limited(broker)
        network = Interference(admin._cluster)

        def without_coordinator(request: object, response: object) -> FindCoordinatorResponse | None:
            if not isinstance(response, FindCoordinatorResponse):
                return None
            for found in response.coordinators:
                found.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return response

        network.alter = without_coordinator
        problem = await refused(admin, "committed_offsets", "g")
        assert problem == "another try after COORDINATOR_NOT_AVAILABLE: no coordinator for group 'g'"
        await admin.close()

    with_broker(body)


def test_each_of_several_answers_that_a_call_waits_for_is_named_and_its_methods_share_the_limit() -> None:
    @call_limit.limited
    class Asking:
        default_api_timeout_ms = LIMIT_MS

        async def one(self, name: str) -> None:
            with call_limit.waiting_for(name):
                await asyncio.sleep(LIMIT_MS / 1000 - 1)

        async def first(self) -> None:
            with pytest.raises(ValueError, match="early"), call_limit.waiting_for("what has failed"):
                raise ValueError("early")
            await asyncio.gather(self.one("a"), self.one("b"))
            await asyncio.gather(self.one("c"), self.one("d"))

        async def failing(self) -> None:
            raise TimeoutError("its own")

    async def main() -> None:
        with pytest.raises(KafkaError, match=r"first\(\) has not ended in default_api_timeout_ms=5000: it waited for c and d$"):
            await Asking().first()
        with pytest.raises(TimeoutError, match="its own"):
            await Asking().failing()

    run(main())


@pytest.mark.parametrize("timeout_ms", [2_000, 90_000])
def test_a_limit_of_the_call_takes_the_place_of_the_clients(timeout_ms: int) -> None:
    """A minute and a half is longer than a request may take, too, and two seconds are less than the client's five."""

    async def body(broker: SimBroker) -> None:
        await create(broker)
        admin = limited(broker)
        clock = admin._cluster.world.clock
        await admin.list_topics()
        broker.machine.pause_process()
        began_ms = clock.monotonic_ms()
        with pytest.raises(KafkaError) as error:
            await admin.create_topics([NewTopic("u")], timeout_ms=timeout_ms)
        assert error.value.code == ErrorCode.REQUEST_TIMED_OUT
        text = f"create_topics() has not ended in timeout_ms={timeout_ms}: it waited for broker:9092 to answer CreateTopics"
        assert error.value.message == text
        assert clock.monotonic_ms() - began_ms - timeout_ms in range(1000, 1010), "the broker's own answer may be on its way"
        broker.machine.resume_process()
        await admin.close()

    with_broker(body)


def test_an_answer_that_takes_longer_than_the_clients_limit_is_the_calls_where_it_was_given_the_time() -> None:
    async def body(broker: SimBroker) -> None:
        admin = limited(broker)
        network = Interference(admin._cluster)
        network.alter = lambda request, response: Held(40_000) if isinstance(request, CreateTopicsRequest) else None
        assert await admin.create_topics([NewTopic("u")], timeout_ms=60_000) == {"u": None}
        [request] = network.of(CreateTopicsRequest)
        assert request.timeout_ms == 60_000
        await admin.close()

    with_broker(body)


@pytest.mark.parametrize("timeout_ms", ["5", 1.5])
def test_a_limit_that_may_be_meant_as_seconds_is_refused(timeout_ms: Any) -> None:
    async def body(broker: SimBroker) -> None:
        admin = limited(broker)
        with pytest.raises(TypeError, match="a whole number of milliseconds"):
            await admin.delete_topics(["t"], timeout_ms=timeout_ms)
        await admin.close()

    with_broker(body)


def test_the_setting_reaches_the_calls_of_both_faces() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings: Any = {"default_api_timeout_ms": "50"}  # as properties have it
        text = r"describe_cluster\(\) has not ended in default_api_timeout_ms=50: it waited for a connection"
        with sync.Admin(address, **settings) as admin, pytest.raises(KafkaError, match=text):
            admin.describe_cluster()
    with pytest.raises(KafkaError, match=r"default.api.timeout.ms=-1"):
        sync.Admin(default_api_timeout_ms=-1)
