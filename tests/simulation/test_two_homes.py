"""The same requests to a cluster in a quorum and to one in ZooKeeper: the same error codes, and the same is seen afterwards.

``OTTLA_SEEDS`` programs are tried. What may differ is in ``test_these_alone_differ``, because it differs in Kafka 3.9, too.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from typing import Final

import pytest
import structlog
from tests.broker.principals import known_by_host, until
from tests.simulation.home_requests import BROKERS, Requests
from tests.simulation.home_sides import Side, codes, differences, plain
from tests.simulation.quorum_nodes import started

from ottla.broker.requests.listener_security import Protocol
from ottla.broker.requests.threshold import Threshold
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode
from ottla.messages import alter_client_quotas as quotas
from ottla.messages import incremental_alter_configs as changing
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.messages.create_partitions import CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic
from ottla.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.messages.describe_quorum import DescribeQuorumRequest
from ottla.messages.elect_leaders import ElectLeadersRequest
from ottla.messages.unregister_broker import UnregisterBrokerRequest
from ottla.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.metadata.image import RESOURCE_GROUP, USER
from ottla.sim.loop import run
from ottla.wire.schema import Request

SEEDS: Final = int(os.environ.get("OTTLA_SEEDS", "0")) or 2
STEPS: Final = 18
LOOK_EVERY: Final = 6
AWAY_SECONDS: Final = 30
PACE_SECONDS: Final = 1
TIMEOUT_MS: Final = 30_000
PRODUCE_SECONDS_MAX: Final = 2.0
ANSWERS: Final = {ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.TOPIC_ALREADY_EXISTS}
"""A topic may exist although the answer of ZooKeeper was lost: then the next controller says so."""


@pytest.fixture(autouse=True)
def _users() -> Iterator[None]:
    """Clients are the users that are named as their hosts; tokens are for authenticated ones, so the listeners say that they are."""
    with structlog.testing.capture_logs(), known_by_host(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(Threshold, "protocol_of", lambda self, listener: Protocol.SASL_PLAINTEXT)
        yield


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_homes_answer_the_same_and_keep_the_same(seed: int) -> None:
    async def main() -> None:
        sides = await _both(seed)
        rng = random.Random(f"{seed}/program")
        requests = Requests(rng)
        for number in range(STEPS):
            draw, node, version = requests.draw(), rng.choice(BROKERS), rng.choice((99, 99, rng.randrange(12)))
            asked = [draw(side) for side in sides]
            answers = [await side.ask(request, node, version) for side, request in zip(sides, asked, strict=True)]
            different = differences(*map(plain, answers))
            assert different == [], f"step {number}: {asked[0]} to {node} in version {version}: {answers}"
            for side in sides:
                await side.settled()
            if number == STEPS // 2:
                await _fail_over(sides)
            if number % LOOK_EVERY == LOOK_EVERY - 1:
                assert differences(*[await side.seen() for side in sides]) == [], f"after step {number}: {asked[0]}"
        await _fail_over(sides)
        assert differences(*[await side.seen() for side in sides]) == []

    run(main())


def test_these_alone_differ() -> None:
    """Kafka 3.9 has no place for them in ZooKeeper, or no such API there."""
    group = changing.AlterConfigsResource(RESOURCE_GROUP, "g", [changing.AlterableConfig("consumer.session.timeout.ms", 0, "50000")])
    acl = AclCreation(ResourceType.TOPIC, "a/b", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
    in_each: list[tuple[Request, object, object]] = [
        (DescribeQuorumRequest(), [ErrorCode.NONE], "client: UNSUPPORTED_VERSION"),
        (UnregisterBrokerRequest(9), [ErrorCode.BROKER_ID_NOT_REGISTERED], "client: UNSUPPORTED_VERSION"),
        (UpdateFeaturesRequest(TIMEOUT_MS, [FeatureUpdateKey("transaction.version", 2)]), [ErrorCode.NONE], [ErrorCode.INVALID_REQUEST]),
        (changing.IncrementalAlterConfigsRequest([group]), [ErrorCode.NONE], [ErrorCode.INVALID_REQUEST]),
        (CreateAclsRequest([acl]), [ErrorCode.NONE], [ErrorCode.INVALID_REQUEST]),
    ]

    async def main() -> None:
        for side in await _both(1):
            for request, in_quorum, in_zookeeper in in_each:
                answer = await side.ask(request, 1)
                found = answer if isinstance(answer, str) else codes(answer)
                assert found == (in_zookeeper if side.in_zookeeper else in_quorum), f"{side}: {request}"

    run(main())


def test_an_acl_without_a_host_leaves_its_resource_open_to_others() -> None:
    """Kafka takes it, in either home: it fits no client. The controller reads it again with the notice of its own change."""
    acls = [
        AclCreation(ResourceType.TOPIC, "a", PatternType.LITERAL, "User:alice", host, Operation.READ, Permission.DENY)
        for host in ("", "::1")
    ]

    async def main() -> None:
        sides = await _both(1)
        for acl in acls:
            answers = [await side.ask(CreateAclsRequest([acl]), 1) for side in sides]
            assert [codes(answer) for answer in answers] == [[ErrorCode.NONE]] * 2
        await _fail_over(sides)
        assert differences(*[await side.seen() for side in sides]) == []

    run(main())


def test_a_topic_may_be_assigned_to_a_broker_that_is_down() -> None:
    """As in Kafka, in either home; it has its replica when it returns. Kafka 3.9 in ZooKeeper mode adds no partitions there."""
    created = CreateTopicsRequest([CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [1, 3])])], TIMEOUT_MS)
    unknown = CreateTopicsRequest([CreatableTopic("u", -1, -1, [CreatableReplicaAssignment(0, [1, 9])])], TIMEOUT_MS)
    grown = CreatePartitionsRequest([CreatePartitionsTopic("t", 2, [CreatePartitionsAssignment([1, 3])])], TIMEOUT_MS)

    async def main() -> None:
        sides = await _both(1)
        for side in sides:
            side.nodes[2].kill(power_cut=False)
            await side.noticed()
            assert codes(await side.ask(unknown, 1)) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
            assert codes(await side.ask(created, 1)) == [ErrorCode.NONE]
            refused = ErrorCode.INVALID_REPLICA_ASSIGNMENT if side.in_zookeeper else ErrorCode.NONE
            assert codes(await side.ask(grown, 1)) == [refused]
            side.nodes[2].begin()
            await started([side.nodes[2]])
            await side.settled()
            await side.reconnect()
            assert codes(await side.ask(grown, 1)) == [ErrorCode.NONE if side.in_zookeeper else ErrorCode.INVALID_PARTITIONS]
            await side.settled()
        assert differences(*[_without_epochs(await side.seen()) for side in sides]) == []

    run(main())


@pytest.mark.parametrize("trouble", ["away", "session expires", "answers are lost"])
def test_what_is_asked_in_trouble_is_done_or_refused_within_its_time(trouble: str) -> None:
    """ZooKeeper's. Afterwards the znodes say what the brokers do, data requests go on meanwhile, and the next change is made."""

    async def main() -> None:
        side = Side(3, in_zookeeper=True)
        await side.start()
        assert codes(await side.ask(_creating("a", "b"), 1)) == [ErrorCode.NONE] * 2
        await side.settled()
        loop = asyncio.get_running_loop()
        is_acknowledged, is_over = asyncio.Event(), asyncio.Event()
        producing = loop.create_task(side.client.machine.run(_produce(side, is_acknowledged, is_over)))
        await is_acknowledged.wait()
        entity = [quotas.EntityData(USER, "alice")]
        wanted: list[Request] = [
            _creating("c", "d"),
            quotas.AlterClientQuotasRequest([quotas.EntryData(entity, [quotas.OpData("producer_byte_rate", 1024.0)])]),
        ]
        for request in wanted[:1] if trouble == "away" else wanted:
            begun = loop.time()
            striking = loop.create_task(_strike(side, trouble))
            answer = await side.ask(request, side.active.node % len(BROKERS) + 1)
            assert loop.time() - begun <= TIMEOUT_MS / 1000 + 1
            assert set(codes(answer)) <= ANSWERS, answer
            await striking
            await side.settled()
        is_over.set()
        assert max(await producing) < PRODUCE_SECONDS_MAX
        before = await side.seen()
        assert not [path for path in side.service.tree.paths() if "/admin/delete_topics/" in path]
        await _fail_over([side])
        assert _without_epochs(await side.seen()) == _without_epochs(before)
        assert codes(await side.ask(_creating("e"), 1)) == [ErrorCode.NONE]

    run(main())


async def _produce(side: Side, is_acknowledged: asyncio.Event, is_over: asyncio.Event) -> list[float]:
    """How long each record took, in seconds."""
    cluster, loop, taken = side.client.cluster(), asyncio.get_running_loop(), list[float]()
    producer = Producer(cluster, ProducerSettings(acks="all", linger_ms=0))
    ending = asyncio.ensure_future(is_over.wait())
    while not ending.done():
        begun = loop.time()
        await producer.send_and_wait("a", b"record", partition=len(taken) % 2)
        taken.append(loop.time() - begun)
        is_acknowledged.set()
        await asyncio.wait({ending}, timeout=PACE_SECONDS)
    await producer.close()
    await cluster.close()
    return taken


def _creating(*names: str) -> CreateTopicsRequest:
    places = [CreatableReplicaAssignment(0, [1, 2, 3]), CreatableReplicaAssignment(1, [2, 3, 1])]
    return CreateTopicsRequest([CreatableTopic(name, -1, -1, places) for name in names], TIMEOUT_MS)


async def _strike(side: Side, trouble: str) -> None:
    """As soon as something is written; then all is well again."""
    service = side.service
    before = set(service.tree.paths())
    service.loses_answers = trouble == "answers are lost"
    await until(lambda: set(service.tree.paths()) != before)
    if trouble == "away":
        service.stop()
        await asyncio.sleep(AWAY_SECONDS)
        service.start()
    elif trouble == "session expires":
        for session_id in service.sessions_of(side.active.machine.name):
            service.expire(session_id)
    else:
        service.loses_answers = False
        for node in side.nodes:
            service.cut(node.machine.name)
            service.heal(node.machine.name)


def _without_epochs(found: object) -> object:
    """Each restart of a leader is another epoch."""
    if isinstance(found, dict):
        return {key: _without_epochs(value) for key, value in found.items() if key not in ("leader_epoch", "leader_id")}
    return [_without_epochs(one) for one in found] if isinstance(found, list) else found


async def _both(seed: int) -> list[Side]:
    sides = [Side(seed, in_zookeeper=False), Side(seed, in_zookeeper=True)]
    for side in sides:
        await side.start()
    return sides


async def _fail_over(sides: list[Side]) -> None:
    """The nodes whose controllers are active, of any side, are killed in each of them and started again; then preferred replicas lead."""
    for node in dict.fromkeys(side.active.node for side in sides):
        for side in sides:
            victim = side.nodes[node - 1]
            victim.kill(power_cut=False)
            await side.noticed()
            victim.begin()
            await started([victim])
            await side.settled()
            await side.reconnect()
    for side in sides:
        await side.ask(ElectLeadersRequest(0, None, TIMEOUT_MS), 1)
        await side.settled()
