"""What a node of several has beside a lone broker: its ways to the active controller, and what it sees of other nodes' processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.broker.controller.remote import RemoteController
from ottla.broker.home import Core
from ottla.broker.liveness.callers import Callers
from ottla.broker.liveness.evidence import Evidence
from ottla.broker.liveness.failing_brokers import FailingBrokers
from ottla.broker.liveness.sentinels import Sentinels
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.part import Part
from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.controller_channel import ControllerChannel
from ottla.broker.peers.introduction import Introductions
from ottla.broker.peers.peers import Address, Peers, SetUp
from ottla.broker.replicas.isr_requests import IsrRequests
from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
from ottla.broker.requests.forwarding import Forwarding
from ottla.broker.requests.gate import Forward
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.errors import KafkaError
from ottla.loggers import get_logger
from ottla.ports import World

log = get_logger(__name__)

ASK_MS_MAX: Final = 5_000
"""How long a controller may be silent before its connection is given up, where it answers at once."""


class Links(Part):
    """``leader_address`` gives where the active controller is asked; ``calls`` whether a node, as a controller, watches the broker here.

    ``deciding_address``, where it is another one, is where requests of clients go: none while an election runs.
    With ``watches`` this node watches the brokers itself.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        introductions: Introductions,
        leader_address: Callable[[], Address | None],
        *,
        deciding_address: Callable[[], Address | None] | None = None,
        calls: Callable[[int], bool],
        watches: bool,
    ) -> None:
        self._world = world
        self._config = config
        self.to_brokers: Final = introductions.brokers.over(world)
        to_controllers = introductions.controllers.over(world)
        node_id, set_up, timeout_ms = config.node_id, SetUp.of(config), config["request.timeout.ms"]
        self._controller_peers = Peers(to_controllers, CallerName.of_node(node_id, "broker"), silence_ms_max=ASK_MS_MAX, set_up=set_up)
        self._deciding_peers = Peers(to_controllers, CallerName.of_node(node_id, "forward"), silence_ms_max=timeout_ms, set_up=set_up)
        self.channel: Final = ControllerChannel(world, leader_address, self._controller_peers)
        # A controller may need long for what is asked here, and answers on one connection wait for each other.
        self._deciding: Final = ControllerChannel(world, deciding_address or leader_address, self._deciding_peers)
        self.remote: Final = RemoteController(self._deciding, config.node_id)
        self.failing: Final = FailingBrokers(world)
        self.callers: Final = Callers(calls)
        self.evidence: Final = (
            Sentinels(self.to_brokers, config.node_id, self.listener, self.callers, self.failing) if watches else Evidence()
        )

    @property
    def listener(self) -> str | None:
        """The listener on which brokers reach each other; None for the first of each."""
        name: str | None = self._config["inter.broker.listener.name"]
        return name.upper() if name else None

    def forward(self, publisher: Publisher) -> Forward:
        """Passes requests on to the active controller, and their answers back once this node shows what was decided."""
        return Forwarding(self._deciding, publisher.reached, wait_ms_max=self._config["request.timeout.ms"]).forward

    def replicating(self, core: Core, broker_epoch: Callable[[], int]) -> tuple[Part, ...]:
        """Returns the parts that fetch partitions that others lead, and that ask for the ISRs that leaders here find."""
        partitions = core.partitions
        fetchers = ReplicaFetchers(self.to_brokers, self._config, self.listener, broker_epoch, self.failing, partitions)
        isr_requests = IsrRequests(self._world, partitions.replication, self.channel, broker_epoch, partitions.all)
        isr_requests.begin()
        return fetchers, isr_requests

    def on_controller(self) -> None:
        self.channel.on_controller()
        self._deciding.on_controller()

    async def stop(self) -> None:
        self._controller_peers.close()
        self._deciding_peers.close()


def activate(core: Core) -> None:
    """Gives a new cluster its features. This node's controller has just become the active one."""
    eager.run(core.controller.activate(), _activated)


def _activated(_: None, error: BaseException | None) -> None:
    if isinstance(error, KafkaError):  # it was not for long
        log.info("controller_not_activated", reason=error.message)
    elif error is not None:
        log.error("controller_not_activated", exc_info=error)
