"""``ottla dev``: a temporary broker for development."""

from __future__ import annotations

import gc
from typing import Final

import click

from ottla.cli.output import format_option, log_level_option
from ottla.cli.values import Directory

DEV_PROFILE: Final = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "true",
}
"""What differs from a production broker; printed at the start."""


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=9092, show_default=True, help="The port; 0 picks a free one.")
@click.option(
    "--data",
    type=Directory(),
    help="Keep the data in this directory; without it a temporary directory is used and removed.",
)
@click.option("-X", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A configuration key.")
@log_level_option("warning")
@click.option("--secure", is_flag=True, help="Over SASL_SSL, with ACLs: a certificate, a user and a file for clients are made.")
@click.option("--console", "has_console", is_flag=True, help="Serve a page to look at the broker; its address is printed.")
@format_option
def dev(port: int, data: str | None, overrides: tuple[str, ...], log_level: str, secure: bool, has_console: bool, output: str) -> None:
    """Start a broker on this machine with relaxed settings."""
    gc.disable()  # as broker start does
    import msgspec

    from ottla.broker.node import Broker
    from ottla.cli.admin_pages import admin_beside
    from ottla.cli.broker import gather
    from ottla.cli.console import console_beside
    from ottla.cli.logging import configure_logging
    from ottla.cli.secure_place import USER, SecurePlace, secured_before
    from ottla.cli.temporary_place import TemporaryPlace, remove_leftovers
    from ottla.config import BrokerConfig
    from ottla.runtime.certificates import check_extra
    from ottla.runtime.serve import run_broker

    place = None
    if secure:
        check_extra("ottla dev --secure")
    if data is None:
        remove_leftovers()
        place = TemporaryPlace()
    directory = place.data if place is not None else str(data)
    secured = SecurePlace.beside(directory) if secure else None
    listens = {"listeners": f"PLAINTEXT://127.0.0.1:{port}"} if secured is None else secured.properties(port)
    properties = DEV_PROFILE | listens | {"log.dirs": directory}
    properties |= gather(None, {}, (*(f"{key}={value}" for key, value in properties.items()), *overrides))
    configure_logging(log_level)
    if secured is None and data is not None and (before := secured_before(data)) is not None:
        text = f"{data} was served with --secure before ({before}); this start serves it in plain text, without users"
        click.echo(f"warning: {text}", err=True)

    def announce(broker: Broker) -> None:
        say(broker)
        if has_console:
            host, bound = next(iter(broker.addresses.values()))
            beside.start(f"{host}:{bound}", None, None if secured is None else str(secured.client))

    def say(broker: Broker) -> None:
        host, bound = next(iter(broker.addresses.values()))
        if output == "json":
            said = {"bootstrap": f"{host}:{bound}", "data": directory, "cluster_id": broker.cluster_id}
            more = {} if secured is None else {"command_config": str(secured.client)}
            click.echo(msgspec.json.encode(said | more).decode())
            return
        click.echo(f"ottla dev: serving Kafka clients at {host}:{bound}" + ("" if secured is None else ", over SASL_SSL"))
        click.echo(f"  data      {directory}" + ("" if data else "  (temporary, removed at the end)"))
        click.echo(f"  settings  {', '.join(f'{key}={value}' for key, value in DEV_PROFILE.items())}")
        at = "" if bound == 9092 else f" -B {host}:{bound}"
        if secured is not None:
            click.echo(f"  client    {secured.client}  (user {USER}, who may do everything)")
            at += f" --command-config {secured.client}"
        click.echo(f"  try       ottla produce hello{at}")
        click.echo(f"            ottla consume hello -o start{at}")
        click.echo("Press Ctrl-C to stop it.")

    try:
        config = BrokerConfig(properties)
        if secured is not None:
            secured.add_user(properties)
        with console_beside() as beside:
            run_broker(config, on_started=announce, beside=admin_beside(config))
    finally:
        if place is not None:
            place.remove()
