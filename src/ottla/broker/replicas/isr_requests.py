"""What the leaders of this broker ask the active controller for: other in-sync replicas, many partitions in one request.

One request is on its way at a time; what is wanted meanwhile goes with the next one. Laggards are looked for twice in
``replica.lag.time.max.ms``, so that one is noticed after one and a half of it at the latest. Source: KIP-497.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ottla.broker.part import Part
from ottla.broker.peers.controller_channel import ControllerChannel
from ottla.broker.replicas.leading import Leading
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replication import Replication
from ottla.broker.tasks import eager
from ottla.errors import ErrorCode
from ottla.loggers import get_logger
from ottla.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)
from ottla.ports import TimerHandle, World
from ottla.replication.leader import IsrChange

log = get_logger(__name__)

RETRY_MS: Final = 50


class IsrRequests(Part):
    """The requests of one broker to change ISRs. ``broker_epoch`` returns the epoch of its registration."""

    def __init__(
        self,
        world: World,
        replication: Replication,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        partitions: Callable[[], Iterable[Partition]],
    ) -> None:
        self._world = world
        self._replication = replication
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._partitions = partitions
        self._wanted: dict[tuple[bytes, int], tuple[Leading, IsrChange]] = {}
        self._refused: dict[tuple[bytes, int], ErrorCode] = {}  # changes that are asked for again, and why: each reason is logged once
        self._is_asking = self._is_stopped = False
        self._timer: TimerHandle | None = None

    def begin(self) -> None:
        """Lets leaders here ask from now on."""
        self._replication.on_isr_change = self._on_change
        self._look_later()

    async def stop(self) -> None:
        """Stops all asking."""
        self._is_stopped = True
        self._wanted.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = self._world.timers.call_later_ms(self._replication.lag_ms_max // 2, self._look)

    def _look(self) -> None:
        for partition in self._partitions():
            if partition.leading is not None:
                partition.leading.look_for_laggards()
        self._look_later()

    def _on_change(self, leading: Leading) -> None:
        change = leading.machine.take_change()
        if change is not None and not self._is_stopped:
            self._wanted[leading.key] = leading, change
            self._ask_soon()

    def _ask_soon(self) -> None:
        if not self._is_asking and self._wanted and not self._is_stopped:
            self._is_asking = True
            eager.run(self._ask_all(), self._ended)

    def _ended(self, _: None, error: BaseException | None) -> None:
        self._is_asking = False
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("isr_not_changed", exc_info=error)
        self._ask_soon()  # for what was wanted after the last look, and before this was called

    async def _ask_all(self) -> None:
        await asyncio.sleep(0)  # what the rest of the burst wants goes along
        while self._wanted and not self._is_stopped:
            wanted, self._wanted = self._wanted, {}
            answer = await self._channel.ask(self._request(wanted), AlterPartitionResponse)
            code = ErrorCode.NOT_CONTROLLER if answer is None else ErrorCode(answer.error_code)
            results = {} if answer is None or code else {(t.topic_id, r.partition_index): r for t in answer.topics for r in t.partitions}
            is_any_again = False
            for key, (leading, change) in wanted.items():
                is_any_again |= self._take(leading, change, results.get(key), code)
            if is_any_again:
                await asyncio.sleep(RETRY_MS / 1000)

    def _request(self, wanted: dict[tuple[bytes, int], tuple[Leading, IsrChange]]) -> AlterPartitionRequest:
        own_id, own_epoch = self._replication.node_id, self._broker_epoch()
        topics: dict[bytes, TopicData] = {}
        for (topic_id, index), (_, change) in wanted.items():
            members = [BrokerState(node, own_epoch if node == own_id else epoch) for node, epoch in change.isr]
            data = PartitionData(index, change.leader_epoch, [], members, 0, change.partition_epoch)
            topics.setdefault(topic_id, TopicData(topic_id)).partitions.append(data)
        return AlterPartitionRequest(own_id, own_epoch, list(topics.values()))

    def _take(self, leading: Leading, change: IsrChange, result: PartitionResult | None, code: ErrorCode) -> bool:
        """Takes the outcome of one change; True when it is asked for again."""
        if result is not None and not result.error_code and result.leader_epoch == change.leader_epoch:
            log.info("isr_changed", partition=leading.name, isr=result.isr)
            self._refused.pop(leading.key, None)
            self._replication.isr_meters.changed(change.before, result.isr)
            leading.on_isr_changed(change, partition_epoch=result.partition_epoch, isr=result.isr)
            return False
        if result is not None:
            code = ErrorCode(result.error_code) if result.error_code else ErrorCode.FENCED_LEADER_EPOCH
        self._replication.isr_meters.failed += 1
        if self._refused.get(leading.key) != code:
            log.info("isr_not_changed", partition=leading.name, reason=code.name)
        if leading.has_ended or not leading.on_isr_refused(change, code):
            self._refused.pop(leading.key, None)
            return False
        self._refused[leading.key] = code
        self._wanted.setdefault(leading.key, (leading, change))
        return True
