"""The metadata in ZooKeeper: this node's session, its broker's znode, and the controller, which it is or follows.

The broker that creates ``/controller``, an ephemeral znode, and raises ``/controller_epoch`` in the same request, is the controller. It
reads the znodes into an image and decides from there on (``reign.py``); the others fetch from it (``controller_following.py``). When its
reign ends for whatever reason but its own stop, it deletes ``/controller``, and the next one, which may be the same node, reads the znodes
again. A session that has expired is replaced by another one, in which everything starts over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.broker.homes.zookeeper.brokers import Registered, read_brokers
from ottla.broker.homes.zookeeper.controller_following import Following
from ottla.broker.homes.zookeeper.election import depose, depose_dead, elect, find_controller, find_epoch
from ottla.broker.homes.zookeeper.loading import Loader, cluster_id, make_persistent, security_paths
from ottla.broker.homes.zookeeper.notices import report_problems
from ottla.broker.homes.zookeeper.registration import Registration
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.served_log import EPOCH_SPAN, ServedLog
from ottla.broker.homes.zookeeper.serving import OnAnswer, Serving
from ottla.broker.homes.zookeeper.settings import ZookeeperSettings
from ottla.broker.homes.zookeeper.waiting import RETRY_SECONDS, despite_lost_connections, first_of, wait_for, while_controller
from ottla.broker.homes.zookeeper.written_topics import make_unborn
from ottla.broker.metadata.applied import AppliedImages, not_controller
from ottla.broker.metadata.neighbours import MetadataFollower
from ottla.broker.part import Part
from ottla.broker.peers.peers import Address, Peers
from ottla.config import BrokerConfig
from ottla.consensus.calls import Request
from ottla.coordination import Access, MultiFailedError, NoNodeError, Session, SessionExpiredError
from ottla.errors import DecodeError, ErrorCode, KafkaError, OttlaError
from ottla.loggers import get_logger
from ottla.metadata import znodes
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, ClusterImage
from ottla.metadata.znode_reader import Cluster, read_cluster
from ottla.metadata.znode_writer import IMPLIED_FEATURES, ZnodeWriter
from ottla.ports import World
from ottla.types import NO_LEADER
from ottla.wire.schema import Stored

log = get_logger(__name__)

UNREADABLE_SECONDS: Final = 2.0
"""Until a controller that could not read the znodes tries again."""

WhileActive = Callable[[Reign], Coroutine[Any, Any, None]]


class FoundCluster(NamedTuple):
    """A session in a cluster that has an id."""

    place: ZookeeperSettings
    session: Session
    cluster_id: str


async def find_cluster(world: World, config: BrokerConfig, new_cluster_id: str) -> FoundCluster:
    """Finds the cluster, and gives it the new id where it had none. KafkaError when ZooKeeper cannot be reached, or has another cluster."""
    place = ZookeeperSettings.of(config)

    async def prepare(session: Session) -> str:
        await make_persistent(session, place.acl_of, security_paths(config))
        return await cluster_id(session, new_cluster_id, place.acl_of)

    session, found = await place.begin(world, prepare)
    if config["cluster.id"] not in (None, found):
        await session.close()
        text = f"cluster.id={config['cluster.id']}, and the cluster in ZooKeeper at {place.servers} has the id {found}"
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, text)
    return FoundCluster(place, session, found)


class ZookeeperMetadata(Part):
    """A ``neighbours.MetadataStore``: at work after ``begin``."""

    def __init__(self, world: World, config: BrokerConfig, found: FoundCluster, peers: Peers, follower: MetadataFollower) -> None:
        place, session, cluster_id = found
        self._world = world
        self._place = place
        self._session = session
        self.cluster_id = cluster_id
        self._node_id = config.node_id
        listener: str | None = config["inter.broker.listener.name"]
        self._listener = listener.upper() if listener else None
        self._bytes_between_snapshots: int = config["metadata.log.max.record.bytes.between.snapshots"]
        self._served = ServedLog()
        self._applied = AppliedImages(self._served, EMPTY_IMAGE, self._on_change)
        self.images: Final = self._applied.images
        self._serving = Serving(world, self._served, cluster_id, lambda: self.is_active, lambda: (self.leader_id, self.epoch))
        self._following = Following(
            config.node_id, peers, self._applied, self._served, bytes_max=config["controller.quorum.fetch.max.bytes"]
        )  # fmt: skip
        self._follow_task: asyncio.Task[None] | None = None
        self._reign: Reign | None = None
        self._run_task: asyncio.Task[None] | None = None
        self._follower = follower
        self.leader_id = NO_LEADER
        self.epoch = -1
        """That of the controller."""
        self.leader_address: Address | None = None
        self._while_active: Sequence[WhileActive] = ()
        self.found: Cluster | None = None
        """What the active controller has read, with what others left incomplete."""
        self.registered: dict[int, Registered] = {}
        """The brokers' znodes, as the active controller knows them."""
        self.absent: set[int] = set()
        """Brokers that have no znode and have replicas, or had a znode since this node's controller became active."""

    # -- what is known

    @property
    def image(self) -> ClusterImage:
        """The newest committed image that this node has."""
        return self._applied.committed

    @property
    def draft(self) -> ClusterImage:
        """After every decision that this node has taken; while it is active."""
        return self._applied.draft

    @property
    def is_active(self) -> bool:
        return self._reign is not None

    @property
    def session(self) -> Session:
        """The newest one; it may be over."""
        return self._session

    def acl_of(self, path: str) -> Sequence[Access]:
        """Returns the access rights of a new znode."""
        return self._place.acl_of(path)

    @property
    def reign(self) -> Reign | None:
        """Of this node's controller, while it is active."""
        return self._reign

    @property
    def base_offset(self) -> int:
        """Where the log of the controller's epoch starts: this node's own, when it is active, though it may not be known yet who leads."""
        return (self.epoch if self._reign is None else self._reign.epoch) * EPOCH_SPAN

    def has_fetched(self, broker_id: int) -> bool:
        """True when the broker has fetched from this node's controller in this epoch."""
        return broker_id in self._serving.fetched_offsets

    async def first_image(self) -> ClusterImage:
        """Returns what a new cluster starts with: each level is implied."""
        return ClusterImage(features=IMPLIED_FEATURES)

    # -- life

    def registration(
        self, own: Callable[[], BrokerImage], *, leads_here: Callable[[], Awaitable[bool]], on_epoch: Callable[[int], None]
    ) -> Registration:
        """Returns this broker's registration, for ``begin``. ``own`` says where it is reached, once its listeners are bound.

        ``leads_here`` says whether that leads to this process.
        """
        wait_ms_max = 2 * self._place.session_timeout_ms
        return Registration(
            self._world, self._node_id, own, self._place.acl_of, leads_here=leads_here, wait_ms_max=wait_ms_max, on_epoch=on_epoch
        )

    def begin(self, registration: Registration, while_active: Sequence[WhileActive]) -> None:
        """Registers the broker. ``while_active`` is what its controller does beside its decisions, as long as it is the active one."""
        self._while_active = while_active
        self._run_task = asyncio.get_running_loop().create_task(self._run(registration))
        self._run_task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            reason = error.message if isinstance(error, KafkaError) else repr(error)
            log.error("zookeeper_home_failed", reason=reason, exc_info=not isinstance(error, OttlaError) and error)
            self._follower.on_fatal(f"the broker cannot stay in ZooKeeper: {reason}", error)

    async def stop(self) -> None:
        """Ends the session, and with it the broker's znode and, if it is this node's, that of the controller."""
        if self._run_task is not None:
            self._run_task.cancel()
            await asyncio.wait([self._run_task])
        await self._follow(None)
        await self._session.close()

    # -- deciding

    def append(self, records: Sequence[Stored]) -> int:
        """Decides the records, and returns where they end. ``committed`` waits for them. NOT_CONTROLLER unless this node is active."""
        if self._reign is None:
            raise not_controller()
        return self._reign.append(records)

    async def committed(self, end_offset: int | None = None) -> None:
        """Waits until what ends there, or all that was decided, is in ZooKeeper and in the image. NOT_CONTROLLER when that is not known."""
        await self._applied.reached(end_offset)

    # -- requests of other brokers

    def on_request(self, request: Request, on_answer: OnAnswer) -> OnAnswer:
        return self._serving.on_request(request, on_answer)

    def on_request_dropped(self, token: OnAnswer) -> None:
        self._serving.on_request_dropped(token)

    def _on_change(self) -> None:
        self._serving.grown()
        self._follower.on_committed()

    # -- sessions

    async def _run(self, registration: Registration) -> None:
        while True:
            try:
                await self._in_session(self._session, registration)
            except SessionExpiredError:
                log.warning("zookeeper_session_expired", session=hex(self._session.session_id))
            registration.lost()
            await self._know(NO_LEADER, -1, None)
            self._session = await self._place.session(self._world)
            log.info("zookeeper_session", session=hex(self._session.session_id))

    async def _in_session(self, session: Session, registration: Registration) -> None:
        """Returns never: SessionExpiredError, or what makes the broker fail."""
        expired = asyncio.Event()
        session.on_expired = expired.set
        session.on_connection = lambda is_connected: log.info("zookeeper_connection", is_connected=is_connected)
        registered = asyncio.Event()

        async def over() -> None:
            await expired.wait()
            raise SessionExpiredError("session")

        await first_of(
            despite_lost_connections(lambda: registration.keep(session, registered)),
            despite_lost_connections(lambda: self._rule_or_follow(session, registered)),
            over(),
        )

    async def _rule_or_follow(self, session: Session, registered: asyncio.Event) -> None:
        while True:
            await registered.wait()
            changed = asyncio.Event()
            if await session.exists(znodes.CONTROLLER, changed.set) is None:
                await self._know(NO_LEADER, -1, None)
                await self._try_to_rule(session)
                continue
            leader_id = await find_controller(session)
            if leader_id == NO_LEADER:  # an operator has damaged the znode, or it has just been deleted
                await changed.wait()
                continue
            if (found := await find_epoch(session, self._served.epoch, self._place.acl_of)) is None:
                continue
            if leader_id == self._node_id:  # of an earlier session or process, an unknown outcome, or a reign that has ended
                await depose(session, found.version)
                continue
            address = await self._address_of(session, leader_id)
            if address is None:  # its broker is about to register
                await wait_for(changed, RETRY_SECONDS)
                continue
            await self._know(leader_id, found.epoch, address)
            await changed.wait()

    async def _address_of(self, session: Session, broker_id: int) -> Address | None:
        try:
            data, _ = await session.get(znodes.broker_path(broker_id))
            ends = {end.listener: end for end in znodes.BrokerZnode.decode(data, broker_id).endpoints}
        except (NoNodeError, DecodeError):
            return None
        end = next(iter(ends.values()), None) if self._listener is None else ends.get(self._listener)
        return None if end is None else (end.host, end.port)

    @property
    def is_electing(self) -> bool:
        return self.leader_id == NO_LEADER

    async def _know(self, leader_id: int, epoch: int, address: Address | None) -> None:
        """Takes that as the controller; it is followed, if it is another node's."""
        known = leader_id, epoch, address
        if known == (self.leader_id, self.epoch, self.leader_address):
            return
        self.leader_id, self.epoch, self.leader_address = known
        following = None if address is None or leader_id == self._node_id else self._following.follow(address, epoch, self.cluster_id)
        await self._follow(following)
        if leader_id != NO_LEADER:
            log.info("metadata_leader", epoch=epoch, leader_id=leader_id)
        self._follower.on_leader()

    async def _follow(self, following: Coroutine[Any, Any, None] | None) -> None:
        task, self._follow_task = self._follow_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if following is not None:
            self._follow_task = asyncio.get_running_loop().create_task(following)
            self._follow_task.add_done_callback(self._ended)

    # -- the controller

    async def _try_to_rule(self, session: Session) -> None:
        now_ms = self._world.clock.now_ms()
        elected = await elect(session, self._node_id, now_ms, self._place.acl_of, known_epoch=self._served.epoch)
        if elected is not None:
            log.info("controller_elected", epoch=elected.epoch)
            await self._rule(session, elected.epoch, elected.version)

    async def _rule(self, session: Session, epoch: int, epoch_version: int) -> None:
        """Returns when the reign has ended, and another one may start."""
        try:
            reign = await self._load(session, epoch, epoch_version)
            await self._begin(reign)
            await first_of(
                reign.carry_out(),
                despite_lost_connections(lambda: self._until_deposed(session)),
                *(while_controller(despite_lost_connections(partial(part, reign))) for part in self._while_active),
            )
        except DecodeError as error:
            log.error("znodes_unreadable", epoch=epoch, reason=error.message)
            await asyncio.sleep(UNREADABLE_SECONDS)
        except MultiFailedError as error:
            log.warning("controller_resigns", epoch=epoch, reason=str(error))
        finally:
            self._end()
        await depose(session, epoch_version)

    async def _load(self, session: Session, epoch: int, epoch_version: int) -> Reign:
        loader = Loader(session, self._place.in_flight_max)
        tree = await loader.cluster()
        new_ids = {
            path.rpartition("/")[2]: self._world.random.getrandbits(128).to_bytes(16, "big")
            for path in tree
            if path.startswith(f"{znodes.TOPICS}/") and path.count("/") == 3
        }
        found = self.found = read_cluster(tree, new_ids)
        report_problems(found.known)
        self.registered = await read_brokers(session)
        before = self.image.brokers
        kept = {
            broker_id: before[broker_id]
            for broker_id, registered in self.registered.items()
            if broker_id in before and before[broker_id].broker_epoch == registered.epoch
        }
        image = replace(found.image, brokers=kept, end_offset=epoch * EPOCH_SPAN, epoch=epoch)
        self._served.start_over(image)
        self._applied.start_over(image)
        writer = ZnodeWriter(found.known, controller_epoch=epoch, broker_id=self._node_id, acl_of=self._place.acl_of)
        return Reign(
            self._world,
            session,
            self._applied,
            self._served,
            writer,
            epoch=epoch,
            epoch_version=epoch_version,
            bytes_max=self._place.request_bytes_max,
            bytes_between_snapshots=self._bytes_between_snapshots,
        )

    async def _begin(self, reign: Reign) -> None:
        self._applied.begin_own()
        self._serving.begin()
        self._reign = reign
        found = self.found
        assert found is not None, "the znodes were read"
        make_unborn(reign, self.draft, found)  # before anything else: an assignment that is written again has only what the image has
        address = await self._address_of(reign.session, self._node_id)
        await self._know(self._node_id, reign.epoch, address)
        self._follower.on_active(reign.epoch)

    def _end(self) -> None:
        reign, self._reign = self._reign, None
        if reign is not None:
            reign.end()
            self._applied.end_own()
            self._serving.end()
            self._follower.on_inactive()

    async def _until_deposed(self, session: Session) -> None:
        """Waits until the znode no longer belongs to this session: another node has taken it."""
        while True:
            changed = asyncio.Event()
            stat = await session.exists(znodes.CONTROLLER, changed.set)
            if stat is None or stat.ephemeral_owner != session.session_id:
                raise MultiFailedError(0, NoNodeError(znodes.CONTROLLER))
            await changed.wait()

    async def on_controller_dead(self, broker_id: int) -> None:
        """Deposes the controller, whose process has certainly ended: another one need not wait for its session's end."""
        if broker_id == self.leader_id:
            await depose_dead(self._session, broker_id, self.epoch)
