"""The cluster's brokers, as a controller in ZooKeeper keeps them: a broker with a znode is registered.

Sessions are ZooKeeper's. Heartbeats say how far a broker has followed, and that it wants to stop; a broker that sends none, and has its
znode, lives. One that is proved dead by its connection and its port has its znode deleted at once, and everything else follows from that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.controller.membership import HELLO_MS, Membership
from ottla.broker.homes.zookeeper.brokers import Registered, read_brokers
from ottla.broker.homes.zookeeper.metadata import ZookeeperMetadata
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.written_deletions import WrittenDeletions
from ottla.broker.liveness.evidence import Evidence
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.controller.brokers import unregistering
from ottla.controller.reconciliation import WithoutTheAbsent, broker_coming
from ottla.controller.sweeps import Sweep
from ottla.controller.topic_rules import partitions_of
from ottla.coordination import CoordinationError, Delete
from ottla.errors import ErrorCode
from ottla.loggers import get_logger
from ottla.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.metadata import znodes
from ottla.metadata.image import BrokerImage
from ottla.ports import Connection, World

log = get_logger(__name__)

_GONE = "its session has ended"
_ENDED = "its process has ended"


class ZookeeperMembership(Membership):
    """``follows`` says whether this node is connected to the controller that the broker is.

    ``on_came`` is called when another process of a broker has registered.
    """

    completes = False

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        controller: ActiveController,
        home: ZookeeperMetadata,
        evidence: Evidence,
        follows: Callable[[int], bool],
        on_came: Callable[[int], None],
        deletions: WrittenDeletions,
    ) -> None:
        super().__init__(world, config, controller, home.cluster_id, evidence)
        self._home = home
        self._follows = follows
        self._registered_offsets: dict[tuple[int, int], int] = {}
        self._proven: set[tuple[int, int]] = set()
        self._absent: set[int] = home.absent
        self._on_came = on_came
        self._deletions = deletions

    def on_active(self, epoch: int) -> None:
        self._registered_offsets.clear()
        self._proven.clear()
        self._absent.clear()
        super().on_active(epoch)

    async def register(self, request: BrokerRegistrationRequest, channel: Connection) -> BrokerRegistrationResponse:
        """Refuses: brokers register in ZooKeeper."""
        return BrokerRegistrationResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

    def _registered_at(self, broker_id: int, epoch: int) -> int:
        in_image = self._home.base_offset - 1  # who has the image that the epoch started with has all that was registered then
        return self._registered_offsets.get((broker_id, epoch), in_image)

    def _watch(self) -> None:
        """Does nothing: no session ends here."""

    # -- what the znodes say

    async def follow_znodes(self, reign: Reign) -> None:
        """Follows the znodes while this node's controller is active: what was left incomplete is completed, and brokers come and go."""
        await self._complete(reign)
        while True:
            changed = asyncio.Event()
            self._home.registered = registered = await read_brokers(reign.session, changed.set)
            for broker in list(self._controller.replica.draft.brokers.values()):  # each sweep changes the draft
                if broker.broker_id not in registered and broker.broker_id in self._controller.replica.draft.brokers:
                    await self._sweep(self._gone(broker))
            for found in registered.values():
                known = self._controller.replica.draft.brokers.get(found.broker_id)
                if known is None or known.broker_epoch != found.epoch:
                    await self._sweep(self._came(found))
            await changed.wait()

    async def _sweep(self, sweep: Sweep) -> None:
        refused = await self._controller.sweep(sweep)
        if refused is not None:
            log.error("brokers_not_reconciled", reason=refused.message)

    def _gone(self, broker: BrokerImage) -> Sweep:
        broker_id, epoch = broker.broker_id, broker.broker_epoch
        self._sessions.end(broker_id)
        self._absent.add(broker_id)
        if not broker.is_fenced:
            reason = _ENDED if (broker_id, epoch) in self._proven else _GONE
            self.fenced_counts[reason] += 1
            log.warning("broker_gone", broker_id=broker_id, broker_epoch=epoch, reason=reason)
        image = self._controller.replica.draft
        return unregistering(image, broker_id, self._controller.rules, suspected=lambda: self._evidence.suspected)

    def _came(self, found: Registered) -> Sweep:
        broker_id, epoch = found.broker_id, found.epoch
        self._absent.discard(broker_id)

        def on_step(end_offset: int) -> None:
            if not sweep.is_done:
                return
            self._registered_offsets[broker_id, epoch] = end_offset - 1
            self._sessions.begin(broker_id, epoch, self._now_ms())
            self._evidence.check([broker_id])  # what is left of its earlier process
            self._on_came(broker_id)
            log.info("broker_registered", broker_id=broker_id, broker_epoch=epoch)

        sweep = broker_coming(found.image(), self._controller.rules, suspected=lambda: self._evidence.suspected, on_step=on_step)
        return sweep

    async def _complete(self, reign: Reign) -> None:
        found = self._home.found
        assert found is not None, "a controller has read the znodes"
        image = self._controller.replica.draft
        self._absent |= {node for *_, partition in partitions_of(image) for node in partition.replicas} - set(image.brokers)
        for name in found.unnamed:
            topic = self._controller.replica.draft.topics.get(name)
            if topic is not None:
                await reign.session.multi([reign.check, *reign.writer.assignment(topic)])
        await self._deletions.complete(reign, found)
        await self._sweep(WithoutTheAbsent(self._controller.rules, suspected=lambda: self._evidence.suspected))

    # -- processes that have died

    def is_heard(self, broker_id: int, epoch: int) -> bool:
        of_epoch, channel = self._channels.get(broker_id, (-1, None))
        if self._evidence.hears(broker_id) or self._follows(broker_id):
            return True
        if channel is not None and of_epoch == epoch and not channel.is_closed:
            return True
        return self._home.is_active and self._now_ms() - self._began_ms < HELLO_MS

    def on_dead(self, broker_id: int, epoch: int) -> None:
        """Takes the proof of a death, which may come again and again."""
        if broker_id == self._home.leader_id and not self._home.is_active:
            eager.run(self._home.on_controller_dead(broker_id), _noted)
        elif self._is_at_work:
            self._evidence.check(self._neighbours(broker_id))
            eager.run(self._delete_znode(broker_id, epoch), _noted)

    async def _delete_znode(self, broker_id: int, epoch: int) -> None:
        found, reign = self._home.registered.get(broker_id), self._home.reign
        if found is None or found.epoch != epoch or reign is None or (broker_id, epoch) in self._proven:
            return
        self._proven.add((broker_id, epoch))
        log.warning("broker_znode_deleted", broker_id=broker_id, broker_epoch=epoch, reason=_ENDED)
        try:
            await reign.session.multi([reign.check, Delete(znodes.broker_path(broker_id), found.version)])
        except CoordinationError:
            self._proven.discard((broker_id, epoch))
            raise


def _noted(_: None, error: BaseException | None) -> None:
    if isinstance(error, CoordinationError):  # another controller decides, or the session's end will
        log.info("broker_znode_not_deleted", reason=str(error))
    elif error is not None and not isinstance(error, asyncio.CancelledError):
        log.error("broker_znode_not_deleted", exc_info=error)
