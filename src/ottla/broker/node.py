"""A broker: opened, started, stopped.

Start: opens the node's home (log directories, metadata), makes the parts, and starts them in the order of their list; the last part lets
clients in. Stop: stops the parts in the opposite order, and writes the clean-shutdown mark. A crash is a stop without all of that; recovery
at the next start makes up for it.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla import __version__
from ottla.broker.assembly import Assembly, assemble
from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.failure import Failure
from ottla.broker.home import Basis
from ottla.broker.homes.choice import open_home
from ottla.broker.log_directories import LogDirectories
from ottla.broker.part import P
from ottla.broker.parts import Parts
from ottla.broker.replicas.mover import ReplicaMover
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.between_nodes import read_introductions
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.listener_security import admin_protocols, check_key_sets, read_tls, used_protocols
from ottla.broker.requests.router import Router
from ottla.broker.requests.throttling import Throttling
from ottla.broker.start_check import check_start
from ottla.broker.status import Status
from ottla.broker.tasks import eager
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.config import BrokerConfig
from ottla.errors import StorageError
from ottla.loggers import get_logger
from ottla.metadata.image import ClusterImage
from ottla.ports import World
from ottla.records.kernel import FORM

log = get_logger(__name__)


class Broker:
    """One node of a cluster of one or more. It is a ``neighbours.MetadataFollower``: it passes events of the metadata to its parts."""

    def __init__(self, world: World, config: BrokerConfig, on_failure: Callable[[], None] = lambda: None) -> None:
        """Makes a node that has not started. ``on_failure`` is called when it cannot go on."""
        self.world = world
        self.config = config
        self._failure = Failure(on_failure)
        self._made: Assembly | None = None
        self.has_started = False
        """Whether clients were let in: a start came to its end."""

    # -- what it is made of, once it has been put together

    @property
    def made(self) -> Assembly:
        assert self._made is not None, "the broker has found its home, and is made"
        return self._made

    def part(self, kind: type[P]) -> P:
        """Returns the one part of that kind; LookupError when there is none."""
        return self.made.list.find(kind)

    @property
    def parts(self) -> Parts:
        return self.made.parts

    @property
    def node_id(self) -> int:
        return self.config.node_id

    @property
    def cluster_id(self) -> str:
        return self.parts.cluster_id

    @property
    def directories(self) -> LogDirectories:
        return self.made.home.directories

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def controller(self) -> ActiveController:
        return self.parts.controller

    @property
    def partitions(self) -> PartitionStore:
        return self.parts.partitions

    @property
    def groups(self) -> GroupShards:
        return self.parts.groups

    @property
    def mover(self) -> ReplicaMover:
        return self.parts.mover

    @property
    def housekeeping(self) -> Housekeeping:
        return self.made.housekeeping

    @property
    def throttling(self) -> Throttling:
        return self.parts.throttling

    @property
    def gate(self) -> Gatekeeper:
        return self.parts.gate

    @property
    def router(self) -> Router:
        return self.gate.router

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Each listener's host and port, as bound."""
        return self.gate.addresses

    @property
    def is_made(self) -> bool:
        """Whether the node is put together, and has a status."""
        return self._made is not None

    @property
    def status(self) -> Status:
        """For the admin pages."""
        return Status(self.parts, self.router, self.gate, self.housekeeping)

    @property
    def start_step(self) -> str:
        """What a start has come to: the reason why clients are not let in yet."""
        from ottla.broker.tasks.waits import Waits  # which a lone broker does not need

        if self._made is None:
            return "its log directories and its metadata are being opened"
        waits = next((part.awaited for part in self._made.list if isinstance(part, Waits)), None)
        count = len(self.partitions.all())
        opened = f"{count} partition{'s'[: count != 1]} {'is' if count == 1 else 'are'} open, and others may be in recovery"
        return opened if waits is None else f"it waits for {waits}"

    @property
    def failure(self) -> str | None:
        """Why the broker cannot go on."""
        return self._failure.reason

    # -- life

    async def start(self) -> None:
        """Starts the node; clients are served when this returns. KafkaError or StorageError says what was wrong."""
        config = self.config
        log.info("broker_starting", version=__version__, log_dirs=config.log_dirs, configuration=config.shown())
        for name, hint in config.unknown.items():
            log.warning("config_unknown", key=name, did_you_mean=hint)
        roles, own = check_start(config)
        await read_tls(self.world, config, used_protocols(config, [listener.name for listener in own]) | admin_protocols(config))
        await check_key_sets(self.world, config, used_protocols(config, [listener.name for listener in own]))
        introductions = await read_introductions(self.world, config, roles)
        home = await open_home(Basis(self.world, config, roles, self, self._failure, introductions))
        self._made = made = await assemble(self.world, config, home, introductions)
        if self.failure is not None:
            raise StorageError(self.failure)
        await made.list.start()
        self.has_started = True
        log.info("broker_started", node_id=self.node_id, cluster_id=self.cluster_id, listeners=self.addresses, record_kernel=FORM)

    async def leave(self) -> None:
        """Hands over: other brokers lead this broker's partitions, where they can. It is fenced then, and still a voter if it was one."""
        await self.made.life.leave()

    async def stop(self) -> None:
        """Stops in order: others lead this broker's partitions, accepted records are on disk, and the next start trusts the files."""
        made = self.made
        await made.life.leave()
        log.info("broker_stopping", node_id=self.node_id)
        await made.list.stop()
        await made.home.directories.release(self.partitions.closed, made.life.broker_epoch)
        log.info("broker_stopped", node_id=self.node_id)

    # -- what happens to it

    def on_committed(self) -> None:
        eager.run(self.made.publisher.catch_up(), _published)

    def on_leader(self) -> None:
        self.made.list.on_controller()

    def on_active(self, epoch: int) -> None:
        self.made.list.on_active(epoch)

    def on_inactive(self) -> None:
        self.made.list.on_inactive()

    def on_fatal(self, reason: str, error: BaseException) -> None:
        self._failure.note(reason, error)


def _published(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("metadata_not_followed", exc_info=error)
