"""The cluster as a client knows it: who leads what, and a connection to each broker.

Bootstrap addresses are tried in turn, each with a head start; afterwards any broker that is known may be asked.
Concurrent needs for metadata share one request. Source: the Kafka protocol guide, "Partitioning and bootstrapping".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from ottla.client.background import background
from ottla.client.backoff import Backoff
from ottla.client.bootstrap import parse_bootstrap
from ottla.client.call_limit import waiting_for
from ottla.client.cluster_metadata import Node, PartitionMetadata, TopicMetadata
from ottla.client.connection import ClientConnection
from ottla.client.head_start import first_of
from ottla.client.out_of_reach import BrokerOutOfReach
from ottla.client.questions import ask_any
from ottla.client.security import ClientSecurity
from ottla.client.usable import closed
from ottla.client.watch import OnConnectivity, Outage, watch
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.ports import World
from ottla.types import TopicPartition, topic_text
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
METADATA_MAX_AGE_MS: Final = 300_000
KEY_TYPE_GROUP: Final = 0
KEY_TYPE_TRANSACTION: Final = 1
_RIGHTS: Final = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "a member needs READ on it, and a user that describes it DESCRIBE",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "a producer needs WRITE on it, and a user that describes it DESCRIBE",
}
"""Refused questions for a coordinator, by what is missing: there may well be one."""

# A broker answers the requests of one connection in their order. Those that it may hold back have connections of their own.
MAIN_LANE: Final = ""
FETCH_LANE: Final = "fetch"
BRIEF_FETCH_LANE: Final = "brief-fetch"
JOIN_LANE: Final = "join"
TRANSACTION_LANE: Final = "transaction"
QUESTION_LANE: Final = "question"
"""For a question that comes late where it is behind others: a batch waits at its leader while a follower hangs."""


class NodeEndpoint(Protocol):
    """A broker's address, as answers list it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Cluster:
    """Shared by a producer, a consumer or an admin; closed by its owner."""

    def __init__(
        self,
        world: World,
        bootstrap: str | Sequence[str],
        *,
        client_id: str,
        request_timeout_ms: int = 30_000,
        connect_timeout_ms: int = 10_000,
        metadata_max_age_ms: int = METADATA_MAX_AGE_MS,
        security: ClientSecurity | None = None,
    ) -> None:
        self.world = world
        self._security = ClientSecurity() if security is None else security
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.backoff = Backoff()
        self._connect_timeout_ms = min(connect_timeout_ms, request_timeout_ms)  # a broker answers before a connection is open
        self._bootstrap = parse_bootstrap(bootstrap)
        self.bootstrap_text: Final = ",".join(f"{host}:{port}" for host, port in self._bootstrap)
        self._silent: set[str] = set()  # addresses of brokers that have left a request unanswered, and have answered none since
        self._outage = Outage(world.clock, self.bootstrap_text)
        self._connections: dict[tuple[int, str], ClientConnection] = {}  # by node and lane
        self._retired: list[ClientConnection] = []  # others were made in their place, before their sessions end
        self._connecting: dict[tuple[int, str], asyncio.Task[ClientConnection]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self.cluster_id: str | None = None
        self.is_closed = False
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.topic_errors: dict[str, int] = {}
        self.topic_names: dict[bytes, str] = {}
        self._wanted: set[str] = set()
        self.metadata_max_age_ms = metadata_max_age_ms
        self._refreshed_ms = -metadata_max_age_ms
        self._features_ms = world.clock.monotonic_ms()

    def watch(self, on_connectivity: OnConnectivity) -> None:
        """Calls this when the last broker is out of reach, and when one can be reached again."""
        self._outage.is_watched = True
        self._watching = background(watch(self.any_connection, on_connectivity))

    async def close(self) -> None:
        """Closes the connections; nothing runs from now on."""
        self.is_closed = True
        running = [task for task in (self._refreshing, self._watching, *self._connecting.values()) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for connection in (*self._connections.values(), *self._retired):
            connection.close()
        self._connections.clear()
        self._retired.clear()

    # Connections

    def open_connection(self, node_id: int, lane: str = MAIN_LANE) -> ClientConnection | None:
        """Returns the connection to the broker, if there is one now."""
        found = self._connections.get((node_id, lane))
        return None if found is None or found.is_retired else found

    async def connection(self, node_id: int, lane: str = MAIN_LANE) -> ClientConnection:
        """Returns an open connection to the broker; concurrent callers share one attempt."""
        found = self.open_connection(node_id, lane)
        if found is not None:
            return found
        if self.is_closed:
            raise closed()
        task = self._connecting.get((node_id, lane))
        if task is None:
            node = self.nodes.get(node_id)
            if node is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not in the metadata")
            task = self._connecting[node_id, lane] = background(self._connect(node))
            task.add_done_callback(lambda done: self._connected((node_id, lane), done))
        with waiting_for(f"a connection to broker {node_id}"):
            return await asyncio.shield(task)

    async def _connect(self, node: Node) -> ClientConnection:
        limit_ms, security = self._connect_timeout_ms, self._security
        try:
            return await ClientConnection.connect(
                self.world, node.host, node.port, client_id=self.client_id, timeout_ms=limit_ms, security=security, silent=self._silent
            )
        except KafkaError as error:
            if node.node_id < 0 or error.code != ErrorCode.NETWORK_EXCEPTION:
                raise
            raise BrokerOutOfReach(node.node_id, error) from error

    def _connected(self, place: tuple[int, str], task: asyncio.Task[ClientConnection]) -> None:
        self._connecting.pop(place, None)
        if not task.cancelled() and task.exception() is None:
            self._replace(place, task.result())

    def _replace(self, place: tuple[int, str], connection: ClientConnection) -> None:
        """Replaces the connection; the old one is kept while what was asked on it may still be answered."""
        before = self._connections.get(place)
        self._retired = [old for old in (*self._retired, before) if old is not None and not old.is_closed]
        self._connections[place] = connection

    async def any_connection(self, asked: Collection[str] = ()) -> ClientConnection:
        """Returns a connection to any broker that answers: the least busy of those that are open, else that of the first that lets one come
        about, of the known nodes and the bootstrap addresses. Those that have left a request unanswered are the last, after
        them those whose addresses are in ``asked``. Where some are, nothing else waits for an answer on the connection.
        """
        opened = [found for (_, lane), found in self._connections.items() if lane in (MAIN_LANE, QUESTION_LANE) and not found.is_retired]
        answering = [found for found in opened if found.address not in self._silent and found.address not in asked]
        if asked:
            answering = [found for found in answering if not found.in_flight_count]
        if answering:
            return min(answering, key=lambda found: found.in_flight_count)
        with self._outage.attempt(), waiting_for(f"a connection to a broker of {self._outage.addresses}"):
            return await self._reach(asked)

    async def _reach(self, asked: Collection[str]) -> ClientConnection:
        if self.is_closed:
            raise closed()
        first = {-1 - index: Node(-1 - index, host, port) for index, (host, port) in enumerate(self._bootstrap)}
        nodes = [*map(self.nodes.__getitem__, sorted(self.nodes)), *first.values()]
        nodes.sort(key=lambda node: [f"{node.host}:{node.port}" in addresses for addresses in (asked, self._silent)])
        attempts = [
            partial(self._connect, node)
            if node.node_id in first
            else partial(self.connection, node.node_id, QUESTION_LANE if asked and f"{node.host}:{node.port}" not in asked else MAIN_LANE)
            for node in nodes
        ]
        try:
            index, opened = await first_of(attempts, dispose=self._dispose)
        except BrokerOutOfReach as error:  # no broker is, so its id is no news
            raise error.reason from None
        if nodes[index].node_id in first:
            self._replace((nodes[index].node_id, MAIN_LANE), opened)
        return opened

    def _dispose(self, connection: ClientConnection) -> None:
        """Closes a connection that came too late, unless it is one that others may use."""
        if connection not in self._connections.values():
            connection.close()

    async def ask(self, node_id: int | None, request: Request, response_type: type[R], *, timeout_ms: int | None = None) -> R:
        """Returns the broker's response; when ``node_id`` is None, any broker's: a question that one leaves unanswered is asked another."""
        wait_ms = self.request_timeout_ms if timeout_ms is None else timeout_ms
        if node_id is not None:
            return await (await self.connection(node_id)).ask(request, response_type, timeout_ms=wait_ms)
        return await ask_any(self, request, response_type, timeout_ms=wait_ms)

    # Metadata

    async def refresh(self, topics: Iterable[str] = (), *, allow_create: bool = False) -> None:
        """Gets newer metadata of all topics in use, and of these. Concurrent calls share one request.

        With ``allow_create`` a request asks for these alone, and brokers that create topics by themselves create those that are missing.
        """
        named = set(topics)
        fresh = named - self._wanted
        self._wanted |= fresh
        if allow_create:
            await self._refresh(sorted(named), allow_create=True)
            return
        if self._refreshing is None or fresh:
            task = self._refreshing = background(self._refresh(sorted(self._wanted)))
            task.add_done_callback(self._refreshed)
        with waiting_for("metadata"):
            await asyncio.shield(self._refreshing)

    def forget(self, topics: Iterable[str]) -> None:
        """Forgets the topics, which are no longer in use."""
        for name in topics:
            self._wanted.discard(name)
            self.topic_errors.pop(name, None)
            known = self.topics.pop(name, None)
            if known is not None:
                self.topic_names.pop(known.topic_id, None)

    def retain(self, topics: Iterable[str]) -> None:
        """Forgets all topics but these."""
        self.forget(self._wanted - set(topics))

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        if self._refreshing is task:
            self._refreshing = None
        if not task.cancelled():
            task.exception()

    async def _refresh(self, names: list[str], *, allow_create: bool = False) -> None:
        wanted = [MetadataRequestTopic(name=name) for name in names]
        response = await self.ask(None, MetadataRequest(wanted, allow_create), MetadataResponse)
        self._take(response, [name for name in names if name in self._wanted])
        if self._wanted <= set(names):
            self._refreshed_ms = self.world.clock.monotonic_ms()

    async def all_topics(self) -> dict[str, TopicMetadata]:
        """Returns every topic of the cluster, by name; not kept."""
        response = await self.ask(None, MetadataRequest(None, False), MetadataResponse)
        self._take_nodes(response)
        return {name: topic for name, topic, _ in map(_topic, response.topics) if name is not None}

    def _take(self, response: MetadataResponse, names: list[str]) -> None:
        self._take_nodes(response)
        for name in names:
            self.topic_errors.pop(name, None)
        for answer in response.topics:
            found, topic, code = _topic(answer)
            if found is None or found not in self._wanted:  # forgotten while the request was out
                continue
            before = self.topics.pop(found, None)
            if before is not None:
                self.topic_names.pop(before.topic_id, None)
            if code:
                self.topic_errors[found] = code
            else:
                if before is not None and before.topic_id == topic.topic_id:
                    topic.keep_newer(before)
                self.topics[found] = topic
                self.topic_names[topic.topic_id] = found

    def _take_nodes(self, response: MetadataResponse) -> None:
        if not response.brokers:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no brokers yet")
        self.cluster_id, self.controller_id = response.cluster_id, response.controller_id
        nodes = {broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers}
        self._leave_moved(nodes)
        self.nodes = nodes

    def _leave_moved(self, nodes: Mapping[int, Node]) -> None:
        """Closes connections to brokers that are elsewhere now."""
        moved = {node_id for node_id, node in nodes.items() if self.nodes.get(node_id, node) != node}
        for place in [place for place in self._connections if place[0] in moved]:
            self._connections.pop(place).close()

    # What answers say of leaders (KIP-951)

    def take_endpoints(self, endpoints: Iterable[NodeEndpoint]) -> None:
        """Takes the addresses of the brokers that an answer names as leaders."""
        nodes = {end.node_id: Node(end.node_id, end.host, end.port, end.rack) for end in endpoints}
        if nodes:
            self._leave_moved(nodes)
            self.nodes |= nodes

    def take_leader(self, partition: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Takes the partition's leader from an answer; False when that is no news, or that broker is not known."""
        topic = self.topics.get(partition.topic)
        known = topic.partitions.get(partition.partition) if topic is not None else None
        if known is None or leader_epoch <= known.leader_epoch or leader not in self.nodes:
            return False
        known.leader, known.leader_epoch = leader, leader_epoch
        return True

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Returns the newest known epoch; -1 without one."""
        topic = self.topics.get(partition.topic)
        known = topic.partitions.get(partition.partition) if topic is not None else None
        return -1 if known is None else known.leader_epoch

    def age_left_ms(self) -> int:
        """Returns how long the metadata of all topics in use may still be used; 0 when it should be refreshed."""
        return max(0, self._refreshed_ms + self.metadata_max_age_ms - self.world.clock.monotonic_ms())

    async def topic(
        self, name: str, *, deadline_ms: int, allow_create: bool = False, on_wait: Callable[[], object] | None = None
    ) -> TopicMetadata:
        """Returns the topic, and waits for it to exist until ``deadline_ms`` of the monotonic clock; then KafkaError says why not.

        ``on_wait`` is called before each further try.
        """
        attempt = 0
        while True:
            found = self.topics.get(name)
            if found is not None and found.partitions:
                return found
            try:
                await self.refresh([name], allow_create=allow_create)
                code = self.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                problem = KafkaError(code, topic_text(name, is_absent=code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            except KafkaError as error:
                problem = error
            if name in self.topics:
                continue
            if not problem.is_transient:
                raise problem
            if on_wait is not None:
                on_wait()
            await self.pause(attempt, deadline_ms, problem)
            attempt += 1

    async def pause(self, attempt: int, deadline_ms: int, problem: KafkaError) -> None:
        """Waits before another try; raises ``problem`` when the deadline would pass meanwhile."""
        delay_ms = self.backoff.delay_ms(attempt, self.world)
        if self.world.clock.monotonic_ms() + delay_ms >= deadline_ms:
            raise problem
        with waiting_for(f"another try, after {problem}"):
            await asyncio.sleep(delay_ms / 1000)

    def leader(self, partition: TopicPartition) -> int | None:
        """Returns the leader by the last metadata; None when it is not known."""
        topic = self.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic else None
        return found.leader if found is not None and found.leader >= 0 else None

    async def coordinator(self, key: str, key_type: int = KEY_TYPE_GROUP) -> int:
        """Returns the node that coordinates the group, or the transactional id. KafkaError when the cluster cannot say."""
        request = FindCoordinatorRequest(key, key_type, [key])
        response = await self.ask(None, request, FindCoordinatorResponse)
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            what = "group" if key_type == KEY_TYPE_GROUP else "transactional id"
            right = _RIGHTS.get(ErrorCode(found.error_code))
            reason = f"no coordinator for {what} {key!r}" if right is None else f"{what} {key!r}: {right}"
            raise KafkaError(found.error_code, reason if right is not None else found.error_message or reason)
        self.nodes.setdefault(found.node_id, Node(found.node_id, found.host, found.port))
        return found.node_id

    async def renew_features(self, connection: ClientConnection) -> None:
        """Asks again what the connection's broker knows of the cluster's features, once in metadata.max.age.ms."""
        now_ms = self.world.clock.monotonic_ms()
        if now_ms - self._features_ms >= self.metadata_max_age_ms:
            self._features_ms = now_ms
            await connection.renew_versions(timeout_ms=self.request_timeout_ms)

    def finalized_level(self, feature: str) -> int:
        """Returns the feature's level by the newest of the brokers' answers; 0 without one."""
        known = [connection.features for connection in self._connections.values() if not connection.is_closed]
        return max(known, key=lambda features: features.epoch).levels.get(feature, 0) if known else 0


def _topic(answer: MetadataResponseTopic) -> tuple[str | None, TopicMetadata, int]:
    partitions = {
        found.partition_index: PartitionMetadata(found.leader_id, found.leader_epoch, found.replica_nodes, found.isr_nodes)
        for found in answer.partitions
    }
    return answer.name, TopicMetadata(answer.name or "", answer.topic_id, answer.is_internal, partitions), answer.error_code
