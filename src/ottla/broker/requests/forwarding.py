"""Requests that only the active controller decides go to it whole, in an envelope, with who sent them (KIP-590).

The client never learns: what the controller answers is sent as it comes, once this broker shows what was decided; so a client that asks
the same broker next sees its own change. While no controller is known, or one has just gone, the request waits for the next one, as
long as a client waits for an answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.requests.context import RequestContext
from ottla.broker.tasks import eager
from ottla.errors import ErrorCode
from ottla.loggers import get_logger
from ottla.messages.api_keys import ApiKey
from ottla.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from ottla.security.principal import Principal
from ottla.wire.compiler import encode

if TYPE_CHECKING:
    from ottla.broker.peers.controller_channel import ControllerChannel

log = get_logger(__name__)

PRINCIPAL_VERSION: Final = 0
SHOWN_MS_MAX: Final = 1000
"""How long an answer waits for this broker's image: one that opens thousands of partitions shows them later."""
_ENFORCED: Final = frozenset({ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.EXPIRE_DELEGATION_TOKEN})
"""What takes rights away is not answered before this broker enforces it: a client loses its connection rather than believe so too early."""


class Forwarding:
    """``wait_ms_max`` is how long a request is offered to controllers before its client loses its connection.

    ``shown`` waits until this broker's image ends at an offset of the metadata log, or behind it.
    """

    def __init__(self, channel: ControllerChannel, shown: Callable[[int], Awaitable[None]], *, wait_ms_max: int) -> None:
        self._channel = channel
        self._shown = shown
        self._wait_ms_max = wait_ms_max

    def forward(self, context: RequestContext, frame: bytes) -> None:
        """Sends the controller's answer when its turn comes."""
        request = EnvelopeRequest(frame, principal_bytes(context.principal), host_bytes(context.connection.client_host))
        enforces = context.api.key in _ENFORCED
        eager.run(self._decided_and_shown(request, enforces=enforces), lambda answer, error: _answered(context, answer, error))

    async def _decided_and_shown(self, request: EnvelopeRequest, *, enforces: bool) -> EnvelopeResponse | None:
        answer = await self._channel.ask_until(request, EnvelopeResponse, _is_final, timeout_ms=self._wait_ms_max)
        if answer is None:
            return None
        try:
            async with asyncio.timeout((self._wait_ms_max if enforces else SHOWN_MS_MAX) / 1000):
                await self._shown(answer.metadata_end_offset)
        except TimeoutError:
            return None if enforces else answer
        return answer


def _is_final(answer: EnvelopeResponse) -> bool:
    return answer.error_code != ErrorCode.NOT_CONTROLLER


def _answered(context: RequestContext, answer: EnvelopeResponse | None, error: BaseException | None) -> None:
    if answer is None or answer.error_code or answer.response_data is None:
        reason = "no controller answers" if answer is None else ErrorCode(answer.error_code).name
        log.warning("request_not_forwarded", api=context.api.name, reason=reason, exc_info=error)
        context.connection.transport.abort()
        return
    data = answer.response_data
    context.complete([len(data).to_bytes(4, "big"), data])


def principal_bytes(principal: Principal) -> bytes:
    """Returns Kafka's default form of a principal."""
    data = DefaultPrincipalData(principal.kind, principal.name, principal.by_token)
    return PRINCIPAL_VERSION.to_bytes(2, "big") + encode(data, PRINCIPAL_VERSION)


def host_bytes(host: str) -> bytes:
    """Returns an address of 4 or 16 bytes; for a name, that of this host."""
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        return ipaddress.ip_address("127.0.0.1").packed
