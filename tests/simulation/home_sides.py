"""One cluster of two that are compared: its home is a quorum, or ZooKeeper. What it answers, and all of it that can be seen.

What differs between any two clusters is left out or named alike: ids, times, which node is the controller.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from tests.broker.principals import until
from tests.simulation.failing_disks import DIRECTORIES
from tests.simulation.quorum_nodes import NODES, QuorumNode, started
from tests.simulation.zookeeper_nodes import ZookeeperNode

from ottla.client.cluster import KEY_TYPE_GROUP, Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.delete_groups import DeleteGroupsRequest
from ottla.messages.delete_records import DeleteRecordsRequest
from ottla.messages.describe_acls import DescribeAclsRequest
from ottla.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla.messages.describe_cluster import DescribeClusterRequest
from ottla.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from ottla.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.messages.list_config_resources import ListConfigResourcesRequest
from ottla.messages.list_groups import ListGroupsRequest
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.messages.metadata import MetadataRequest, MetadataResponse
from ottla.messages.offset_commit import OffsetCommitRequest
from ottla.messages.offset_delete import OffsetDeleteRequest
from ottla.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.messages.registry import API_OF_REQUEST
from ottla.metadata.image import ClusterImage
from ottla.metadata.znode_writer import IMPLIED_FEATURES
from ottla.sim.cluster import SimClient, Simulation
from ottla.sim.zookeeper import SimZooKeeper
from ottla.wire.schema import Request

T = TypeVar("T")
NODE_IDS: Final = tuple(range(1, NODES + 1))
ASK_MS: Final = 40_000
PROPERTIES: Final = {
    "log.dirs": ",".join(DIRECTORIES),
    "min.insync.replicas": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "super.users": "User:admin;" + ";".join(f"User:node-{node}" for node in NODE_IDS),
    "delegation.token.secret.key": "secret",
}
AUTHORIZERS: Final = {
    True: "kafka.security.authorizer.AclAuthorizer",
    False: "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
VARYING: Final = frozenset(
    {
        *("throttle_time_ms", "error_message", "documentation", "topic_id", "controller_id", "cluster_id", "producer_id"),
        *("token_id", "hmac", "total_bytes", "usable_bytes", "partition_size", "issue_timestamp", "issue_timestamp_ms", "expiry_timestamp"),
        *("expiry_timestamp_ms", "max_timestamp", "max_timestamp_ms"),
    }
)
OF_ONE_HOME: Final = frozenset(
    {
        *("process.roles", "controller.quorum.voters", "controller.listener.names", "listeners", "advertised.listeners", "node.id"),
        *("zookeeper.connect", "zookeeper.session.timeout.ms", "zookeeper.connection.timeout.ms", "ottla.zookeeper.request.bytes.max"),
        *("broker.id", "authorizer.class.name", "metadata.log.max.record.bytes.between.snapshots", "log.dirs"),
    }
)
"""Keys that the two clusters were given different values of."""
NOT_YET: Final = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Side:
    """Three nodes, and the client of an administrator."""

    def __init__(self, seed: int, *, in_zookeeper: bool, properties: Mapping[str, str] = {}) -> None:
        self.simulation = Simulation(seed)
        self.in_zookeeper = in_zookeeper
        given = PROPERTIES | {"authorizer.class.name": AUTHORIZERS[in_zookeeper]} | dict(properties)
        self.service = SimZooKeeper(self.simulation.random("zookeeper"), delay_ms_max=5)
        self.nodes = [
            ZookeeperNode(self.simulation, node, self.service, given) if in_zookeeper else QuorumNode(self.simulation, node, given)
            for node in NODE_IDS
        ]
        self.client = SimClient(self.simulation, "admin", ",".join(node.bootstrap for node in self.nodes), request_timeout_ms=ASK_MS)
        self.cluster: Cluster = self.client.cluster()
        self._topic_ids: dict[str, bytes] = {}
        self._hmacs: list[bytes] = []

    def __str__(self) -> str:
        return "zookeeper" if self.in_zookeeper else "quorum"

    async def start(self) -> None:
        for node in self.nodes:
            await node.format(IMPLIED_FEATURES)  # those that a cluster in ZooKeeper has
            node.begin()
        await started(self.nodes)

    @property
    def active(self) -> QuorumNode:
        """The node whose controller is the active one."""
        return next(node for node in self.nodes if node.broker is not None and node.broker.controller.is_active)

    # -- what requests name

    def topic_id(self, name: str) -> bytes:
        """The topic's; where there is none, one that no topic has."""
        return self._topic_ids.get(name, b"\1" * 16)

    def hmac(self, number: int) -> bytes:
        """That of the token that was made so many tokens ago."""
        return self._hmacs[-1 - number] if number < len(self._hmacs) else b"\1" * 64

    # -- asking

    async def ask(self, request: Request, node: int, version: int = 99) -> Any:
        """What is answered by that node, or by the one whose part it is; an error of the client is its name."""
        return await self.client.machine.run(self._ask(request, node, version))

    async def _ask(self, request: Request, node: int, version: int) -> Any:
        try:
            await self.cluster.refresh()
            self._topic_ids = {name: topic.topic_id for name, topic in (await self.cluster.all_topics()).items()}
            if isinstance(request, OffsetCommitRequest | OffsetDeleteRequest):
                node = await self._coordinator(request.group_id)
            elif isinstance(request, DeleteGroupsRequest):
                node = await self._coordinator(request.groups_names[0])
            elif isinstance(request, DeleteRecordsRequest | ListOffsetsRequest):
                node = await self._leader(request.topics[0].name, request.topics[0].partitions[0].partition_index) or node
            answer = await self._answer(request, node, version)
        except KafkaError as error:
            return f"client: {error.code.name}"
        if getattr(answer, "hmac", b"") and not answer.error_code:
            self._hmacs.append(answer.hmac)
        return answer

    async def _answer(self, request: Request, node: int, version: int) -> Any:
        api = API_OF_REQUEST[type(request)]

        async def once() -> Any:
            connection = await self.cluster.connection(node)
            answer: Any = await connection.ask(request, api.response, timeout_ms=ASK_MS, version_max=max(version, api.version_min))
            for code in set(codes(answer)) & NOT_YET:
                raise KafkaError(code)
            return answer

        return await self._once_ready(once)

    async def _coordinator(self, group: str) -> int:
        return await self._once_ready(lambda: self.cluster.coordinator(group, KEY_TYPE_GROUP))

    async def _once_ready(self, asked: Callable[[], Awaitable[T]]) -> T:
        """Asks until the coordinator has loaded what it needs, as clients do: after their pauses, for ``ASK_MS``."""
        deadline_ms = self.cluster.world.clock.monotonic_ms() + ASK_MS
        for attempt in itertools.count():
            try:
                return await asked()
            except KafkaError as error:
                if error.code not in NOT_YET:
                    raise
                await self.cluster.pause(attempt, deadline_ms, error)
        raise AssertionError("a pause beyond the deadline raises")

    async def reconnect(self) -> None:
        """The client begins anew: its connections to nodes that were killed are broken."""
        await self.client.machine.run(self.cluster.close())
        self.cluster = self.client.cluster()

    async def _leader(self, topic: str, index: int) -> int | None:
        found = (await self.cluster.all_topics()).get(topic)
        part = found.partitions.get(index) if found is not None else None
        return part.leader if part is not None and part.leader > 0 else None

    # -- what can be seen

    async def settled(self) -> None:
        """There is a controller; no partition is being moved, each has a leader, its replicas are in sync, and all nodes know so."""
        await until(lambda: self._is_noticed() and self._is_in_order())

    async def noticed(self) -> None:
        """There is a controller, and all nodes that run know which others do. Partitions may have no leader."""
        await until(self._is_noticed)

    @property
    def _images(self) -> list[ClusterImage]:
        return [node.broker.image for node in self.nodes if node.broker is not None]

    def _live(self) -> set[int]:
        return {node.node for node in self.nodes if node.broker is not None}

    def _is_noticed(self) -> bool:
        images, live = self._images, self._live()
        return (
            any(node.broker is not None and node.broker.controller.is_active for node in self.nodes)
            and all(image.end_offset == images[0].end_offset for image in images)
            and all(broker.is_fenced == (number not in live) for number, broker in images[0].brokers.items())
        )

    def _is_in_order(self) -> bool:
        live = self._live()
        parts = [part for topic in self._images[0].topics.values() for part in topic.partitions.values()]
        return all(
            not part.adding and not part.removing and set(part.isr) >= set(part.replicas) & live and part.leader in live for part in parts
        )

    async def seen(self) -> dict[str, Any]:
        """Everything that its administrator can see, by what was asked."""
        return await self.client.machine.run(self._seen())

    async def _seen(self) -> dict[str, Any]:
        await self.cluster.refresh()
        found: dict[str, Any] = {}
        node = min(self.cluster.nodes)
        metadata: MetadataResponse = await self._answer(MetadataRequest(None, False), node, 99)
        self._topic_ids = {topic.name or "": topic.topic_id for topic in metadata.topics}
        names = sorted(self._topic_ids)
        found["brokers"] = sorted(broker.node_id for broker in metadata.brokers)
        requests: dict[str, Request] = {
            "topics": MetadataRequest(None, False),
            "topics in parts": DescribeTopicPartitionsRequest([TopicRequest(name) for name in names]),
            "cluster": DescribeClusterRequest(),
            "moves": ListPartitionReassignmentsRequest(),
            "quotas": DescribeClientQuotasRequest(),
            "users": DescribeUserScramCredentialsRequest(None),
            "acls": DescribeAclsRequest(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY),
            "tokens": DescribeDelegationTokenRequest(None),
            "resources": ListConfigResourcesRequest(),
        }
        for what, request in requests.items():
            found[what] = plain(await self._answer(request, node, 99))
        described = [DescribeConfigsResource(2, name, None) for name in names] + [DescribeConfigsResource(4, "", None)]
        answer = await self._answer(DescribeConfigsRequest(described, True), node, 99)
        found["configs"] = configs(answer)
        for broker in sorted(self.cluster.nodes):
            own = [DescribeConfigsResource(4, str(broker), None), DescribeConfigsResource(8, str(broker), ["ottla.broker", "root"])]
            found[f"configs of {broker}"] = configs(await self._answer(DescribeConfigsRequest(own, True), broker, 99))
            found[f"directories of {broker}"] = directories(await self._answer(DescribeLogDirsRequest(None), broker, 99))
            found[f"groups of {broker}"] = plain(await self._answer(ListGroupsRequest(), broker, 99))
        found["groups"] = [group for broker in sorted(self.cluster.nodes) for group in found.pop(f"groups of {broker}")["groups"]]
        for topic in metadata.topics:
            for part in topic.partitions:
                for when in (-1, -2):
                    wanted = ListOffsetsTopic(topic.name or "", [ListOffsetsPartition(part.partition_index, -1, when)])
                    if not topic.is_internal and part.leader_id in self.cluster.nodes:
                        answer = await self._answer(ListOffsetsRequest(-1, 0, [wanted]), part.leader_id, 9)
                        found[f"{topic.name}-{part.partition_index} at {when}"] = plain(answer)
        for group in sorted(group["group_id"] for group in found["groups"]):
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])
            found[f"offsets of {group}"] = plain(await self._answer(asked, await self._coordinator(group), 9))
        return found


def plain(answer: Any) -> Any:
    """The answer without what varies; lists of things that have no order are in one."""
    return _plain(msgspec.to_builtins(answer))


def _plain(found: Any) -> Any:
    if isinstance(found, dict):
        if found.get("is_internal"):  # nobody says where its replicas are
            found = {key: value for key, value in found.items() if key != "partitions"} | {"count": len(found["partitions"])}
        made = {key: _plain(value) for key, value in found.items() if key not in VARYING}
        return made | {"isr_nodes": sorted(made["isr_nodes"])} if "isr_nodes" in made else made  # in the order in which they came
    if isinstance(found, list | tuple):
        parts = [_plain(one) for one in found]
        return sorted(parts, key=repr) if parts and isinstance(parts[0], dict) else parts
    return found


def codes(answer: Any) -> list[int]:
    """All error codes in it."""
    return list(_codes(msgspec.to_builtins(answer)))


def _codes(found: Any) -> Iterator[int]:
    if isinstance(found, dict):
        yield from (value for key, value in found.items() if key == "error_code")
        found = [*found.values()]
    for inner in found if isinstance(found, list) else ():
        yield from _codes(inner)


def configs(answer: Any) -> Any:
    """What both homes have."""
    return {
        (result.resource_type, result.resource_name): {
            "error": result.error_code,
            **{one.name: plain(one) for one in result.configs if one.name not in OF_ONE_HOME},
        }
        for result in answer.results
    }


def directories(answer: Any) -> Any:
    """Which replicas there are; in which directory of two is the broker's choice."""
    return sorted(
        (topic.name, part.partition_index, part.is_future_key)
        for result in answer.results
        for topic in result.topics
        for part in topic.partitions
        if not topic.name.startswith("__")
    )


def differences(left: Any, right: Any) -> list[str]:
    """Each place where they differ, with what is there."""
    return _differences(left, right, "")


def _differences(left: Any, right: Any, path: str) -> list[str]:
    if type(left) is type(right) and isinstance(left, dict):
        keys = sorted({*left, *right}, key=repr)
        return [text for key in keys for text in _differences(left.get(key, "-"), right.get(key, "-"), f"{path}/{key}")]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            text for index, (one, other) in enumerate(zip(left, right, strict=True)) for text in _differences(one, other, f"{path}/{index}")
        ]
    return [] if left == right else [f"{path}: {left!r} in a quorum, {right!r} in ZooKeeper"]
