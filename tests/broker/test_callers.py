"""Connections that other nodes have made: who is heard, and what a client with such a name can do."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

import pytest
from tests.broker.test_membership import membership
from tests.client.simulated import with_broker

from ottla.broker.liveness.callers import NODES_MAX, OPEN_MAX, Callers
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.ports import Connection
from ottla.sim.cluster import SimBroker
from ottla.sim.loop import run


@dataclass(eq=False)
class Call:
    is_closed: bool = False
    is_of_a_lost_machine: bool = False

    def probe(self) -> None:
        self.is_closed |= self.is_of_a_lost_machine


def noted(callers: Callers, node_id: int) -> Call:
    call = Call()
    callers.note(node_id, cast("Connection", call))
    return call


def test_a_node_is_heard_while_one_of_its_connections_is_open() -> None:
    callers = Callers()
    calls = [noted(callers, 2) for _ in range(6)]
    for call in calls:
        assert callers.hears(2)
        call.is_closed = True
    assert not callers.hears(2)


@pytest.mark.parametrize("is_expected", [False, True])
def test_a_node_that_has_not_called_yet_counts_as_heard_if_its_call_is_expected(is_expected: bool) -> None:
    callers = Callers(lambda node_id: is_expected)
    assert callers.hears(2) is is_expected
    noted(callers, 2).is_closed = True
    assert not callers.hears(2)


def test_a_client_is_no_node_whatever_it_calls_itself() -> None:
    async def body(broker: SimBroker) -> None:
        assert broker.broker is not None
        for client_id, said in (("node-2-sentinel", -1), ("anything", 3)):
            client = broker.client(client_id)
            await client.ask(None, ApiVersionsRequest("test", "1", False, said), ApiVersionsResponse)
            assert list(broker.broker.parts.home.callers._calls) == ([] if said < 0 else [said])
            await client.close()

    with_broker(body)


def test_connections_that_come_and_go_push_none_out_that_is_open() -> None:
    callers = Callers()
    idle = noted(callers, 2)
    for _ in range(10 * OPEN_MAX):
        noted(callers, 2).is_closed = True
    assert callers.hears(2)
    idle.is_closed = True
    assert not callers.hears(2)


def test_connections_of_a_machine_that_has_lost_power_are_found_ended() -> None:
    callers = Callers()
    lost, kept = noted(callers, 2), noted(callers, 3)
    lost.is_of_a_lost_machine = True
    for node_id in (2, 3, 4):
        callers.probe(node_id)
    assert (callers.hears(2), callers.hears(3)) == (False, True)
    assert not kept.is_closed


def test_memory_is_bounded() -> None:
    callers = Callers()
    for node_id in range(2 * NODES_MAX):
        for _ in range(2 * OPEN_MAX):
            noted(callers, node_id)
    assert len(callers._calls) == NODES_MAX
    assert max(map(len, callers._calls.values())) == OPEN_MAX


def test_a_broker_whose_own_connection_is_open_is_not_dead_though_it_refuses_and_never_sent_a_heartbeat() -> None:
    async def body() -> None:
        made, _, evidence = membership(sees=False)
        await asyncio.sleep(1)  # longer than a broker has to say hello
        assert not evidence.is_heard(2, 2)
        evidence.hears = lambda broker_id: broker_id == 2  # type: ignore[method-assign]
        assert evidence.is_heard(2, 2)
        assert not evidence.is_heard(3, 3)
        made.on_inactive()

    run(body())
