"""This broker's followers fetch from their leaders: from each over ``num.replica.fetchers`` connections.

Every partition belongs to one of them (``replica_fetcher.py``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial

from ottla.broker.liveness.failing_brokers import FailingBrokers
from ottla.broker.part import Part
from ottla.broker.peers.broker_peers import address_of
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.peers import Address, Peers, SetUp
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_fetcher import ReplicaFetcher
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices
from ottla.config import BrokerConfig
from ottla.loggers import get_logger
from ottla.ports import World
from ottla.wire.frame_memory import AnswerMemory

log = get_logger(__name__)


class ReplicaFetchers(Part):
    """``listener`` is the name of the one between brokers; where it is None, each broker's first is used."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        listener: str | None,
        broker_epoch: Callable[[], int],
        failing: FailingBrokers,
        store: PartitionStore,
    ) -> None:
        self._failing = failing
        self._world = world
        self._config = config
        self._listener = listener
        self._broker_epoch = broker_epoch
        self._store = store
        self._memory = AnswerMemory()
        self._connections: list[Peers] = []  # each of one number, to all leaders
        self._count: int = config["num.replica.fetchers"]
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}  # by leader and number
        self._of: dict[Partition, ReplicaFetcher] = {}
        self._is_closed = False

    def configure(self) -> None:
        if self._count != self._config["num.replica.fetchers"]:
            self._count = self._config["num.replica.fetchers"]
            eager.run(self._spread(), _spread)

    async def _spread(self) -> None:
        """Hands every partition to the fetcher that it belongs to now."""
        async for partition in Slices(self._world.clock).over(list(self._of)):
            if partition in self._of:
                self.on_role(partition)

    def on_role(self, partition: Partition) -> None:
        """Moves the partition to the fetcher of the leader that it names, or to none."""
        before = self._of.pop(partition, None)
        if before is not None:
            before.leave(partition)
        followed = partition.followed
        if followed is None or self._is_closed:
            return
        number = (zlib.crc32(partition.topic.encode()) + partition.index) % self._count
        fetcher = self._fetchers.get((followed.leader_id, number)) or self._fetcher(followed.leader_id, number)
        self._of[partition] = fetcher
        fetcher.join(partition)

    def _fetcher(self, leader: int, number: int) -> ReplicaFetcher:
        while len(self._connections) <= number:
            self._connections.append(self._connect())
        address, peers = partial(self._address, leader), self._connections[number]
        fetcher = ReplicaFetcher(
            self._world,
            self._config,
            peers,
            address,
            self._broker_epoch,
            self._store,
            on_lost=partial(self._failing.doubt, leader),
            on_answered=partial(self._failing.trust, leader),
            on_may_fetch=self._on_may_fetch,
        )
        self._fetchers[leader, number] = fetcher
        return fetcher

    def _on_may_fetch(self, partition: Partition) -> None:
        """Lets the partition's present fetcher ask for it: it had to wait when it joined, and does not see when that is over."""
        if (fetcher := self._of.get(partition)) is not None:
            fetcher.ask_for(partition)

    def _connect(self) -> Peers:
        config, buffer = self._config, "replica.socket.receive.buffer.bytes"
        set_up = SetUp.of(config, receive_buffer_bytes=config[buffer] if config.is_given(buffer) else -1)
        silence_ms_max: int = config["replica.socket.timeout.ms"]
        name = CallerName.of_node(config.node_id, "replica")
        return Peers(self._world, name, silence_ms_max=silence_ms_max, memory=self._memory, set_up=set_up)

    def _address(self, leader_id: int) -> Address | None:
        return address_of(self._store.replication.followed_brokers.get(leader_id), self._listener)

    async def stop(self) -> None:
        self._is_closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        for peers in self._connections:
            peers.close()


def _spread(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("replicas_not_spread", exc_info=error)
