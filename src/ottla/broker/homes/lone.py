"""The home of a lone broker: a metadata log with one voter, this node, which joins itself.

It decides for itself, and is never fenced. No other node can join it, so nothing is seen of others, asked of them, or fetched from them.
Source: KIP-500, KIP-595.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.controller.membership import Membership
from ottla.broker.handlers import SERVICES
from ottla.broker.home import Basis, Core, Life
from ottla.broker.homes.offline_reports import OfflineReports
from ottla.broker.homes.own_broker import fail_together, open_replica, own_broker
from ottla.broker.liveness.callers import Callers
from ottla.broker.liveness.evidence import Evidence
from ottla.broker.liveness.failing_brokers import FailingBrokers
from ottla.broker.log_directories import LogDirectories
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.metadata.replica import MetadataReplica
from ottla.broker.part import Part
from ottla.broker.requests.gate import Forward
from ottla.broker.requests.listeners import controller_listeners, listeners
from ottla.consensus.quorum import Quorum
from ottla.consensus.settings import QuorumSettings
from ottla.consensus.voters import VoterSet
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.wire.schema import ZERO_UUID


class LoneHome:
    """A ``Home``."""

    def __init__(self, basis: Basis, directories: LogDirectories, metadata: MetadataReplica) -> None:
        self._basis = basis
        self.directories = directories
        self.metadata = metadata
        self.services = SERVICES
        self.voters: Mapping[int, tuple[str, int]] = {}
        self.links: Sequence[Part] = (metadata,)
        self.last: Sequence[Part] = ()
        self.callers = Callers()
        self.failing = FailingBrokers(basis.world)
        self.to_brokers = basis.world
        self.evidence = Evidence()
        self.remote = None
        self.replicates = False
        self.unheard_ms = 0  # it has the newest image

    @classmethod
    async def open(cls, basis: Basis) -> LoneHome:
        directories = await LogDirectories.open(basis.world, basis.config, basis.failure, basis.config["cluster.id"])
        voters = VoterSet({basis.config.node_id: ZERO_UUID})
        settings = QuorumSettings(basis.config.node_id, voters, cluster_id=directories.cluster_id)
        return cls(basis, directories, await open_replica(basis, directories, settings, None))

    @property
    def quorum(self) -> Quorum:
        return self.metadata.quorum

    @property
    def shown_controller_id(self) -> int:
        return -1

    @property
    def knows_no_controller(self) -> bool:
        return False

    def others(self) -> Mapping[int, BrokerImage]:
        return {}

    def is_known(self, image: ClusterImage) -> bool:
        """True always: there is no other process that it could name."""
        return True

    def forward(self, publisher: Publisher) -> Forward | None:
        return None

    def membership(self, controller: ActiveController) -> Membership:
        """Returns the membership: brokers that joined this one when they could, if any, have sessions; this one has none."""
        cluster_id = self.directories.cluster_id
        return Membership(self._basis.world, self._basis.config, controller, cluster_id, self.evidence, is_own_silent=True)

    def life(self, core: Core) -> LoneLife:
        return LoneLife(self._basis, self, core)


class LoneLife(Life):
    """The broker is registered, and in the image, before clients are let in."""

    def __init__(self, basis: Basis, home: LoneHome, core: Core) -> None:
        self._basis = basis
        self._home = home
        self._core = core
        fail_together(home.metadata, home.directories, core.partitions)
        self._reports = OfflineReports(basis.world.timers, basis.config.node_id, core.partitions.is_offline, core.controller.decide)

    async def start(self) -> None:
        config, core, home = self._basis.config, self._core, self._home
        home.metadata.begin()
        await self._basis.failure.unless(core.controller.active())
        await core.publisher.catch_up()
        await core.partitions.set_strays_aside()
        await core.gate.bind([*listeners(config), *controller_listeners(config)])
        await core.controller.activate()
        incarnation_id = self._basis.world.random.getrandbits(128).to_bytes(16, "big")
        broker_epoch, bound = home.metadata.draft.end_offset, core.gate.addresses
        own = own_broker(config, home.directories, bound, broker_epoch=broker_epoch, incarnation_id=incarnation_id)
        await core.controller.register_broker(own)
        await self._reports.begin()

    def on_offline(self) -> None:
        self._reports.on_offline()

    async def stop(self) -> None:
        await self._reports.stop()
