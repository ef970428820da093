"""``ottla console``: a page to look at a cluster."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.output import bootstrap_option, say_connectivity
from ottla.cli.values import Directory

STOP_SECONDS_MAX: Final = 10
MISSING: Final = "the console needs starlette, uvicorn and jinja2: pip install 'ottla[console]'"


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="The port of the page; 0 picks a free one.")
@click.option(
    "--data",
    type=Directory(exists=True),
    help="The directory of a cluster that `ottla cluster start` runs here: its nodes can be killed and started from the page.",
)
@bootstrap_option
def console(bootstrap: str, port: int, data: str | None) -> None:
    """Serve a page to look at a cluster, on this machine's loopback.

    It shows nodes, leaders and in-sync replicas as they change, how long records take to be acknowledged, topics, messages, groups and log
    directories. The address has a token, without which nothing is shown.
    """
    from ottla.client.options import ClusterSettings

    serve_console(bootstrap, client_settings(ClusterSettings), port=port, directory=data)  # it has clients of all kinds


def serve_console(bootstrap: str, settings: dict[str, Any], *, port: int, directory: str | None) -> None:
    """Serves until SIGINT or SIGTERM."""
    import asyncio

    try:
        from ottla.console.serving import serve
    except ModuleNotFoundError:
        raise click.ClickException(MISSING) from None
    asyncio.run(
        serve(
            bootstrap,
            settings,
            port=port,
            directory=directory,
            on_served=lambda address: click.echo(f"ottla console: {address}"),
            on_connectivity=say_connectivity,
        )
    )


class Beside:
    """A console in a process of its own beside a cluster, once ``start`` is called."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, bootstrap: str, directory: str | None, command_config: str | None = None) -> None:
        """Starts the console, which prints its address."""
        command = [sys.executable, "-m", "ottla", "console", "--bootstrap-server", bootstrap]
        for option, value in (("--data", directory), ("--command-config", command_config)):
            command += [] if value is None else [option, value]
        self._process = subprocess.Popen(command, start_new_session=True)

    def stop(self) -> None:
        """Ends the console."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def console_beside() -> Iterator[Beside]:
    """Ends the console with the context."""
    beside = Beside()
    try:
        yield beside
    finally:
        beside.stop()
