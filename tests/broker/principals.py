"""Clients of a simulated broker whose principal is ``User:`` and the name of their host: no handshake stands between them and ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from ottla.broker.requests.connection import BrokerConnection
from ottla.broker.requests.router import Router
from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster
from ottla.client.connection import ClientConnection
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.security.principal import ANONYMOUS, USER, Principal
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run

STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ASK_MS: Final = 10_000
SECURED: Final = {"authorizer.class.name": STANDARD, "super.users": "User:admin"}


@contextmanager
def known_by_host() -> Iterator[None]:
    """Who connects to any broker meanwhile, and is not introduced by an authentication, is known by the name of the host."""
    introduce = Router.introduce

    def known(router: Router, connection: BrokerConnection, principal: Principal) -> None:
        introduce(router, connection, Principal(USER, connection.client_host) if principal is ANONYMOUS else principal)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Router, "introduce", known)
        yield


async def allow(
    admin: Cluster,
    user: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    is_prefix: bool = False,
    permission: Permission = Permission.ALLOW,
) -> None:
    """The user may do this, or may not, on that resource from anywhere."""
    pattern_type = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    creation = AclCreation(resource_type, name, pattern_type, f"User:{user}", "*", operation, permission)
    answer = await admin.ask(None, CreateAclsRequest([creation]), CreateAclsResponse)
    assert [(result.error_code, result.error_message) for result in answer.results] == [(0, None)]


async def forget(admin: Cluster, user: str, resource_type: ResourceType = ResourceType.ANY, name: str | None = None) -> int:
    """No ACL of the user on that resource is left; how many there were."""
    wanted = DeleteAclsFilter(resource_type, name, PatternType.ANY, f"User:{user}", None, Operation.ANY, Permission.ANY)
    answer = await admin.ask(None, DeleteAclsRequest([wanted]), DeleteAclsResponse)
    [result] = answer.filter_results
    assert result.error_code == 0
    return len(result.matching_acls)


async def secured(**properties: str) -> tuple[SimBroker, Cluster]:
    """A broker with an authorizer, and its super user's connection."""
    broker = SimBroker(Simulation(1), SECURED | {key.replace("_", "."): value for key, value in properties.items()})
    await broker.start()
    return broker, broker.client("admin")


async def connected(client: Cluster) -> ClientConnection:
    if not client.nodes:
        await client.refresh()
    return await client.connection(next(iter(client.nodes)))


async def fill_as_admin(admin: Cluster, topic: str, count: int = 1) -> None:
    producer = Producer(admin, ProducerSettings())
    for _ in range(count):
        await producer.send(topic, b"v", partition=0)
    await producer.flush()


def with_secured(body: Callable[[SimBroker, Cluster], Awaitable[None]], **properties: str) -> None:
    """``body`` runs beside a broker with an authorizer, whose topic ``t`` has a record."""

    async def main() -> None:
        broker, admin = await secured(**properties)
        assert await Admin(admin).create_topics([NewTopic("t", 1)]) == {"t": None}
        await fill_as_admin(admin, "t")
        await body(broker, admin)

    with known_by_host():
        run(asyncio.wait_for(main(), 600))


async def until(condition: Callable[[], bool]) -> None:
    """Within a minute of simulated time."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
