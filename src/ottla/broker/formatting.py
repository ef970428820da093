"""Log directories made before the first start: for a node of several, and for a cluster that starts at an older metadata.version.

A broker that is its own only controller formats its directories when it first starts, at the newest version. A node of several must not:
a voter whose disk was emptied would vote again, as if it had promised nothing. What a new cluster starts with is in a file
``bootstrap.checkpoint``, as in Kafka; the first active controller records it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from ottla.broker.metadata.log import format_metadata, has_metadata
from ottla.config import BrokerConfig
from ottla.controller.features import ELR_VERSION, FEATURES, GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION, supported_features
from ottla.controller.metadata_versions import LEVELS
from ottla.controller.scram_users import SCRAM_SINCE
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.messages.metadata_records import FeatureLevelRecord, UserScramCredentialRecord
from ottla.ports import Disk, World
from ottla.storage.directory.directory import DirectoryIdentity, LogDirectory, is_used, read_identity
from ottla.types import uuid_text

ELR_SINCE = LEVELS["4.1-IV0"]
"""The metadata.version from which on a new cluster has eligible leader replicas, unless it is said otherwise."""
TRANSACTION_VERSIONS_SINCE = ((LEVELS["4.0-IV2"], 2), (LEVELS["4.0-IV0"], 1))
"""The same of levels of transaction.version, the highest first."""
GROUP_VERSION_SINCE = LEVELS["4.0-IV0"]
"""The same of group.version, which serves the consumer protocol (KIP-848)."""


class DirectoryState(Struct, frozen=True):
    """One directory of log.dirs as it is found. Without an identity it is not formatted; ``problem`` is why it cannot be used."""

    path: str
    identity: DirectoryIdentity | None
    problem: str | None


class Formatted(NamedTuple):
    """The cluster's id, the directories that were formatted, and those that stay as they were."""

    cluster_id: str
    made: list[str]
    left: list[str]


async def format_log_dirs(
    world: World,
    config: BrokerConfig,
    *,
    cluster_id: str | None,
    features: Mapping[str, int],
    passes_over: bool = False,
    credentials: Sequence[UserScramCredentialRecord] = (),
) -> Formatted:
    """Formats each directory of log.dirs for this node; the cluster starts with these levels. Returns what was done.

    Users with ``credentials`` are there from the start (KIP-900).
    With ``passes_over``, directories of the same cluster and node that are formatted already stay as they are. StorageError, and nothing
    is made, when one is formatted otherwise or holds something else; INVALID_CONFIG for a feature or level that is not served.
    """
    levels = first_levels(features, supported_features(config))
    if credentials and levels[METADATA_VERSION] < SCRAM_SINCE:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "SCRAM users need a metadata.version of Kafka 3.5 or later")
    found = await inspect_log_dirs(world.disk, config)
    formatted = [state for state in found if state.identity is not None]
    known = formatted[0].identity.cluster_id if formatted and formatted[0].identity else None
    asked = cluster_id or config["cluster.id"]
    if known is not None and asked and asked != known:
        path = formatted[0].path
        way_out = f"format with the id of the cluster ({known}), or, if {path} holds nothing that you need, remove it and format again"
        raise StorageError(f"{path} belongs to cluster {known}, not to {asked}: {way_out}")
    if formatted and not passes_over:
        raise StorageError(f"{formatted[0].path} is already formatted; --ignore-formatted leaves such directories as they are")
    problems = [state.problem for state in found if state.problem is not None]
    if problems:
        raise StorageError(problems[0])
    chosen = asked or known or random_uuid(world)
    for state in found:
        if state.identity is None:
            await _format(world, state.path, DirectoryIdentity(chosen, config.node_id, random_uuid(world)))
    first = config.log_dirs[0]
    if not await has_metadata(world.disk, first):
        records = [*(FeatureLevelRecord(name, level) for name, level in sorted(levels.items()) if level), *credentials]
        await format_metadata(world.disk, first, records)
    made = [state.path for state in found if state.identity is None]
    return Formatted(chosen, made, [state.path for state in formatted])


async def inspect_log_dirs(disk: Disk, config: BrokerConfig) -> list[DirectoryState]:
    """Returns the state of every directory of log.dirs, in order. Nothing is changed."""
    states: list[DirectoryState] = []
    for path in config.log_dirs:
        identity, problem = None, None
        try:
            if await disk.exists(path) and not await disk.is_dir(path):
                raise StorageError(f"{path} is no directory: remove it, or name another path in log.dirs")
            identity = await read_identity(disk, path)
        except StorageError as error:
            problem = error.message
        if identity is not None and identity.node_id != config.node_id:
            problem = f"{path} belongs to node.id={identity.node_id}, this is node.id={config.node_id}"
        others = {state.identity.cluster_id for state in states if state.identity is not None}
        if identity is not None and problem is None and others and identity.cluster_id not in others:
            problem = f"{path} belongs to cluster {identity.cluster_id}, other directories to {others.pop()}"
        states.append(DirectoryState(path, identity, problem))
    return states


async def check_first_directory(disk: Disk, log_dirs: Sequence[str], *, has_metadata_log: bool) -> None:
    """Checks that the metadata log may be in the first directory: StorageError where its data would be lost otherwise."""
    first, *others = log_dirs
    what = "the directory of the metadata log"
    if not has_metadata_log:
        if await _is_seen(has_metadata(disk, first)):
            raise StorageError(f"{first} is of a cluster with a quorum: it has a metadata log; zookeeper.connect names another home")
        return
    try:
        if not others or await has_metadata(disk, first):
            return
    except OSError as error:
        raise StorageError(f"{first}, {what}, cannot be read: {error}") from error
    for path in others:
        if await _is_seen(has_metadata(disk, path)):
            where = f"{first}, {what}, has no metadata log, and {path} has one"
            raise StorageError(f"{where}: list {path} first, or set metadata.log.dir; nothing was changed")
    used = [path for path in others if await _is_seen(is_used(disk, path))]
    if used and not await is_used(disk, first):
        raise StorageError(
            f"{first}, {what}, is not formatted, and {used[0]} is: the metadata log is missing. Mount or restore the disk "
            f"of {first}; or, for a broker that is no controller, run `ottla storage format FILE --cluster-id ID --ignore-formatted`; "
            f"or remove {used[0]} from log.dirs to start a new cluster; nothing was changed"
        )


async def _is_seen(answer: Awaitable[bool]) -> bool:
    """Returns the answer, False where the disk does not say: a start goes on without such a directory."""
    try:
        return await answer
    except OSError:
        return False


def random_uuid(world: World) -> str:
    """Returns a new id for a cluster or a directory: 22 characters, the first no dash, which a command line would take for an option."""
    while (text := uuid_text(world.random.getrandbits(128).to_bytes(16, "big"))).startswith("-"):
        pass
    return text


async def _format(world: World, path: str, identity: DirectoryIdentity) -> None:
    await LogDirectory.open(world.disk, path, node_id=identity.node_id, cluster_id=identity.cluster_id, new_ids=identity)


def first_levels(given: Mapping[str, int], supported: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Returns every feature's level: as given, else what a new cluster of that metadata.version has."""
    metadata_version = given.get(METADATA_VERSION, FEATURES[METADATA_VERSION][1])
    transaction_version = next((level for since, level in TRANSACTION_VERSIONS_SINCE if metadata_version >= since), 0)
    levels = {
        METADATA_VERSION: metadata_version,
        ELR_VERSION: 1 if metadata_version >= ELR_SINCE else 0,
        TRANSACTION_VERSION: transaction_version,
        GROUP_VERSION: 1 if metadata_version >= GROUP_VERSION_SINCE else 0,
        **given,
    }
    for name, level in levels.items():
        low, high = supported.get(name, (0, -1))
        if not low <= level <= high:
            served = ", ".join(f"{name} from {low} to {high}" for name, (low, high) in supported.items())
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"feature {name[:80]}={level} is not supported; {served} are")
    return levels
