"""What a process says of itself as a broker, and the replica of the metadata log that its first log directory has."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ottla.broker.home import Basis
from ottla.broker.log_directories import LogDirectories
from ottla.broker.metadata.log_limits import LogLimits
from ottla.broker.metadata.opened_log import open_log
from ottla.broker.metadata.replica import MetadataReplica
from ottla.broker.replicas.store import PartitionStore
from ottla.broker.requests.listeners import advertised
from ottla.config import BrokerConfig
from ottla.consensus.settings import QuorumSettings
from ottla.controller.features import supported_features
from ottla.metadata.image import BrokerImage
from ottla.types import uuid_bytes

if TYPE_CHECKING:
    from ottla.broker.metadata.voters import Voters  # a lone broker starts without


def own_broker(
    config: BrokerConfig, directories: LogDirectories, bound: dict[str, tuple[str, int]], *, broker_epoch: int, incarnation_id: bytes
) -> BrokerImage:
    """Returns this process's entry, unfenced, with its listeners as they are ``bound``."""
    return BrokerImage(
        broker_id=config.node_id,
        broker_epoch=broker_epoch,
        endpoints={end.listener: end for end in advertised(config, bound)},
        rack=config["broker.rack"],
        is_fenced=False,
        incarnation_id=incarnation_id,
        features=dict(supported_features(config)),
        directories=tuple(uuid_bytes(directory.identity.directory_id) for directory in directories.of_replicas),
    )


async def open_replica(basis: Basis, directories: LogDirectories, settings: QuorumSettings, voters: Voters | None) -> MetadataReplica:
    """Opens the replica in the first log directory. A full disk has a reserve for it."""
    first = directories.opened[0]
    settings = replace(settings, shown_directory_id=uuid_bytes(first.identity.directory_id))
    found = await open_log(basis.world, first.path, settings, clean=first.was_clean, limits=LogLimits.of(basis.config), room=first.room)
    return MetadataReplica(basis.world, found, basis.follower, voters)


def fail_together(metadata: MetadataReplica, directories: LogDirectories, partitions: PartitionStore) -> None:
    """Lets the partitions in the metadata log's directory fail when its disk does."""
    metadata.log.on_disk_failed = partial(partitions.fail_directory, directories.opened[0])
