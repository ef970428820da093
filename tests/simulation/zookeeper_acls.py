"""A tool that changes the znodes of ACLs beside the controller, as Kafka's kafka-acls does: it reads, and writes over what it has read."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from tests.simulation.quorum_nodes import HEAL_SECONDS, QuorumNode
from tests.simulation.zookeeper_nodes import ZookeeperNode

from ottla.coordination import CoordinationError, Create, Delete, NoNodeError, Operation, Session, Set
from ottla.messages.acl_codes import Operation as AclOperation
from ottla.messages.acl_codes import PatternType, Permission, ResourceType
from ottla.metadata.acls import Pattern
from ottla.metadata.security_znodes import acl_change, acl_path, decode_acls, encode_acls, pattern_at
from ottla.sim.cluster import Simulation
from ottla.sim.zookeeper import SimZooKeeper

CHROOT: Final = "/cluster"
OWN: Final = "User:carol", "*", int(AclOperation.READ), int(Permission.ALLOW)


def service_of(nodes: Sequence[QuorumNode]) -> SimZooKeeper:
    first = nodes[0]
    assert isinstance(first, ZookeeperNode)
    return first.service


async def write_beside(
    simulation: Simulation, service: SimZooKeeper, topics: Collection[str], is_over: asyncio.Event, states: Counter[str]
) -> None:
    """An ACL of carol comes and goes; some notices are written before what they are about. Each topic that was touched has a last one."""
    rng, touched = simulation.random("tool"), dict[Pattern, None]()
    session = await service.coordination("tool").connect(f"zookeeper:2181{CHROOT}", session_timeout_ms=10 * 60_000)
    while not is_over.is_set():
        pattern = int(PatternType.LITERAL), int(ResourceType.TOPIC), rng.choice(sorted(topics))
        touched[pattern] = None
        steps: list[Operation] = [_notice(pattern)]
        try:
            steps.insert(rng.choice([0, 0, 1]), await _change(session, pattern))
            for step in steps:
                await session.multi([step])
            states["changes of a tool"] += 1
        except CoordinationError as error:
            states[f"tool: {type(error).__name__}"] += 1
        await asyncio.sleep(rng.uniform(0.3, 2))
    async with asyncio.timeout(HEAL_SECONDS):
        for pattern in touched:
            while True:
                try:
                    await session.multi([_notice(pattern)])
                    break
                except CoordinationError:
                    await asyncio.sleep(0.5)


async def _change(session: Session, pattern: Pattern) -> Operation:
    path = acl_path(pattern)
    try:
        data, stat = await session.get(path)
    except NoNodeError:
        return Create(path, encode_acls([OWN]))
    acls = {(one.principal, one.host, one.operation, one.permission_type) for one in decode_acls(data, pattern).acls} ^ {OWN}
    return Set(path, encode_acls(sorted(acls)), stat.version) if acls else Delete(path, stat.version)


def _notice(pattern: Pattern) -> Operation:
    return Create(*acl_change(pattern), is_sequential=True)


async def other_than_in_znodes(nodes: Sequence[QuorumNode]) -> list[str]:
    """A finding where the nodes do not come to the ACLs that the znodes have."""
    tree = service_of(nodes).tree
    try:
        async with asyncio.timeout(HEAL_SECONDS):
            while True:
                patterns = {path: pattern_at(path.removeprefix(CHROOT)) for path in tree.paths()}
                found = {
                    acl.id
                    for path, data in tree.paths().items()
                    if (pattern := patterns[path]) is not None
                    for acl in decode_acls(data, pattern).acls
                }
                if all(node.broker is not None and node.broker.image.acls.keys() == found for node in nodes):
                    return []
                await asyncio.sleep(0.5)
    except TimeoutError:
        return ["the ACLs of the nodes are not those of the znodes"]
