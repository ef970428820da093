"""Rights that come and go while nodes fail: a broker that has acknowledged a change enforces it, until its process ends.

An administrator allows and forbids two users to read a topic, each change through one of three nodes; each user asks each node for the
topic all the time. There need be no such topic: who has no right is refused before that is looked at. A change of which it is not known
whether it was made may yet be made later, so that user goes on with another topic. In the end all nodes have the same ACLs.

Where it ``is_guarded``, all of it is over SASL_SSL: sessions last five seconds, users authenticate again on open connections, and now and
then one tries to become the administrator by it. Where it ``is_in_zookeeper``, the ACLs are znodes, any of the nodes may be the
controller, and sessions and the service have troubles of their own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.broker.principals import SECURED, known_by_host
from tests.simulation.explorer import Trial
from tests.simulation.guarded_nodes import properties, security
from tests.simulation.quorum_nodes import HEAL_SECONDS, NODES, QuorumNode, started
from tests.simulation.zookeeper_acls import other_than_in_znodes, service_of, write_beside
from tests.simulation.zookeeper_nodes import nodes_in_zookeeper

from ottla.client.authentication import authenticate
from ottla.client.connection import ClientConnection
from ottla.config.keys.authorizer import IN_ZOOKEEPER
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.sim.cluster import PORT, SimClient, Simulation

USERS: Final = ("alice", "bob")
ASK_MS: Final = 3000
GUARDED_CONTENT: Final = {"elections": 3, "changes": 20, "authenticated again": 5}
"""The least content of a guarded seed."""
STAY_S: Final = (1.5, 4.0)
"""How long a user waits before another authentication; a session lasts five seconds."""
FETCH_VERSION: Final = 12
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NEVER: Final = float("inf")


@dataclass(slots=True)
class Change:
    """Of one user's right to a topic, asked of one node. ``ended`` is infinite while it is not known whether it was made."""

    user: str
    topic: str
    allows: bool
    node: int
    began: float
    ended: float = NEVER


@dataclass(frozen=True, slots=True)
class Probe:
    """What a node said to a user who asked for records."""

    user: str
    topic: str
    node: int
    began: float
    ended: float
    is_allowed: bool


@dataclass
class Rights:
    """What one seed met and found."""

    topics: dict[str, str] = field(default_factory=lambda: dict.fromkeys(USERS, "t0"))
    changes: list[Change] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    kills: dict[int, list[float]] = field(default_factory=dict)
    states: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def judge(self) -> None:
        """Between the answer to a change and the next change of that user, or the end of the node's process, the node enforces it."""
        for at, change in enumerate(self.changes):
            if change.ended == NEVER:
                continue
            later = [other.began for other in self.changes[at + 1 :] if (other.user, other.topic) == (change.user, change.topic)]
            until = min([*later, *(kill for kill in self.kills.get(change.node, ()) if kill >= change.began)], default=NEVER)
            for probe in self.probes:
                is_same = (probe.user, probe.topic, probe.node) == (change.user, change.topic, change.node)
                if is_same and change.ended < probe.began and probe.ended < until:
                    self.states["judged"] += 1
                    if probe.is_allowed is not change.allows:
                        self.findings.append(f"{change} was acknowledged, and then {probe}")


async def _connect(client: SimClient, user: str, node: int, is_guarded: bool) -> ClientConnection:
    known = security(user) if is_guarded else None
    return await ClientConnection.connect(client._world, f"node-{node}", PORT, client_id=user, timeout_ms=ASK_MS, security=known)


async def _change(client: SimClient, change: Change, is_guarded: bool) -> None:
    """KafkaError where it is not known whether it was made."""
    connection = await _connect(client, "admin", change.node, is_guarded)
    try:
        principal = f"User:{change.user}"
        if change.allows:
            creation = AclCreation(
                ResourceType.TOPIC, change.topic, PatternType.LITERAL, principal, "*", Operation.READ, Permission.ALLOW
            )  # fmt: skip
            created = await connection.ask(CreateAclsRequest([creation]), CreateAclsResponse, timeout_ms=ASK_MS)
            codes = [result.error_code for result in created.results]
        else:
            wanted = DeleteAclsFilter(ResourceType.TOPIC, change.topic, PatternType.ANY, principal, None, Operation.ANY, Permission.ANY)
            deleted = await connection.ask(DeleteAclsRequest([wanted]), DeleteAclsResponse, timeout_ms=ASK_MS)
            codes = [result.error_code for result in deleted.filter_results]
    finally:
        connection.close()
    if any(codes):
        raise KafkaError(ErrorCode(codes[0]))
    change.ended = asyncio.get_running_loop().time()


async def _administer(simulation: Simulation, client: SimClient, rights: Rights, is_over: asyncio.Event, is_guarded: bool) -> None:
    rng, now = simulation.random("administrator"), asyncio.get_running_loop().time
    while not is_over.is_set():
        user = rng.choice(USERS)
        change = Change(user, rights.topics[user], rng.random() < 0.5, rng.randrange(NODES) + 1, now())
        rights.changes.append(change)
        try:
            await _change(client, change, is_guarded)
            rights.states["changes"] += 1
        except KafkaError as error:
            rights.states[f"change not known: {error.code.name}"] += 1
            rights.topics[user] = f"t{len(rights.changes)}"
        await asyncio.sleep(rng.choice([0, rng.uniform(0.05, 1.5)]))


async def _probe(
    simulation: Simulation, client: SimClient, user: str, node: int, rights: Rights, is_over: asyncio.Event, is_guarded: bool
) -> None:
    now, rng, connection, again_at = asyncio.get_running_loop().time, simulation.random(f"{user} at {node}"), None, NEVER
    while not is_over.is_set():
        began, name = now(), rights.topics[user]
        try:
            if connection is None:
                connection = await _connect(client, user, node, is_guarded)
                again_at = now() + rng.uniform(*STAY_S) if is_guarded else NEVER
            if now() >= again_at:
                await _authenticate_again(client, connection, user, rights, is_honest=rng.random() < 0.9)
                again_at = now() + rng.uniform(*STAY_S)
            topic = FetchTopic(name, bytes(16), [FetchPartition(0, partition_max_bytes=1000)])
            request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1, topics=[topic])
            began = now()
            answer = await connection.ask(request, FetchResponse, timeout_ms=ASK_MS, version_max=FETCH_VERSION)
            [partition] = answer.responses[0].partitions
            rights.probes.append(Probe(user, name, node, began, now(), partition.error_code != DENIED))
        except (KafkaError, TimeoutError):
            rights.states["probe without an answer"] += 1
            if connection is not None:
                connection.close()
            connection = None
        await asyncio.sleep(0.05)
    if connection is not None:
        connection.close()


async def _authenticate_again(client: SimClient, connection: ClientConnection, user: str, rights: Rights, *, is_honest: bool) -> None:
    """On the open connection. Who wants to become the administrator by it is refused, and has to connect again."""
    credentials = security(user if is_honest else "admin").credentials
    assert credentials is not None, "guarded nodes ask for some"
    try:
        async with asyncio.timeout(ASK_MS / 1000):
            await authenticate(connection._send_exactly, credentials, client._world)
    except KafkaError as error:
        if error.code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            rights.states["refused as another one"] += not is_honest
            if is_honest:
                rights.findings.append(f"{user} could not authenticate again: {error.message}")
        raise
    if not is_honest:
        rights.findings.append(f"{user} became the administrator")
    rights.states["authenticated again"] += 1


class AclWork:
    """An administrator, users at every node, and, in ZooKeeper mode, a tool."""

    def __init__(self, trial: Trial, *, is_guarded: bool = False, is_in_zookeeper: bool = False) -> None:
        self.rights = Rights(states=trial.states, findings=trial.result.findings)
        self.is_guarded = is_guarded
        self._is_in_zookeeper = is_in_zookeeper
        self._trial = trial

    async def prepare(self) -> None:
        """All nodes serve."""
        now = asyncio.get_running_loop().time
        for node in self._trial.nodes:
            node.on_kill = lambda node=node: self.rights.kills.setdefault(node.node, []).append(now())  # type: ignore[misc]
        await started(self._trial.nodes)

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        trial, rights, simulation = self._trial, self.rights, self._trial.simulation
        admin = SimClient(simulation, "admin", trial.nodes[0].bootstrap, request_timeout_ms=5000)
        tasks = [admin.machine.run(_administer(simulation, admin, rights, trial.is_over, self.is_guarded))]
        for user in USERS:
            client = SimClient(simulation, user, trial.nodes[0].bootstrap)
            tasks += [
                client.machine.run(_probe(simulation, client, user, node.node, rights, trial.is_over, self.is_guarded))
                for node in trial.nodes
            ]
        if self._is_in_zookeeper:
            tasks.append(write_beside(simulation, service_of(trial.nodes), rights.topics.values(), trial.is_over, rights.states))
        return tasks


def _work_of(trial: Trial) -> AclWork:
    assert isinstance(trial.work, AclWork)
    return trial.work


def guarded_content(trial: Trial) -> Mapping[str, int]:
    """What a run over SASL_SSL has too little of."""
    had = {
        "elections": sum(event["event"] == "controller_active" for event in trial.events),
        "changes": trial.states["changes"],
        "authenticated again": trial.states["authenticated again"],
    }
    return {name: count for name, count in had.items() if count < GUARDED_CONTENT[name]}


def nodes_with_acls(simulation: Simulation, *, is_guarded: bool = False, is_in_zookeeper: bool = False) -> list[QuorumNode]:
    super_users = ";".join(["User:admin", "User:node", *(f"User:node-{node}" for node in range(1, NODES + 1))])
    given = SECURED | {"super.users": super_users}
    if is_in_zookeeper:
        return list(nodes_in_zookeeper(simulation, given | {"authorizer.class.name": IN_ZOOKEEPER}))
    return [QuorumNode(simulation, node, given | (properties(node) if is_guarded else {})) for node in range(1, NODES + 1)]


def known(trial: Trial) -> AbstractContextManager[None]:
    return known_by_host()


async def rights_are_enforced(trial: Trial) -> list[str]:
    """In the end all have the ACLs of the newest image, as tables and as records."""
    async with asyncio.timeout(HEAL_SECONDS):
        while len({node.broker.image.end_offset for node in trial.nodes if node.broker is not None}) > 1:
            await asyncio.sleep(0.5)
    images = [node.broker.image for node in trial.nodes if node.broker is not None]
    differ = any(image.acls != images[0].acls or image.acl_tables != images[0].acl_tables for image in images)
    _work_of(trial).rights.judge()
    return ["the nodes do not agree on the ACLs of one offset"] if differ else []


async def znodes_have_them(trial: Trial) -> list[str]:
    return await other_than_in_znodes(trial.nodes)
