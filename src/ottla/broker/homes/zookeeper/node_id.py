"""A broker's id in ZooKeeper mode: from the configuration, else from its log directories, else a new one.

A new id is ``reserved.broker.max.id`` and the version of ``/brokers/seqid`` after a write: each write has a version of its own, so that no
two brokers get the same one. It is kept in the meta.properties of the log directories, as any id is. One that is not kept, because
the broker ended before, is not given again. Source: Kafka 3.9 (broker.id.generation.enable).
"""

from __future__ import annotations

from ottla.broker.homes.zookeeper.loading import make_persistent
from ottla.broker.homes.zookeeper.settings import ZookeeperSettings
from ottla.config import BrokerConfig
from ottla.coordination import ANY_VERSION, Session
from ottla.errors import ErrorCode, KafkaError, StorageError
from ottla.loggers import get_logger
from ottla.metadata import znodes
from ottla.ports import Disk, World
from ottla.storage.directory.directory import read_identity

log = get_logger(__name__)


async def settle_node_id(world: World, config: BrokerConfig) -> None:
    """Gives ``config`` the id. StorageError or INVALID_CONFIG when the directories and the configuration do not agree on one."""
    given = config.node_id if config.has_node_id else None
    generates: bool = config["broker.id.generation.enable"]
    reserved: int = config["reserved.broker.max.id"]
    if given is not None and generates and given > reserved:
        raise _refused(
            f"broker.id={given} is above reserved.broker.max.id={reserved}, where ids are generated: choose a lower id, raise "
            "reserved.broker.max.id, or set broker.id.generation.enable=false"
        )
    kept = await _kept(world.disk, config.log_dirs, given)
    if given is None and kept is None and not generates:
        raise _refused("broker.id is not set, and broker.id.generation.enable=false: set broker.id")
    if given is not None:
        return
    config.set_node_id(await _generated(world, config, reserved) if kept is None else kept)


async def next_sequence(session: Session) -> int:
    """Returns a number above 0 that was given to no other broker. There must be a ``/brokers/seqid``."""
    return await session.set(znodes.SEQUENCE_ID, b"", ANY_VERSION)


async def _generated(world: World, config: BrokerConfig, reserved: int) -> int:
    place = ZookeeperSettings.of(config)

    async def prepare(session: Session) -> int:
        await make_persistent(session, place.acl_of)
        return await next_sequence(session)

    session, sequence = await place.begin(world, prepare)
    await session.close()
    log.info("broker_id_generated", broker_id=reserved + sequence)
    return reserved + sequence


async def _kept(disk: Disk, log_dirs: list[str], given: int | None) -> int | None:
    """Returns the id in the directories that can be read; None while there is none."""
    kept: dict[int, str] = {}
    for path in log_dirs:
        try:
            identity = await read_identity(disk, path)
        except OSError:  # its disk fails, which is judged when it is opened
            continue
        if identity is not None:
            kept.setdefault(identity.node_id, path)
    where = " and ".join(f"{path} of broker.id={node_id}" for node_id, path in kept.items())
    if len(kept) > 1:
        raise StorageError(f"log.dirs has directories of different brokers: {where}")
    if given is not None and kept and given not in kept:
        raise StorageError(
            f"the configuration has broker.id={given}, and log.dirs has {where} (meta.properties): set that id, or none; for another "
            "broker name empty directories"
        )
    return next(iter(kept), None)


def _refused(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, text)
