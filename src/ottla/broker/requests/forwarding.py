"""Requests that only the active controller decides go to it whole, in an envelope, with who sent them (KIP-590).

The client never learns: what the controller answers is sent as it comes, once this broker shows what was decided; so a client that asks
the same broker next sees its own change. While no controller is known, or one has just gone, the request waits for the next one. After
LEADERLESS_MS_MAX without one the answer is NOT_CONTROLLER where no controller can have decided, else REQUEST_TIMED_OUT, as in Kafka.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.requests.context import RequestContext
from ottla.broker.tasks import eager
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.messages.api_keys import ApiKey
from ottla.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from ottla.messages.error_answers import refusal
from ottla.messages.headers import decode_request_header
from ottla.security.principal import Principal
from ottla.wire.compiler import decode_from, encode
from ottla.wire.generator import Form
from ottla.wire.primitives import ManyElements

if TYPE_CHECKING:
    from ottla.broker.peers.controller_channel import ControllerChannel

log = get_logger(__name__)

PRINCIPAL_VERSION: Final = 0
UNANSWERED: Final = "no controller has answered in time"
UNDECIDED: Final = f"{UNANSWERED}: the change may be made yet"
SHOWN_MS_MAX: Final = 1000
"""How long an answer waits for this broker's image: one that opens thousands of partitions shows them later."""
LEADERLESS_MS_MAX: Final = 8_000
"""An election takes a second or two: after this time too few controllers run."""
_ENFORCED: Final = frozenset({ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.EXPIRE_DELEGATION_TOKEN})
"""What takes rights away is not answered before this broker enforces it: a client loses its connection rather than believe so too early."""


class Forwarding:
    """``wait_ms_max`` is how long a request is offered to controllers before it is answered with REQUEST_TIMED_OUT.

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
        silence = UNANSWERED if context.api.name.startswith("Describe") else UNDECIDED
        eager.run(
            self._decided_and_shown(request, silence, enforces=enforces), lambda answer, error: _answered(context, frame, answer, error)
        )

    async def _decided_and_shown(self, request: EnvelopeRequest, silence: str, *, enforces: bool) -> EnvelopeResponse | None:
        answer = await self._channel.ask_until(
            request, EnvelopeResponse, _is_final, timeout_ms=self._wait_ms_max, leaderless_ms_max=LEADERLESS_MS_MAX
        )
        if answer is None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, silence)
        try:
            async with asyncio.timeout((self._wait_ms_max if enforces else SHOWN_MS_MAX) / 1000):
                await self._shown(answer.metadata_end_offset)
        except TimeoutError:
            return None if enforces else answer
        return answer


def _is_final(answer: EnvelopeResponse) -> bool:
    return answer.error_code != ErrorCode.NOT_CONTROLLER


def _answered(context: RequestContext, frame: bytes, answer: EnvelopeResponse | None, error: BaseException | None) -> None:
    if isinstance(error, KafkaError):
        log.warning("request_not_forwarded", api=context.api.name, reason=error.message)
        _refuse(context, frame, error)
        return
    if answer is None or answer.error_code or answer.response_data is None:
        reason = "the change is not enforced here in time" if answer is None else ErrorCode(answer.error_code).name
        log.warning("request_not_forwarded", api=context.api.name, reason=reason, exc_info=error)
        context.connection.transport.abort()
        return
    data = answer.response_data
    if answer.pause_ms > 0:
        context.connection.pipeline.quotas.pause(context, answer.pause_ms)
    context.complete([len(data).to_bytes(4, "big"), data])


def _refuse(context: RequestContext, frame: bytes, error: KafkaError) -> None:
    """Answers with the error. A client that asked for so much that its answer would take long to make loses its connection."""
    api, version = context.api, context.version
    try:
        _, position = decode_request_header(memoryview(frame), is_flexible=version >= api.flexible)
        request, _ = decode_from(api.request, version, memoryview(frame), position, Form.FEW)
    except (DecodeError, ManyElements):
        context.connection.transport.abort()
        return
    context.reply(refusal(api, version, request, error.code, error.message))


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
