"""All parts of a node, made in one place and listed in the order of their start. A new part is one file and one line in the list."""

from __future__ import annotations

from msgspec import Struct

from ottla.broker.authorization import AclAuthorizer, AllowAll
from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.controller.leader_upkeep import LeaderUpkeep
from ottla.broker.controller.token_sweep import TokenSweep
from ottla.broker.coordinators.end_markers import EndMarkers
from ottla.broker.coordinators.groups import GroupShards
from ottla.broker.coordinators.permits import TransactionPermits
from ottla.broker.coordinators.transactions import TransactionShards
from ottla.broker.dynamic_config import DynamicConfig
from ottla.broker.home import Core, Home, Life
from ottla.broker.metadata.publisher import Publisher
from ottla.broker.part import PartList
from ottla.broker.parts import Parts
from ottla.broker.peers.introduction import Introductions
from ottla.broker.replicas.early_requests import EarlyRequests
from ottla.broker.replicas.full_directories import FullDirectories
from ottla.broker.replicas.mover import ReplicaMover
from ottla.broker.replicas.replication import Replication
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.parking import Parking
from ottla.broker.requests.stores import TlsStores
from ottla.broker.requests.throttling import Throttling
from ottla.broker.upkeep.cleaner import LogCleaner
from ottla.broker.upkeep.expired_stores import ExpiredStores
from ottla.broker.upkeep.housekeeping import Housekeeping
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.config import BrokerConfig
from ottla.ports import World
from ottla.replication.fetch_sessions import FetchSessions


class Assembly(Struct, frozen=True):
    """A node before its start: what handlers may touch of it, and its parts in order."""

    home: Home
    life: Life
    publisher: Publisher
    housekeeping: Housekeeping
    parts: Parts
    list: PartList


async def assemble(world: World, config: BrokerConfig, home: Home, introductions: Introductions) -> Assembly:
    """Assembles the node's parts and scans the log directories; no log is open yet."""
    node, directories = PartList(), home.directories
    publisher = Publisher(lambda: home.metadata.image, node.on_image)
    controller = ActiveController(world, config, home.metadata, publisher, remote=home.remote, replicates=home.replicates)
    membership = home.membership(controller)
    upkeep = LeaderUpkeep(world, config, controller, home.evidence, elects_uncleanly=home.replicates)
    replication = Replication(config.node_id, config, world.clock, home.others, home.is_known, may_lead=not home.replicates)
    partitions = PartitionStore(world, config, replication, directories.of_replicas, node, has_offline=directories.has_offline)
    throttling = Throttling(world, config)
    authorizer = AclAuthorizer(config, world.clock, home.metadata.images) if config["authorizer.class.name"] else AllowAll()
    gate = Gatekeeper(
        world, config, home.services, throttling, authorizer, forward=home.forward(publisher), is_active=lambda: home.metadata.is_active
    )  # fmt: skip
    stores = TlsStores(world, config, gate, introductions)
    router, parking = gate.router, Parking(world)
    groups, mover = GroupShards(world, config, controller), ReplicaMover(world, config, partitions)
    end_markers = EndMarkers(world, partitions, groups)
    transactions = TransactionShards(world, config, controller, end_markers, to_brokers=home.to_brokers)
    permits = TransactionPermits(world, config, transactions)
    early_requests = EarlyRequests(world, partitions, lambda: home.metadata.image, unheard_ms=home.unheard_ms)

    async def retry_offline() -> None:
        """Retries partitions for which there was no room or descriptor, and an image that a part did not follow."""
        if partitions.unopened.retry():
            await publisher.repeat()
            node.on_offline()
        else:
            await publisher.catch_up()

    housekeeping = Housekeeping(world, config, directories, partitions, router, retry_offline)
    core = Core(
        publisher=publisher, controller=controller, membership=membership, partitions=partitions, groups=groups, gate=gate
    )  # fmt: skip
    life = home.life(core)
    full = await FullDirectories.open(world, directories.opened, node.on_offline)
    node.extend(
        directories,
        DynamicConfig(config, node),
        stores,
        throttling,
        *home.links,
        replication,
        partitions,
        early_requests,
        *life.replicating,
        controller,
        membership,
        upkeep,
        TokenSweep(world, config, controller),
        life,
        router,
        groups,
        transactions,
        parking,
        mover,
        Scrubber(world, config, partitions, replication),
        LogCleaner(world, config, partitions),
        full,
        housekeeping,
        gate,
        ExpiredStores(world, gate, stores),
        *home.last,
    )
    await partitions.scan()
    parts = Parts(
        world=world,
        config=config,
        home=home,
        controller=controller,
        membership=membership,
        partitions=partitions,
        early_requests=early_requests,
        groups=groups,
        transactions=transactions,
        permits=permits,
        end_markers=end_markers,
        mover=mover,
        fetch_sessions=FetchSessions(world.random, slot_count=config["max.incremental.fetch.session.cache.slots"]),
        gate=gate,
        stores=stores,
        throttling=throttling,
        authorizer=authorizer,
        parking=parking,
        stage=router.burst.stage,
        fetch_bytes_max=config["fetch.max.bytes"],
    )
    router.gate.begin(parts)
    return Assembly(home, life, publisher, housekeeping, parts, node)
