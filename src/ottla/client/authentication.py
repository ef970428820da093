"""A client's connection shows who it is: SaslHandshake, then SaslAuthenticate until the server has shown itself, too (KIP-43, KIP-152)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.ports import World
from ottla.security.client_exchange import Credentials, OAuthCredentials
from ottla.wire.schema import Request

NONCE_BYTES: Final = 18
STEPS_MAX: Final = 10


async def authenticate(ask: Callable[[Request, int], Awaitable[Any]], credentials: Credentials | OAuthCredentials, world: World) -> int:
    """Authenticates, and returns the session's time in milliseconds, 0 without a limit. KafkaError with the broker's code and text if
    refused.
    """
    mechanism = credentials.mechanism
    offered: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism), 1)
    if offered.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise KafkaError(offered.error_code, f"sasl.mechanism={mechanism}: the broker offers {', '.join(offered.mechanisms)}")
    if offered.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise KafkaError(offered.error_code, "the broker's listener does not speak SASL: security.protocol is another one there")
    if offered.error_code:
        raise KafkaError(offered.error_code, "the broker refused SaslHandshake")
    if isinstance(credentials, OAuthCredentials):
        credentials.take(await _given(credentials.asks))
    exchange = credentials.begin(lambda: world.secret_bytes(NONCE_BYTES).hex())
    token: bytes | None = exchange.first()
    lifetime_ms, version = 0, 1
    for _ in range(STEPS_MAX):
        answer: SaslAuthenticateResponse = await ask(SaslAuthenticateRequest(token or b""), version)
        if answer.error_code:
            raise KafkaError(answer.error_code, answer.error_message or "the broker refused the credentials")
        lifetime_ms = answer.session_lifetime_ms
        received = bytes(answer.auth_bytes)
        work = exchange.work(received)
        if work is not None:
            await asyncio.to_thread(work)
        token = exchange.step(received)
        if token is None:
            return lifetime_ms
    raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"the exchange has not ended after {STEPS_MAX} tokens")


async def _given(asks: Callable[[], object]) -> object:
    """Returns what the function gives, which may block. A failure is one of the authentication."""
    try:
        given = await asyncio.to_thread(asks)
        return await given if inspect.isawaitable(given) else given
    except KafkaError:  # of the issuer that was asked
        raise
    except Exception as error:
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"sasl_oauth_token has failed: {type(error).__name__}") from error
