"""A small HTTP server for operators, beside a broker on its loop. It reads, and changes nothing.

====================  ==================================================================================================
``/metrics``          Kafka's names and ours, few enough for any cluster
``/metrics/partitions``  sizes and offsets of each partition
``/metrics/lag``      offsets and lag of topics and groups, under kafka_exporter's names
``/healthz``          the process lives (``/livez`` is the same)
``/readyz``           200 when clients should be sent here, 503 with the reasons when not
``/version``          what runs
====================  ==================================================================================================

It listens where ``ottla.admin.listener`` says, on loopback when no host is set. Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from ottla import __version__
from ottla.admin_http.exposition import CONTENT_TYPE, render
from ottla.admin_http.health import liveness, readiness
from ottla.admin_http.kafka_names import broker_families, partition_families
from ottla.admin_http.lag import lag_families
from ottla.admin_http.process import IdleMeter, process_families
from ottla.admin_http.transaction_names import transaction_families
from ottla.broker.status import Status
from ottla.errors import ErrorCode, KafkaError
from ottla.loggers import get_logger

log = get_logger(__name__)

HEAD_BYTES_MAX: Final = 16 * 1024
REQUEST_SECONDS_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 64


class Answer(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes


def as_json(value: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(status, "application/json", msgspec.json.encode(value) + b"\n")


class AdminPages:
    """The pages of the admin listener, and the answer for each path."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self._idle = IdleMeter()
        self._started_at = time.time()
        self._pages: dict[str, Callable[[], Awaitable[Answer]]] = {
            "/metrics": self._metrics,
            "/metrics/partitions": self._partitions,
            "/metrics/lag": self._lag,
            "/healthz": self._live,
            "/livez": self._live,
            "/readyz": self._ready,
            "/version": self._version,
        }

    async def get(self, path: str) -> Answer:
        page = self._pages.get(path)
        if page is None:
            return as_json({"error": f"no page {path}", "pages": sorted(self._pages)}, HTTPStatus.NOT_FOUND)
        return await page()

    async def _metrics(self) -> Answer:
        families = [
            *broker_families(self._status, idle_share=self._idle.read()),
            *transaction_families(self._status, now_ms=self._status.parts.world.clock.now_ms()),
            *process_families(self._status, started_at=self._started_at),
        ]
        return Answer(HTTPStatus.OK, CONTENT_TYPE, render(families).encode())

    async def _partitions(self) -> Answer:
        return Answer(HTTPStatus.OK, CONTENT_TYPE, render(partition_families(self._status)).encode())

    async def _lag(self) -> Answer:
        return Answer(HTTPStatus.OK, CONTENT_TYPE, render(await lag_families(self._status)).encode())

    async def _live(self) -> Answer:
        return as_json(liveness(self._status))

    async def _ready(self) -> Answer:
        found = readiness(self._status)
        return as_json(found, HTTPStatus.OK if found["status"] == "ready" else HTTPStatus.SERVICE_UNAVAILABLE)

    async def _version(self) -> Answer:
        return as_json({"name": "ottla", "version": __version__, "node_id": self._status.node_id, "cluster_id": self._status.cluster_id})


@contextlib.asynccontextmanager
async def serve_admin(status: Status) -> AsyncIterator[tuple[str, int] | None]:
    """The pages are served while the context lasts; yields host and port, or None when ``ottla.admin.listener`` is not set."""
    address = status.parts.config["ottla.admin.listener"]
    if address is None:
        yield None
        return
    host, port = parse_address(address)
    pages = AdminPages(status)
    open_count = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_count
        open_count += 1
        try:
            if open_count <= CONNECTIONS_MAX:
                await asyncio.wait_for(_answer(pages, reader, writer), REQUEST_SECONDS_MAX)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the peer was slow, left, or speaks something else
        finally:
            open_count -= 1
            writer.close()

    server = await asyncio.start_server(handle, host, port, limit=HEAD_BYTES_MAX)
    try:
        bound: tuple[str, int] = server.sockets[0].getsockname()[:2]
        log.info("admin_started", address=f"http://{bound[0]}:{bound[1]}")
        yield bound
    finally:
        server.close()
        await server.wait_closed()


def parse_address(text: str) -> tuple[str, int]:
    """``host:port`` or ``port``, which means loopback. INVALID_CONFIG when it is neither."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"ottla.admin.listener={text} is not of the form host:port")
    return host.strip("[]") or "127.0.0.1", int(port)


async def _answer(pages: AdminPages, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if method not in ("GET", "HEAD"):
        answer = as_json({"error": f"{method} is not supported; only GET and HEAD are supported"}, HTTPStatus.METHOD_NOT_ALLOWED)
    else:
        try:
            answer = await pages.get(path)
        except Exception as error:
            log.error("admin_page_failed", path=path, exc_info=error)
            answer = as_json({"error": "the page could not be made; see the broker's log"}, HTTPStatus.INTERNAL_SERVER_ERROR)
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Connection: close",
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
    if method != "HEAD":
        writer.write(answer.body)
    await writer.drain()
