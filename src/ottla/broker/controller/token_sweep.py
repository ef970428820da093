"""Delegation tokens that have expired are removed, every ``delegation.token.expiry.check.interval.ms``.

They are of no use before that: who is let in by one is asked by its time, and not by whether it is there.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.part import Part
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.controller.delegation_tokens import remove_expired
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.ports import TimerHandle, World

log = get_logger(__name__)

INTERVAL: Final = "delegation.token.expiry.check.interval.ms"


class TokenSweep(Part):
    """The sweep of expired tokens, at work while this node's controller is active and there are tokens."""

    def __init__(self, world: World, config: BrokerConfig, controller: ActiveController) -> None:
        self._world = world
        self._config = config
        self._controller = controller
        self._timer: TimerHandle | None = None

    def on_active(self, epoch: int) -> None:
        if self._config["delegation.token.secret.key"] is not None:
            self._later()

    def on_inactive(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self) -> None:
        self.on_inactive()

    def _later(self) -> None:
        self.on_inactive()
        self._timer = self._world.timers.call_later_ms(self._config[INTERVAL], self._due)

    def _due(self) -> None:
        self._timer = None
        eager.run(self._sweep(), self._swept)

    async def _sweep(self) -> int:
        count = 0
        while self._controller.is_active:
            [outcome] = await self._controller.decide([partial(remove_expired, now_ms=self._world.clock.now_ms())])
            if isinstance(outcome, KafkaError):
                raise outcome
            if not outcome.records:
                break
            count += len(outcome.records)
        return count

    def _swept(self, count: int | None, error: BaseException | None) -> None:
        if error is not None and not (isinstance(error, KafkaError) and error.code == ErrorCode.NOT_CONTROLLER):
            log.error("tokens_not_swept", exc_info=error)
        if count:
            log.info("delegation_tokens_removed", count=count)
        if self._controller.is_active:
            self._later()
