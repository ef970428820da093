"""Where a node gets the tokens by which it makes itself known to others: of an issuer, by an id and a secret of its own, or of a file.

Something else puts new tokens into the file; it is read for each connection. An issuer is asked when the last token is old, by one request
for all connections that need one, and not again within ``AGAIN_MS`` of a failure. The keys are Kafka's, each also by listener and
mechanism. Source: KIP-768.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ottla.broker.requests.listener_security import oauth_value
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import World
from ottla.security.token_endpoint import TokenEndpoint, check_endpoint

URL: Final = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
SCOPE: Final = "sasl.oauthbearer.scope"
TOKEN_BYTES_MAX: Final = 1 << 18
AGAIN_MS: Final = 1_000


async def read_token_source(world: World, config: BrokerConfig, listener: str) -> Callable[[], object]:
    """Returns the source of tokens. INVALID_CONFIG where none would come."""

    def get(key: str) -> str | None:
        found = oauth_value(config, listener, key)
        return getattr(found, "reveal", lambda: found)()  # type: ignore[no-any-return]  # a password is one of them

    url, client_id, client_secret, scope = get(URL), get(CLIENT_ID), get(CLIENT_SECRET), get(SCOPE)
    where = f"{URL} of listener {listener}"
    if not url:
        raise _refused(f"{where} is not set: this node makes itself known to others by tokens, of file:/PATH or https://HOST/PATH")
    if url.startswith("file:"):
        if client_id is not None or client_secret is not None or scope is not None:
            raise _refused(f"{where} is a file, which has the token itself: remove {CLIENT_ID}, {CLIENT_SECRET} and {SCOPE}")
        path = unquote(urlsplit(url).path)
        source = _FileToken(world, path)
        try:
            await source.newest()
        except OSError as error:
            raise _refused(f"{where}: {path} cannot be read: {error.strerror or error}") from None
        return source.newest
    problem = check_endpoint(url)
    if problem is not None:
        raise _refused(f"{where}: {problem}, or file:/PATH")
    if not client_id or not client_secret:
        raise _refused(f"{where} needs {CLIENT_ID} and {CLIENT_SECRET}, by which the issuer knows this node")
    if world.fetch is None:
        raise _refused(f"{where}: nothing can be fetched here")
    secret = oauth_value(config, listener, CLIENT_SECRET)
    endpoint = TokenEndpoint(world.fetch, world.clock.monotonic_ms, url=url, client_id=client_id, client_secret=secret, scope=scope)
    return _Shared(endpoint.newest, world.clock.monotonic_ms).newest


class _Shared:
    """One question at a time, whose answer all have who ask meanwhile."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, str]], now_ms: Callable[[], int]) -> None:
        self._ask = ask
        self._now_ms = now_ms
        self._asking: asyncio.Task[str] | None = None
        self._failure: tuple[int, KafkaError] | None = None  # until when it is the answer

    async def newest(self) -> str:
        if self._failure is not None and self._now_ms() < self._failure[0]:
            raise KafkaError(self._failure[1].code, self._failure[1].message)
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
            self._asking.add_done_callback(self._answered)
        return await asyncio.shield(self._asking)

    def _answered(self, task: asyncio.Task[str]) -> None:
        self._asking = None
        error = None if task.cancelled() else task.exception()
        self._failure = (self._now_ms() + AGAIN_MS, error) if isinstance(error, KafkaError) else None


class _FileToken:
    def __init__(self, world: World, path: str) -> None:
        self._world = world
        self._path = path

    async def newest(self) -> str:
        """Returns what the file has now, without the end of its line. OSError where it cannot be read."""
        data = await self._world.disk.read_given_file(self._path, bytes_max=TOKEN_BYTES_MAX)
        return bytes(data).decode("ascii", "replace").strip()


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
