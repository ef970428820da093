"""Elections of the controller: ``/controller`` and ``/controller_epoch`` change together, or not at all.

A znode's version says nothing of which znode of that path it is; that of ``/controller_epoch`` does, since each election counts it up.
So a request that deletes ``/controller`` names the epoch's version with it.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.homes.zookeeper.loading import AclOf
from ottla.coordination import (
    BadVersionError,
    Check,
    CoordinationError,
    Create,
    Delete,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    Session,
    Set,
)
from ottla.errors import DecodeError
from ottla.loggers import get_logger
from ottla.metadata import znodes
from ottla.types import NO_LEADER

log = get_logger(__name__)


class Elected(NamedTuple):
    """``version`` is that of ``/controller_epoch``."""

    epoch: int
    version: int


async def elect(
    session: Session, node_id: int, now_ms: int, acl_of: AclOf, *, known_epoch: int = znodes.NO_CONTROLLER_EPOCH
) -> Elected | None:
    """Tries to become the controller; None when another node was faster, or the epoch was not there.

    Then it is there now: ``known_epoch``, which is that of the newest controller that this node knows.
    """
    found = await find_epoch(session, known_epoch, acl_of)
    if found is None:
        return None
    epoch, version = found.epoch + 1, found.version
    own = znodes.encode_controller(node_id, now_ms)
    try:
        await session.multi(
            [
                Create(znodes.CONTROLLER, own, is_ephemeral=True, acl=acl_of(znodes.CONTROLLER)),
                Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), version),
            ]
        )
    except MultiFailedError:
        return None
    return Elected(epoch, version + 1)


async def find_controller(session: Session) -> int:
    """Returns the node whose znode ``/controller`` is; NO_LEADER where there is none, or it is unreadable, which is logged."""
    try:
        data, _ = await session.get(znodes.CONTROLLER)
        return znodes.decode_controller(data)
    except NoNodeError:
        return NO_LEADER
    except DecodeError as error:
        log.error("controller_unreadable", reason=error.message)
        return NO_LEADER


async def find_epoch(session: Session, known_epoch: int, acl_of: AclOf) -> Elected | None:
    """Returns the epoch of the newest controller; None where an operator has deleted or damaged it, and it is ``known_epoch`` again now."""
    path, data = znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(max(known_epoch, znodes.NO_CONTROLLER_EPOCH))
    try:
        found, stat = await session.get(path)
    except NoNodeError:
        try:
            await session.create(path, data, acl=acl_of(path))
        except NodeExistsError:
            pass
        return None
    try:
        return Elected(znodes.decode_controller_epoch(found), stat.version)
    except DecodeError as error:
        log.error("controller_epoch_unreadable", reason=error.message, known_epoch=known_epoch)
        try:
            await session.set(path, data, stat.version)
        except (NoNodeError, BadVersionError):
            pass
    return None


async def depose(session: Session, epoch_version: int) -> None:
    """Deposes the controller of that epoch, which has ended; one that was elected since stays."""
    try:
        await session.multi([Check(znodes.CONTROLLER_EPOCH, epoch_version), Delete(znodes.CONTROLLER)])
    except MultiFailedError as error:
        log.debug("controller_not_deposed", reason=str(error))


async def depose_dead(session: Session, broker_id: int, epoch: int) -> None:
    """Deposes the controller of that epoch, whose process has ended, if it is the controller still."""
    try:
        data, _ = await session.get(znodes.CONTROLLER)
        epoch_data, stat = await session.get(znodes.CONTROLLER_EPOCH)
        if (znodes.decode_controller(data), znodes.decode_controller_epoch(epoch_data)) == (broker_id, epoch):
            log.warning("controller_deposed", broker_id=broker_id, epoch=epoch, reason="its process has ended")
            await depose(session, stat.version)
    except (CoordinationError, DecodeError) as error:
        log.info("controller_not_deposed", reason=str(error))
