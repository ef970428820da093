"""``ottla debug bundle``: one file that says what a bug report needs, without secrets."""

from __future__ import annotations

import io
import os
import tarfile
import time

import click

from ottla.cli.client_settings import client_options
from ottla.cli.node_orders import data_option


@click.group()
def debug() -> None:
    """Gather what a bug report needs."""


@debug.command()
@click.option("-B", "--bootstrap-server", "bootstrap", envvar="OTTLA_BOOTSTRAP", show_envvar=True, help="The brokers to ask.")
@client_options
@data_option
@click.option("--config", "configs", multiple=True, type=click.Path(exists=True, dir_okay=False), help="A broker's server.properties.")
@click.option("--log", "logs", multiple=True, type=click.Path(exists=True, dir_okay=False), help="A broker's log; its end is taken.")
@click.option("-o", "--output", "path", type=click.Path(dir_okay=False), help="The file.  [default: ottla-debug-TIME.tar.gz]")
def bundle(bootstrap: str | None, data: str | None, configs: tuple[str, ...], logs: tuple[str, ...], path: str | None) -> None:
    """Write what a bug report needs into one file.

    It has versions, status, health, topics, groups, configuration, metrics, and the end of the logs.

    A cluster of this machine (`ottla cluster start`) brings its configuration and logs itself. Secrets are left out: keys that hold one
    are [hidden], and so is their text wherever it is in a log. What cannot be had is a line that says why.
    """
    from ottla.cli.bundle import gather

    now = time.time()
    path = path or time.strftime("ottla-debug-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime(now))
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        raise click.UsageError(f"--output {path}: there is no directory {directory}")
    if os.path.exists(path):
        raise click.UsageError(f"--output {path}: the file is there already; name another one")
    found = gather(bootstrap, data, configs, logs)
    with tarfile.open(path, "x:gz") as archive:
        for name, content in sorted(found.items()):
            entry = tarfile.TarInfo(f"ottla-debug/{name}")
            entry.size, entry.mtime = len(content), int(now)
            archive.addfile(entry, io.BytesIO(content))
    failed = sum(name.endswith(".error.txt") for name in found)
    click.echo(f"wrote {path}: {len(found)} files" + (f", {failed} of them say what could not be had" if failed else ""))
