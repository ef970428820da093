"""A controller, active or not, makes itself known to the cluster: once for each process (KIP-919)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ottla.broker.part import Part
from ottla.broker.peers.controller_channel import ControllerChannel
from ottla.broker.tasks import eager
from ottla.controller.controllers import REGISTRATION_SINCE
from ottla.controller.features import METADATA_VERSION
from ottla.errors import ErrorCode
from ottla.loggers import get_logger
from ottla.messages.broker_registration import Feature, Listener
from ottla.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import ControllerImage

log = get_logger(__name__)

RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 1_000


class ControllerEnrolment(Part):
    """``own`` is what this process says of itself, once its listeners are bound."""

    def __init__(self, channel: ControllerChannel, own: Callable[[], ControllerImage]) -> None:
        self._channel = channel
        self._own = own
        self._is_asking = self._is_done = self._is_closed = False

    async def on_image(self, delta: ImageDelta) -> None:
        """Registers this controller, once the cluster has a place for it."""
        image = delta.new
        if not (self._is_done or self._is_asking or self._is_closed) and image.features.get(METADATA_VERSION, 0) >= REGISTRATION_SINCE:
            self._is_asking = True
            eager.run(self._register(), self._ended)

    async def stop(self) -> None:
        self._is_closed = True

    def _ended(self, _: None, error: BaseException | None) -> None:
        self._is_asking = False
        if error is not None and not isinstance(error, asyncio.CancelledError):
            log.error("controller_not_registered", exc_info=error)

    async def _register(self) -> None:
        delay_ms, request = RETRY_MS, self._request()
        await asyncio.sleep(0)  # the publisher of the image goes on first
        while not self._is_closed:
            answer = await self._channel.ask(request, ControllerRegistrationResponse)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                self._is_done = True
                log.info("controller_registered", controller_id=request.controller_id)
                return
            if answer is not None and answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                return  # a downgrade came between; the next upgrade is followed
            await asyncio.sleep(delay_ms / 1000)
            delay_ms = min(delay_ms * 2, RETRY_MS_MAX)

    def _request(self) -> ControllerRegistrationRequest:
        own = self._own()
        return ControllerRegistrationRequest(
            own.controller_id,
            own.incarnation_id,
            False,
            [Listener(end.listener, end.host, end.port, end.security_protocol) for _, end in sorted(own.endpoints.items())],
            [Feature(name, low, high) for name, (low, high) in sorted(own.features.items())],
        )
