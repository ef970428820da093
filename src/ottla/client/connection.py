"""One connection to one broker: requests out, responses matched to them in order.

The first exchange is ApiVersions, asked in the newest version and again in version 0 when the broker does not know it
(KIP-511). From then on each request is sent in the newest version that both sides have. Responses come in the order of
the requests; one that does not is the end of the connection.

Where the client has credentials, they are shown next (``authenticate``). A broker may ask for them again after some time: the connection is
retired before that, so that another one is made, and closed when all that was asked on it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ottla import __version__
from ottla.client.authentication import authenticate
from ottla.client.call_limit import waiting_for
from ottla.client.security import ClientSecurity
from ottla.errors import DecodeError, EncodeError, ErrorCode, KafkaError
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.in_flight import InFlight
from ottla.messages.registry import API_OF_REQUEST, APIS, Api
from ottla.ports import Connection, TimerHandle, World
from ottla.tls import TlsEndedError, TlsError, TlsUntrustedError
from ottla.wire.frames import FrameCutter
from ottla.wire.schema import Request, Response

RESPONSE_BYTES_MAX: Final = 2**31 - 1
SOFTWARE_NAME: Final = "ottla"
EXPIRED: Final = "certificate has expired"
EARLY: Final = "certificate is not yet valid"
"""As OpenSSL says it."""
_PLAIN: Final = "; a listener that speaks plain text ends it so (security.protocol=PLAINTEXT or SASL_PLAINTEXT is for such)"
_HTTP: Final = b"HTTP/"
_ANSWERS_IN_HTTP: Final = (
    "answers in HTTP: it has pages, as ottla.admin.listener does, and is no listener of brokers (these are in listeners of the node's file)"
)
RETIRED_AT, RETIRED_WITHIN = 0.85, 0.1
"""Of a session's time: Kafka's clients authenticate again at a point between."""
R = TypeVar("R", bound=Response)


@contextmanager
def _refusing(api: Api) -> Iterator[None]:
    """Raises INVALID_REQUEST for a value that the request cannot hold: it is the caller's, who gave it to a method."""
    try:
        yield
    except EncodeError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{api.name} was not sent, since it cannot hold what was given: {error}") from error


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The features of the cluster, as a broker knew them when it was connected; the newer ones have the higher epoch."""

    epoch: int = -1
    levels: Mapping[str, int] = field(default_factory=dict)


class ClientConnection:
    """A ``ports.ConnectionHandler``. Made by ``connect``."""

    def __init__(self, world: World, transport: Connection, client_id: str, address: str, silent: set[str] | None = None) -> None:
        self.address: Final = address
        self._silent = set[str]() if silent is None else silent
        self._world = world
        self._transport = transport
        self._cutter = FrameCutter(RESPONSE_BYTES_MAX)
        self._in_flight: InFlight[asyncio.Future[Any]] = InFlight(client_id)
        self._versions: Mapping[int, tuple[int, int]] = {}
        self.features = FinalizedFeatures()
        self.is_closed = False
        self._was_answered = False
        self._is_retired = False
        self._retiring: TimerHandle | None = None

    @classmethod
    async def connect(
        cls, world: World, host: str, port: int, *, client_id: str, timeout_ms: int, security: ClientSecurity | None = None,
        silent: set[str] | None = None,
    ) -> ClientConnection:  # fmt: skip
        """Returns an open connection whose broker's versions are known, and which is authenticated.

        In ``silent`` is its address from an attempt or a request that stays unanswered to the next answer.

        KafkaError NETWORK_EXCEPTION when no server answers. When one does not let the client in, SASL_AUTHENTICATION_FAILED, of TLS
        too, or UNSUPPORTED_SASL_MECHANISM, which are not to be tried again.
        """
        made: list[ClientConnection] = []

        def make(transport: Connection) -> ClientConnection:
            made.append(cls(world, transport, client_id, f"{host}:{port}", silent))
            return made[0]

        credentials = None if security is None else security.credentials
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await world.network.connect(host, port, make, tls=None if security is None else security.tls)
                await made[0]._negotiate()
                if credentials is not None:
                    made[0]._retire_after(await authenticate(made[0]._send_exactly, credentials, world))
        except TlsError as error:
            for connection in made:
                connection.close()
            if isinstance(error, TlsEndedError):
                raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{host}:{port}: {error}{_PLAIN}") from error
            is_untrusted = isinstance(error, TlsUntrustedError)
            way_out = "; ssl.truststore.location names the authorities that a client trusts" if is_untrusted else ""
            if EXPIRED in str(error):
                way_out = "; an ottla broker takes a new one within a minute, once it is in the file of ssl.keystore.location"
            elif EARLY in str(error):
                way_out = "; compare the clock of this machine with that of the authority that made the certificate"
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, f"TLS with {host}:{port}: {error}{way_out}") from error
        except (OSError, TimeoutError) as error:
            for connection in made:
                connection.close()
            if isinstance(error, TimeoutError) and silent is not None:
                silent.add(f"{host}:{port}")
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"no broker at {host}:{port}: {str(error) or 'timed out'}") from error
        except (KafkaError, asyncio.CancelledError):
            for connection in made:
                connection.close()
            raise
        return made[0]

    @property
    def is_retired(self) -> bool:
        """Whether another connection is to be made for what is asked next."""
        return self._is_retired or self.is_closed

    @property
    def in_flight_count(self) -> int:
        """How many requests await their answers."""
        return len(self._in_flight)

    def suspect(self) -> None:
        """Has other brokers asked first until this one answers: an answer is late."""
        self._silent.add(self.address)

    def _retire_after(self, lifetime_ms: int) -> None:
        if lifetime_ms > 0:
            share = RETIRED_AT + RETIRED_WITHIN * self._world.random.random()
            self._retiring = self._world.timers.call_later_ms(int(lifetime_ms * share), self._retire)

    def _retire(self) -> None:
        self._is_retired = True
        if not self._in_flight:
            self.close()

    async def _send_exactly(self, request: Request, version: int) -> Any:
        api = API_OF_REQUEST[type(request)]
        if self.version_of(api) < version:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} v{version} is needed, and the broker does not have it")
        return await self._send(request, api, version)

    async def _negotiate(self) -> None:
        api = APIS[ApiKey.API_VERSIONS]
        request = ApiVersionsRequest(SOFTWARE_NAME, __version__)
        self._versions = {api.key: (0, api.version_max)}
        response: ApiVersionsResponse = await self._send(request, api, api.version_max)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            own = {key.api_key: min(key.max_version, api.version_max) for key in response.api_keys}
            response = await self._send(request, api, own.get(api.key, 0))
        if response.error_code:
            raise KafkaError(response.error_code, "the broker refused ApiVersions")
        self._take_versions(response)

    def _take_versions(self, response: ApiVersionsResponse) -> None:
        self._versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
        self.features = FinalizedFeatures(response.finalized_features_epoch, levels)

    async def renew_versions(self, *, timeout_ms: int) -> None:
        """Renews versions and features from what the broker has now."""
        response = await self.ask(ApiVersionsRequest(SOFTWARE_NAME, __version__), ApiVersionsResponse, timeout_ms=timeout_ms)
        if response.error_code:
            raise KafkaError(response.error_code, "the broker refused ApiVersions")
        self._take_versions(response)

    def version_of(self, api: Api) -> int:
        """Returns the newest version of the API that both sides have; UNSUPPORTED_VERSION when there is none."""
        low, high = self._versions.get(api.key, (0, -1))
        version = min(api.version_max, high)
        if version < max(low, api.version_min):
            text = f"has versions {low} to {high}, this client {api.version_min} to {api.version_max}"
            has = text if api.key in self._versions else "does not have this API"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name}: the broker {has}")
        return version

    def require(self, kind: type[Request], version: int) -> None:
        """Raises UNSUPPORTED_VERSION when the API is older here: what the request says would be lost."""
        api = API_OF_REQUEST[kind]
        if self.version_of(api) < version:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name}: version {version} is needed, and the broker does not have it")

    def has(self, api_key: int) -> bool:
        """True when the broker serves the API at all."""
        return api_key in self._versions

    async def ask(self, request: Request, response_type: type[R], *, timeout_ms: int, version_max: int | None = None) -> R:
        """Returns the response. NETWORK_EXCEPTION when the connection breaks, REQUEST_TIMED_OUT when it stays silent for too long."""
        api = API_OF_REQUEST[type(request)]
        version = self.version_of(api)
        if version_max is not None:
            version = min(version, version_max)
        future = self._send(request, api, version)
        try:
            with waiting_for(f"{self.address} to answer {api.name}", self):
                async with asyncio.timeout(timeout_ms / 1000):
                    response = await future
        except TimeoutError:
            self._silent.add(self.address)
            self.close()  # responses come in order: what follows would wait for this one
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{self.address} has not answered {api.name} in {timeout_ms} ms") from None
        assert isinstance(response, response_type), "an API has one response type"
        return response

    def send_unanswered(self, request: Request) -> None:
        """Sends a Produce with acks=0: nothing comes back."""
        api = API_OF_REQUEST[type(request)]
        with _refusing(api):
            pieces = self._in_flight.unanswered(request, api, self.version_of(api))
        self._transport.send(pieces)

    def _send(self, request: Request, api: Api, version: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            future.set_exception(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection is closed"))
            return future
        with _refusing(api):
            pieces = self._in_flight.add(request, api, version, future)
        self._transport.send(pieces)  # which may find that the connection is broken, and fail all that was sent
        return future

    def room(self) -> memoryview | None:
        return self._cutter.room()

    def on_data(self, data: memoryview) -> bool:
        kept = False
        if not self._was_answered and bytes(data[: len(_HTTP)]) == _HTTP:  # taken as a length it would be that of a gigabyte
            self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self.address} {_ANSWERS_IN_HTTP}"))
            return kept
        try:
            for frame, is_borrowed in self._cutter.feed(data):
                holds_views = self._on_frame(frame)
                kept = kept or (holds_views and is_borrowed)
        except DecodeError as error:
            self._fail(error)
        return kept

    def _on_frame(self, frame: memoryview) -> bool:
        """True when the response holds views of the frame (fetched records)."""
        sent, response = self._in_flight.answered(frame)
        self._was_answered = True
        if self._silent:
            self._silent.discard(self.address)
        if not sent.waiter.done():
            sent.waiter.set_result(response)
        if self._is_retired and not self._in_flight:
            self._world.timers.call_later_ms(0, self.close)  # the caller may still read what it was given
        return sent.api.key == ApiKey.FETCH

    def on_drain(self) -> None:
        """Does nothing, since nothing waits for it: the callers bound what may be in flight."""

    def on_close(self, error: Exception | None) -> None:
        when = "" if self._was_answered else " before its first answer, as a listener does that wants TLS or a user (security.protocol)"
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"the connection broke: {error or f'closed by the broker{when}'}"))

    def give_up(self) -> None:
        """Closes it, since the broker leaves requests unanswered that another one is to be asked now."""
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{self.address} did not answer, and another broker has its place by now"))

    def close(self) -> None:
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection was closed"))

    def _fail(self, error: KafkaError) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self._retiring is not None:
            self._retiring.cancel()
        self._transport.abort()
        self._cutter.close()
        for future in self._in_flight.end():
            if not future.done():
                future.set_exception(error)
                future.exception()  # the caller may have been cancelled: no warning then
