"""The console of one cluster, served until its process gets the signal to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Callable
from typing import Any, Final

import uvicorn

from ottla.aio import Admin
from ottla.client.watch import OnConnectivity
from ottla.console.app import ConsoleApp
from ottla.console.pages import Pages
from ottla.console.probe import Probe
from ottla.console.processes import Processes
from ottla.console.watching import Watcher

HOST: Final = "127.0.0.1"
REQUEST_TIMEOUT_MS: Final = 3_000
STOP_SECONDS_MAX: Final = 3


async def serve(
    bootstrap: str,
    settings: dict[str, Any],
    *,
    port: int = 0,
    directory: str | None = None,
    token: str | None = None,
    on_served: Callable[[str], None] = lambda address: None,
    on_connectivity: OnConnectivity = lambda problem: None,
) -> None:
    """Serves the pages on loopback until SIGINT or SIGTERM. ``on_served`` gets their address, token included.

    ``on_connectivity`` is called once for an outage, with why no broker can be reached, however many clients the pages have, and with None
    after it.

    With ``directory``, that of a cluster on this machine, its nodes can be killed and started. OSError when the port is taken.
    """
    token = token or secrets.token_urlsafe(24)
    watched = settings | {"request_timeout_ms": REQUEST_TIMEOUT_MS, "on_connectivity": on_connectivity}
    own = watched | {"on_connectivity": lambda problem: None}  # one client says it
    processes, probe = Processes(directory), Probe(bootstrap, own)
    with _listening(port) as listening:
        async with Admin(bootstrap, **watched) as admin:
            watcher = Watcher(admin, processes.states)
            app = ConsoleApp(Pages(bootstrap, own, admin, watcher, probe, can_kill=processes.is_here), processes, token)
            config = uvicorn.Config(
                app.starlette, log_level="warning", access_log=False, timeout_graceful_shutdown=STOP_SECONDS_MAX, lifespan="off"
            )
            server = _Server(config, app)
            working = [asyncio.create_task(watcher.run()), asyncio.create_task(probe.run())]
            try:
                on_served(f"http://{HOST}:{listening.getsockname()[1]}/?token={token}")
                await server.serve(sockets=[listening])
            finally:
                for task in working:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port), reuse_port=False)
    except OSError as error:
        raise OSError(error.errno, f"the console cannot listen on {HOST}:{port}: {os.strerror(error.errno or 0)}") from None


class _Server(uvicorn.Server):
    """uvicorn's server, which ends the streams of news before it waits for its connections."""

    def __init__(self, config: uvicorn.Config, app: ConsoleApp) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: Any) -> None:
        self._app.close()
        super().handle_exit(sig, frame)
