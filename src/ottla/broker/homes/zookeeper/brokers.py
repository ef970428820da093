"""The brokers as ZooKeeper knows them: one ephemeral znode each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ottla.coordination import NoNodeError, Session
from ottla.errors import DecodeError
from ottla.loggers import get_logger
from ottla.metadata import znodes
from ottla.metadata.image import BrokerImage
from ottla.metadata.znodes import BrokerZnode

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """A broker's znode. ``epoch`` is the zxid of its creation: a later process, or session, has a higher one."""

    broker_id: int
    epoch: int
    version: int
    znode: BrokerZnode

    def image(self) -> BrokerImage:
        """Returns the broker as the controller records it: fenced until the broker has followed that far."""
        return BrokerImage(
            broker_id=self.broker_id,
            broker_epoch=self.epoch,
            endpoints={end.listener: end for end in self.znode.endpoints},
            rack=self.znode.rack,
            is_fenced=True,
            incarnation_id=incarnation(self.epoch),
            features=self.znode.features,
        )


def incarnation(epoch: int) -> bytes:
    """Returns the identity of this process of a broker: nothing but its epoch."""
    return epoch.to_bytes(16, "big", signed=True)


async def read_brokers(session: Session, watch: Callable[[], None] | None = None) -> dict[int, Registered]:
    """Returns the brokers by id. The watch is called when one comes or goes. A znode that cannot be read is passed over, and reported."""
    names = await session.children(znodes.BROKER_IDS, watch)
    ids = [number for name in names if (number := znodes.number_of(name)) is not None]

    async def read(broker_id: int) -> Registered | None:
        try:
            data, stat = await session.get(znodes.broker_path(broker_id))
            return Registered(broker_id, stat.czxid, stat.version, BrokerZnode.decode(data, broker_id))
        except NoNodeError:
            return None
        except DecodeError as error:
            log.error("broker_znode_unreadable", broker_id=broker_id, reason=error.message)
            return None

    found = await asyncio.gather(*(read(broker_id) for broker_id in ids))
    return {broker.broker_id: broker for broker in found if broker is not None}
