"""``python -m ottla.cli.nodes.node``: one node in a process of its own, whose supervisor says what it is."""

from __future__ import annotations

import gc
import sys

import click

from ottla.cli.admin_pages import admin_beside
from ottla.cli.logging import configure_logging
from ottla.config import BrokerConfig
from ottla.errors import OttlaError
from ottla.runtime.supervision.supervised import NodeOrder, receive_order, report_serving, wait_for_others


def main() -> None:
    gc.disable()  # as broker start does
    order = receive_order()
    if order is None:
        sys.exit(0)
    try:
        serve(order)
    except OttlaError as error:
        click.echo(f"ottla: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        click.echo(f"ottla: {error}", err=True)
        sys.exit(1)


def serve(order: NodeOrder) -> None:
    """Serves until SIGTERM, or until the supervisor has ended."""
    from ottla.broker.requests.listeners import advertised
    from ottla.runtime.serve import run_broker

    configure_logging(order.log_level, json=order.log_format == "json", node_id=order.node_id)
    config = BrokerConfig(order.properties)

    def report(addresses: dict[str, tuple[str, int]]) -> None:
        first = advertised(config, addresses)[0]
        host = f"[{first.host}]" if ":" in first.host else first.host
        report_serving(f"{host}:{first.port}")

    run_broker(config, on_started=lambda broker: report(broker.addresses), beside=admin_beside(config), on_left=wait_for_others)


if __name__ == "__main__":
    main()
