"""What the controller does about brokers whose log directories have failed: it asks them what they have lost, and others lead that.

A broker says below ``/log_dir_event_notification`` that something has changed. Asked for its replicas by OffsetForLeaderEpoch, it answers
KAFKA_STORAGE_ERROR for those that it cannot serve. These are lost, as long as the controller is the same: no znode says so. A process of
the broker that registers later is asked again for what an earlier one had lost. Source: Kafka 3.9, which asks by LeaderAndIsr.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.homes.zookeeper.reign import Reign
from ottla.broker.homes.zookeeper.waiting import RETRY_SECONDS
from ottla.broker.peers.peers import Address, Peers
from ottla.controller.replica_directories import Assigned, lost_replicas
from ottla.controller.topic_rules import hosted_by, is_lost
from ottla.coordination import NoNodeError
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.metadata import znodes
from ottla.metadata.image import BrokerImage, ClusterImage

log = get_logger(__name__)

ReplicaKey = tuple[bytes, int]
_SAYS_NOTHING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class _Asking(NamedTuple):
    task: asyncio.Task[None]
    notices: list[str]


class LostReplicas:
    """The search for replicas on lost directories, at work while this node's controller is active.

    ``listener`` is the one between brokers; None for the first of each.
    """

    def __init__(self, controller: ActiveController, peers: Peers, listener: str | None) -> None:
        self._controller = controller
        self._peers = peers
        self._listener = listener
        self._came: set[int] = set()
        self._wakes = asyncio.Event()

    def on_came(self, broker_id: int) -> None:
        """Notes that another process of the broker has registered: what an earlier one had lost may be there again."""
        self._came.add(broker_id)
        self._wakes.set()

    async def follow_events(self, reign: Reign) -> None:
        """Deletes each notice once its broker was asked, or no longer is one. A broker that does not answer holds up no other one."""
        asking: dict[int, _Asking] = {}
        try:
            while True:
                self._wakes.clear()
                for broker_id, asked in list(asking.items()):
                    if asked.task.done():
                        del asking[broker_id]
                        asked.task.result()
                        for path in asked.notices:
                            await reign.delete(path)
                noticed = await self._noticed(reign)
                due = noticed.keys() | {broker_id for broker_id in self._came if self._has_lost(broker_id)}
                self._came &= asking.keys()
                for broker_id in due - asking.keys():
                    task = asyncio.get_running_loop().create_task(self._ask_until_settled(reign, broker_id))
                    task.add_done_callback(lambda _: self._wakes.set())
                    asking[broker_id] = _Asking(task, noticed.get(broker_id, []))
                await self._wakes.wait()
        finally:
            self._came |= asking.keys()
            for asked in asking.values():
                asked.task.cancel()
            await asyncio.gather(*(asked.task for asked in asking.values()), return_exceptions=True)

    async def _noticed(self, reign: Reign) -> dict[int, list[str]]:
        """Returns the notices of each broker; unreadable ones are under -1, which is no broker."""
        noticed: dict[int, list[str]] = {}
        for name in await reign.session.children(znodes.LOG_DIR_EVENTS, self._wakes.set):
            path = f"{znodes.LOG_DIR_EVENTS}/{name}"
            noticed.setdefault(await _broker_of(reign, path), []).append(path)
        return noticed

    async def _ask_until_settled(self, reign: Reign, broker_id: int) -> None:
        while not await self._ask(reign, broker_id):
            await asyncio.sleep(RETRY_SECONDS)

    def _has_lost(self, broker_id: int) -> bool:
        draft = self._controller.replica.draft
        return any(is_lost(partition, broker_id) for _, _, _, partition in hosted_by(draft, broker_id))

    async def _ask(self, reign: Reign, broker_id: int) -> bool:
        """True when what the broker has lost is decided upon. The broker may no longer exist."""
        draft = self._controller.replica.draft
        broker = draft.brokers.get(broker_id)
        address = None if broker is None else self._address_of(broker)
        if broker is None or address is None:
            return await reign.session.exists(znodes.broker_path(broker_id)) is None
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        ids: dict[str, bytes] = {}  # while the broker is asked, the draft changes
        for name, topic_id, index, _ in hosted_by(draft, broker_id):
            topics.setdefault(name, []).append(OffsetForLeaderPartition(index, -1, 0))
            ids[name] = topic_id
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(name, parts) for name, parts in topics.items()])
        answer = await self._answer(address, request)
        if answer is None:  # it has not joined yet, or is about to be gone
            self._peers.drop(address)
            return False
        codes = {(ids[topic.topic], part.partition): ErrorCode(part.error_code) for topic in answer.topics for part in topic.partitions}
        [result] = await self._controller.decide([partial(self._judged, broker=broker, codes=codes)], is_followed=False)
        if isinstance(result, KafkaError):
            log.error("lost_replicas_not_recorded", broker_id=broker_id, reason=result.message)
            return True
        if result.records:
            lost = sum(code == ErrorCode.KAFKA_STORAGE_ERROR for code in codes.values())
            log.warning("replicas_lost", broker_id=broker_id, lost_count=lost, changed_count=len(result.records))
        return True

    def _judged(self, image: ClusterImage, *, broker: BrokerImage, codes: Mapping[ReplicaKey, ErrorCode]) -> Assigned:
        lost = {place: code == ErrorCode.KAFKA_STORAGE_ERROR for place, code in codes.items() if code not in _SAYS_NOTHING}
        return lost_replicas(image, broker.broker_id, lost, rules=self._controller.rules(image))

    def _address_of(self, broker: BrokerImage) -> Address | None:
        ends = broker.endpoints
        end = next(iter(ends.values()), None) if self._listener is None else ends.get(self._listener)
        return None if end is None else (end.host, end.port)

    async def _answer(self, address: Address, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse | None:
        answer = await self._peers.ask(address, request)
        assert answer is None or isinstance(answer, OffsetForLeaderEpochResponse), "an API has one response type"
        return answer


async def _broker_of(reign: Reign, path: str) -> int:
    """Returns the broker of the notice; -1, which is no broker, when it cannot be read."""
    try:
        data, _ = await reign.session.get(path)
        return znodes.decode_log_dir_event(data)
    except NoNodeError:
        return -1
    except DecodeError as error:
        log.error("log_dir_event_unreadable", path=path, reason=error.message)
        return -1
