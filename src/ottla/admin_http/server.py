"""A small HTTP server for operators, beside a broker on its loop. It reads, and changes nothing.

====================  ==================================================================================================
``/metrics``          Kafka's names and ours, few enough for any cluster
``/metrics/partitions``  sizes and offsets of each partition
``/metrics/lag``      offsets and lag of topics and groups, under kafka_exporter's names
``/healthz``          the process lives (``/livez`` is the same)
``/readyz``           200 when clients should be sent here, 503 with the reasons when not
``/version``          what runs
====================  ==================================================================================================

It listens from before the broker's start until the broker has stopped: a recovery may take long, and a node may wait for others. Until the
node is put together, pages with figures are answered with 503.

It listens where ``ottla.admin.listener`` says, on loopback when no host is set; with ``https://HOST:PORT`` over TLS, and for who shows
a name and a password or a certificate (``guarded.py``). Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from ottla.admin_http.pages import CONNECTIONS_MAX, HEAD_BYTES_MAX, REQUEST_SECONDS_MAX, AdminPages, response_to
from ottla.broker.requests.listener_security import is_guarded
from ottla.broker.start_check import check_start
from ottla.broker.status import Node
from ottla.config.forms import admin_address
from ottla.loggers import get_logger

log = get_logger(__name__)


_NO_HTTP: Final = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@contextlib.asynccontextmanager
async def serve_admin(node: Node) -> AsyncIterator[tuple[str, int] | None]:
    """Serves the pages while the context lasts; yields host and port, or None when ``ottla.admin.listener`` is not set.

    INVALID_CONFIG for what no node starts with: that comes before a port that is in use.
    """
    address = node.config["ottla.admin.listener"]
    if address is None:
        yield None
        return
    host, port = admin_address(address)
    check_start(node.config)
    pages = AdminPages(node)
    if is_guarded(address):
        from ottla.admin_http.guarded import guarded_pages  # few have them

        async with guarded_pages(node, pages, host, port) as guarded:
            log.info("admin_started", address=f"https://{guarded[0]}:{guarded[1]}")
            yield guarded
        return
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

    try:
        server = await asyncio.start_server(handle, host, port, limit=HEAD_BYTES_MAX)
    except OSError as error:
        raise OSError(error.errno, f"ottla.admin.listener cannot listen on {host}:{port}: {error.strerror or error}") from error
    try:
        bound: tuple[str, int] = server.sockets[0].getsockname()[:2]
        log.info("admin_started", address=f"http://{bound[0]}:{bound[1]}")
        yield bound
    finally:
        server.close()
        await server.wait_closed()


async def _answer(pages: AdminPages, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    first = await reader.readexactly(1)
    if first.isalpha():
        writer.write(await response_to(first + await reader.readuntil(b"\r\n\r\n"), pages.get))
    else:  # a client of Kafka's protocol, which sends a length first, or of TLS: it would wait for an answer
        writer.write(_NO_HTTP)
    await writer.drain()
