"""Log directories made before the first start, for a cluster that shall begin at an older metadata.version.

Without this a broker formats its own directories when it first starts, at the newest version. What a new cluster begins with is
a snapshot of the metadata log at offset 0, as Kafka's bootstrap checkpoint is.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.metadata.log import write_first_snapshot
from ottla.config import BrokerConfig
from ottla.controller.features import ELR_VERSION, FEATURES, METADATA_VERSION
from ottla.controller.metadata_versions import LEVELS
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.messages.metadata_records import FeatureLevelRecord
from ottla.ports import World
from ottla.storage.directory.directory import META_NAME, FolderIdentity, LogDirectory
from ottla.types import uuid_text

ELR_SINCE = LEVELS["4.1-IV0"]
"""The metadata.version from which on a new cluster has eligible leader replicas, unless it is said otherwise."""


async def format_log_dirs(world: World, config: BrokerConfig, *, cluster_id: str | None, features: Mapping[str, int]) -> str:
    """Each directory of log.dirs is this node's, and the cluster begins with these levels; its id is returned.

    StorageError when one is formatted already, or holds something else; INVALID_CONFIG for a feature or level that is not served.
    """
    levels = first_levels(features)
    for path in config.log_dirs:
        if await world.disk.exists(f"{path}/{META_NAME}"):
            raise StorageError(f"{path} is already formatted")
    chosen = cluster_id or config["cluster.id"] or _fresh_id(world)
    for path in config.log_dirs:
        ids = FolderIdentity(chosen, config.node_id, _fresh_id(world))
        await LogDirectory.open(world.disk, path, node_id=config.node_id, cluster_id=chosen, new_ids=ids)
    await write_first_snapshot(
        world.disk, config.log_dirs[0], [FeatureLevelRecord(name, level) for name, level in sorted(levels.items()) if level]
    )
    return chosen


def first_levels(given: Mapping[str, int]) -> dict[str, int]:
    """Every feature's level: as given, else what a new cluster of that metadata.version has."""
    metadata_version = given.get(METADATA_VERSION, FEATURES[METADATA_VERSION][1])
    levels = {METADATA_VERSION: metadata_version, ELR_VERSION: 1 if metadata_version >= ELR_SINCE else 0, **given}
    for name, level in levels.items():
        low, high = FEATURES.get(name, (0, -1))
        if not low <= level <= high:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"feature {name[:80]}={level} is not supported; {_served()} are")
    return levels


def _served() -> str:
    return ", ".join(f"{name} from {low} to {high}" for name, (low, high) in FEATURES.items())


def _fresh_id(world: World) -> str:
    return uuid_text(world.random.getrandbits(128).to_bytes(16, "big"))
