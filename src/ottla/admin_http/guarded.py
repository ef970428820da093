"""The admin pages over TLS, for who shows who it is and may DESCRIBE the cluster. ``/healthz``, ``/livez`` and ``/readyz`` stay open.

While the broker starts, its users and ACLs are not all known: the other pages are answered with 503 then, for everyone.

A load balancer without a password is answered whether the broker is ready, and not why it is not. Without an authorizer all who connect
are let in, as by the broker's own listeners. Keys and certificates come from ``listener.name.admin.ssl.*``, else from ``ssl.*``; a change
takes effect after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final

import msgspec

from ottla.admin_http.callers import Callers
from ottla.admin_http.pages import CONNECTIONS_MAX, HEAD_BYTES_MAX, REQUEST_SECONDS_MAX, AdminPages, Answer, as_json, response_to
from ottla.broker.requests.listener_security import ADMIN, Protocol, admin_protocols, get_of, read_tls
from ottla.broker.status import Node
from ottla.config.principal_rules import RULES, PrincipalRules
from ottla.messages.acl_codes import Operation, ResourceType
from ottla.ports import Connection
from ottla.security.principal import USER, Principal
from ottla.security.validity import ends_ms
from ottla.tls import TlsError, TlsPeer

CLUSTER: Final = "kafka-cluster"
OPEN: Final = ("/healthz", "/livez")
READY: Final = "/readyz"
CHALLENGE: Final = 'WWW-Authenticate: Basic realm="ottla", charset="UTF-8"'
UNKNOWN: Final = as_json({"error": "the broker starts, and does not know yet who may see this"}, HTTPStatus.SERVICE_UNAVAILABLE)
END: Final = b"\r\n\r\n"


class Guard:
    """The answer to who has shown something, or nothing."""

    def __init__(self, node: Node, pages: AdminPages) -> None:
        self._node = node
        self._pages = pages
        self._callers = Callers(node)
        config = node.config
        self._is_open: Final = not config["authorizer.class.name"]
        self._delay_s: Final = config["connection.failed.authentication.delay.ms"] / 1000
        self._rules: Final = PrincipalRules.parse(get_of(config, ADMIN, Protocol.SSL)(RULES))

    async def get(self, path: str, host: str, subject: str | None, authorization: str | None) -> Answer:
        """Returns the page, or why it is not shown; the text does not reveal whether such a page or user exists."""
        if path in OPEN:
            return await self._pages.get(path)
        if self._is_open:
            return await self._pages.get(path)
        if not self._node.has_started:
            return _without_reasons(await self._pages.get(path)) if path == READY else UNKNOWN
        principal = await self._principal(subject, authorization)
        if principal is not None and self._node.status.parts.authorizer.rights(principal, host).may(
            Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER
        ):
            return await self._pages.get(path)
        if path == READY:
            return _without_reasons(await self._pages.get(path))
        if principal is not None:
            return as_json({"error": "DESCRIBE on the cluster is needed"}, HTTPStatus.FORBIDDEN)
        if authorization is not None:
            await asyncio.sleep(self._delay_s)
        return as_json({"error": "a name and a password are needed"}, HTTPStatus.UNAUTHORIZED)._replace(headers=(CHALLENGE,))

    async def _principal(self, subject: str | None, authorization: str | None) -> Principal | None:
        if authorization is not None:
            return await self._callers.principal(authorization)
        name = None if subject is None else self._rules.name_of(subject)
        return Principal(USER, name) if name else None


def _without_reasons(answer: Answer) -> Answer:
    return as_json({"status": msgspec.json.decode(answer.body)["status"]}, answer.status)


class _Asking:
    """One connection: its head is collected, answered once, and that is all. A ``ConnectionHandler``."""

    def __init__(self, transport: Connection, guard: Guard, connections: dict[Connection, _Asking]) -> None:
        self.subject: str | None = None
        self._transport = transport
        self._guard = guard
        self._connections = connections
        self._head = bytearray()
        self._task: asyncio.Task[None] | None = None
        connections[transport] = self
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_SECONDS_MAX, transport.abort)

    def on_data(self, data: memoryview) -> bool:
        if self._task is None:
            self._head += data
            end = self._head.find(END)
            if end >= 0:
                self._task = asyncio.create_task(self._answer(bytes(self._head[: end + len(END)])))
            elif len(self._head) > HEAD_BYTES_MAX:
                self._transport.abort()
        return False

    async def _answer(self, head: bytes) -> None:
        host, authorization = self._transport.peer[0], _authorization_of(head)
        self._transport.send([await response_to(head, lambda path: self._guard.get(path, host, self.subject, authorization))])
        self._transport.close()

    def room(self) -> memoryview | None:
        return None

    def on_drain(self) -> None: ...

    def on_close(self, error: Exception | None) -> None:
        self._deadline.cancel()
        self._connections.pop(self._transport, None)
        if self._task is not None:
            self._task.cancel()


def _authorization_of(head: bytes) -> str | None:
    """Returns the header's value; of several, none is taken."""
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    found = [value for name, _, value in lines if name.strip().lower() == b"authorization"]
    if not found:
        return None
    return found[0].decode("latin-1") if len(found) == 1 else ""


@contextlib.asynccontextmanager
async def guarded_pages(node: Node, pages: AdminPages, host: str, port: int) -> AsyncIterator[tuple[str, int]]:
    """Serves the pages while the context lasts; yields host and port as bound."""
    world, config = node.world, node.config
    tls = await read_tls(world, config, admin_protocols(config))
    guard, pages.certificate_ends_ms = Guard(node, pages), ends_ms(tls[ADMIN].keys.chain)
    connections: dict[Connection, _Asking] = {}

    def accept(transport: Connection) -> _Asking:
        made = _Asking(transport, guard, connections)
        if len(connections) > CONNECTIONS_MAX:  # close the connection that has waited longest
            next(iter(connections)).abort()
        return made

    def on_tls(transport: Connection, peer: TlsPeer | TlsError) -> None:
        asking = connections.get(transport)
        if asking is not None and isinstance(peer, TlsPeer):
            asking.subject = peer.subject

    listener = await world.network.listen(host, port, accept, tls=tls[ADMIN], on_tls=on_tls)
    try:
        yield listener.address
    finally:
        await listener.close()
        for transport in list(connections):
            transport.abort()
