"""Keys and certificates of listeners, which change while their node runs (KIP-226, KIP-978).

They change by AlterConfigs of the node itself: ``listener.name.NAME.ssl.keystore.*`` and ``ssl.truststore.*``. A value that is set again
has its file read again, too. ``check`` looks at them before the change is decided, at the broker that a client asks, since the files are
here: what cannot be used is refused, and so is what other nodes that have the old stores would not take. When the change is part of the
metadata, connections from then on have the new stores; open ones stay. A store that cannot be used then is logged, and the old one stays.

No client reaches a node that is a controller alone: what is set for it is decided without a look, and it looks itself, as carefully, when
that is in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from ottla.broker.part import Part
from ottla.broker.peers.introduction import Introductions
from ottla.broker.requests.gatekeeper import Gatekeeper
from ottla.broker.requests.listener_security import Protocol, get_of, read_server, read_stores, used_protocols
from ottla.config import BrokerConfig
from ottla.config.keys.dynamic import LISTENER, is_of_store
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger
from ottla.metadata.delta import ImageDelta
from ottla.ports import World
from ottla.security.certificate_changes import DN_CHANGES, SAN_CHANGES, check_change, check_validity
from ottla.security.tls_settings import client_of
from ottla.security.validity import fault_of
from ottla.tls import TlsClient, TlsKeys, TlsServer

log = get_logger(__name__)

READ_SECONDS_MAX: Final = 10
WAY_OUT: Final = "put a usable store there, and set its key again; where the present certificate has expired, it is read again each minute"


class TlsStores(Part):
    """The stores of one node: for its listeners, and for its own connections to other nodes."""

    def __init__(self, world: World, config: BrokerConfig, gate: Gatekeeper, introductions: Introductions) -> None:
        self._world = world
        self._config = config
        self._gate = gate
        self._is_controller_alone: Final = config["process.roles"] == ["controller"]
        self._between = {
            made.listener: made for made in (introductions.brokers, introductions.controllers) if made.listener and made.tls is not None
        }

    async def check(self, changed: Mapping[str, str | None], wanted: Mapping[str, str]) -> None:
        """Raises INVALID_REQUEST unless this node could use its stores, named by ``changed``, with ``wanted`` as its dynamic values."""
        listeners = sorted({listener for key in changed if (listener := listener_of(key)) is not None})
        if not listeners:
            return
        config = self._config.with_dynamic(own=wanted, default={})
        for listener in listeners:
            if listener not in self._gate.servers and listener not in self._between:
                raise _refused(f"{LISTENER}{listener.lower()}.ssl.*: this node has no listener of that name that speaks TLS")
            try:
                await self._check(config, listener)
            except (KafkaError, ValueError) as error:
                raise _refused(f"listener {listener}: {error.message if isinstance(error, KafkaError) else error}") from None

    async def _check(self, config: BrokerConfig, listener: str) -> None:
        self._judge(listener, *await self._read(config, listener))

    def _judge(self, listener: str, new: TlsServer | None, client: TlsClient | None) -> None:
        """Raises INVALID_CONFIG for what other nodes, or this one, would not take beside the present stores."""
        old, between = self._gate.servers.get(listener), self._between.get(listener)
        if old is None or new is None:  # the listener is another node's
            return
        self._check_change(listener, old, new)
        if between is None or between.tls is None or client is None:
            return
        # No node takes an old certificate that is not valid, beside whatever new one; what is trusted still counts.
        own_before = replace(between.tls, keys=client.keys) if self._is_not_valid(between.tls.keys) else between.tls
        before = replace(old, keys=new.keys) if self._is_not_valid(old.keys) else old
        for whose, server, own in (
            ("this node's", new, client),
            ("nodes' that have the old stores", new, own_before),
            ("this node's, where the old stores are,", before, client),
        ):
            try:
                self._world.network.check_handshake(server, own)
            except ValueError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"{whose} connections to it would fail: {error}") from None

    def _is_not_valid(self, keys: TlsKeys | None) -> bool:
        return keys is not None and fault_of(keys.chain, self._world.clock.now_ms()) is not None

    def _protocol(self, listener: str) -> Protocol:
        return used_protocols(self._config, [listener])[listener]

    def _check_change(self, listener: str, old: TlsServer, new: TlsServer) -> None:
        get = get_of(self._config, listener, self._protocol(listener))
        check_validity(new.keys, now_ms=self._world.clock.now_ms())
        check_change(old.keys, new.keys, may_change_subject=get(DN_CHANGES), may_lose_names=get(SAN_CHANGES))

    async def _read(self, config: BrokerConfig, listener: str) -> tuple[TlsServer | None, TlsClient | None]:
        """Reads the stores of the listener, and of this node as a client of others. INVALID_CONFIG or ValueError."""
        reading = asyncio.ensure_future(self._read_both(config, listener))
        await asyncio.wait({reading}, timeout=READ_SECONDS_MAX)
        if not reading.done():  # as where a file is on a disk that does not answer
            reading.cancel()
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"the stores cannot be read within {READ_SECONDS_MAX} seconds")
        return reading.result()

    async def _read_both(self, config: BrokerConfig, listener: str) -> tuple[TlsServer | None, TlsClient | None]:
        protocol = self._protocol(listener)
        server = await read_server(self._world, config, listener, protocol) if listener in self._gate.servers else None
        if listener not in self._between:
            return server, None
        get = get_of(config, listener, protocol)
        client = client_of(get, await read_stores(self._world, get))
        self._world.network.check_tls(client)
        return server, client

    async def on_image(self, delta: ImageDelta) -> None:
        """Applies what was set for this node."""
        name = str(self._config.node_id)
        old, new = delta.old.broker_configs(name), delta.new.broker_configs(name)
        if new is old:
            return
        for listener in sorted(set(_touched(old, new))):
            if listener in self._gate.servers or listener in self._between:
                await self.load(listener)

    async def load(self, listener: str) -> None:
        """Reads the stores of the listener again: new connections have them, unless they cannot be used, which is logged."""
        old = self._gate.servers.get(listener)
        try:
            new, client = await self._read(self._config, listener)
            if old is not None and new is not None and self._gate.is_serving(listener):  # what it was started with may be older
                if self._is_controller_alone:
                    self._judge(listener, new, client)
                else:
                    self._check_change(listener, old, new)
        except (KafkaError, ValueError) as error:
            reason = error.message if isinstance(error, KafkaError) else str(error)
            log.error("tls_stores_not_loaded", listener=listener, reason=reason, way_out=WAY_OUT)
            self._gate.keep_stores(listener)
            return
        if new is not None:
            self._gate.use_stores(listener, new)
        if client is not None:
            self._between[listener].tls = client
        log.info("tls_stores_loaded", listener=listener)


def listener_of(key: str) -> str | None:
    """Returns the listener whose store the key is about; None for a key of another kind."""
    return key.removeprefix(LISTENER).partition(".")[0].upper() if is_of_store(key) else None


def _touched(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """Yields listeners with a value that was set or removed: a value that was set again is equal, and another object."""
    for key in old.keys() | new.keys():
        listener = listener_of(key)
        if listener is not None and old.get(key) is not new.get(key):
            yield listener


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
