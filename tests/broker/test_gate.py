"""What a request passes before its handler: whether who asks may do with the cluster what its API needs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.client.simulated import with_broker
from tests.simulation.quorum_nodes import NODES, QuorumNode, started

from ottla.broker.authorization import AllowAll, Rights
from ottla.broker.handlers import SERVICES
from ottla.broker.node import Broker
from ottla.broker.requests.gate import refuse
from ottla.broker.requests.service import Asks
from ottla.broker.roles import Role
from ottla.errors import ErrorCode
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.messages.list_partition_reassignments import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.security.principal import Principal
from ottla.sim.cluster import SimBroker, SimClient, Simulation
from ottla.sim.loop import run
from ottla.wire.compiler import encode


class Without:
    """An authorizer: everything is allowed but one operation on the cluster, to clients."""

    is_configured = True

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self.asked: list[str] = []

    def rights(self, principal: Principal, host: str) -> Rights:
        return _Without(self, str(principal))

    def bits(self, resource_type: ResourceType, name: str) -> int:
        bits = AllowAll().allowed(resource_type, name)
        return bits & ~(1 << self._operation) if resource_type is ResourceType.CLUSTER else bits


class _Without(AllowAll):
    def __init__(self, authorizer: Without, principal: str) -> None:
        self._authorizer = authorizer
        self._principal = principal

    def allowed(self, resource_type: ResourceType, name: str) -> int:
        return self._authorizer.bits(resource_type, name)

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        self._authorizer.asked.append(self._principal)
        return bool(self.allowed(resource_type, name) >> operation & 1)


def forbid(broker: Broker, operation: Operation) -> Without:
    """Connections, and requests inside of others, have this authorizer from now on."""
    authorizer = Without(operation)
    broker.router._authorizer = authorizer
    for connection in broker.router.connections:
        connection.rights = authorizer.rights(connection.principal, connection.client_host)
    broker.router.gate.begin(replace(broker.parts, authorizer=authorizer))
    return authorizer


def test_what_a_principal_may_not_do_with_the_cluster_is_refused_before_the_handler() -> None:
    async def body(broker: SimBroker) -> None:
        assert broker.broker is not None
        authorizer, client = forbid(broker.broker, Operation.ALTER), broker.client("client")
        answer = await client.ask(None, UpdateFeaturesRequest(), UpdateFeaturesResponse)
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert authorizer.asked == ["User:ANONYMOUS"]
        listed = await client.ask(None, ListPartitionReassignmentsRequest(timeout_ms=1000), ListPartitionReassignmentsResponse)
        assert listed.error_code == ErrorCode.NONE, "to look is another operation"
        assert await client.ask(None, MetadataRequest([]), MetadataResponse)
        await client.close()

    with_broker(body)


def test_a_request_that_another_broker_passes_on_is_its_clients() -> None:
    async def main() -> None:
        nodes = [QuorumNode(simulation, node) for node in range(1, NODES + 1)]
        for node in nodes:
            await node.format()
            node.begin()
        await started(nodes)
        [active] = [node for node in nodes if node.broker is not None and node.broker.controller.is_active]
        other = next(node for node in nodes if node is not active)
        assert active.broker is not None
        forbid(active.broker, Operation.ALTER)
        client = SimClient(simulation, "client", other.bootstrap)

        async def ask() -> UpdateFeaturesResponse:
            cluster = client.cluster()
            answer: Any = await cluster.ask(None, UpdateFeaturesRequest(), UpdateFeaturesResponse)
            await cluster.close()
            return answer

        found.append((await client.machine.run(ask())).error_code)

    simulation, found = Simulation(3), list[int]()
    run(asyncio.wait_for(main(), 120))
    assert found == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


@pytest.mark.parametrize("role", list(Role))
def test_what_is_refused_can_be_said_in_the_answer(role: Role) -> None:
    """In each version."""
    for service in SERVICES[role].values():
        if isinstance(service.needs, Asks):
            continue
        for version in range(service.version_min, service.version_max + 1):
            said: list[Any] = []
            context: Any = SimpleNamespace(reply=said.append)
            refuse(service, context, service.api.request())
            encode(said[0], version)


def test_what_only_nodes_ask_of_each_other_needs_cluster_action() -> None:
    only_controllers = SERVICES[Role.CONTROLLER].keys() - SERVICES[Role.BROKER].keys()
    assert {key for key in only_controllers if SERVICES[Role.CONTROLLER][key].needs != Operation.CLUSTER_ACTION} == set()
