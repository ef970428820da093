"""``ottla partition unthrottle``: takes the throttles of moves off, at once or when the moves are done."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.output import bootstrap_option, complain, end_of_plan, format_option, print_rows, yes_option
from ottla.cli.throttles import set_on_brokers, set_on_topics
from ottla.cli.unanswered import Unanswered

if TYPE_CHECKING:
    from ottla.client.admin.resources import ConfigResource
    from ottla.sync import Admin

COLUMNS: Final = ("of", "name", "key", "value")
LOOK_S: Final = 1.0


@click.command()
@click.option("--wait", is_flag=True, help="First wait until no move is under way.")
@yes_option
@bootstrap_option
@format_option
def unthrottle(wait: bool, yes: bool, bootstrap: str, output: str) -> None:
    """Take off the throttles that slow down moves.

    These are the rates of brokers, and the lists of replicas of topics, which --throttle of `partition reassign` and `broker drain`
    sets, and those that were set by hand. Until they are taken off they also hold back replicas that catch up after a restart.

    \b
    ottla partition unthrottle --wait --yes
    """
    from ottla.sync import Admin

    unanswered = Unanswered("not changed")
    with Admin(bootstrap, **client_settings()) as admin:
        if wait and yes:
            _wait(admin)
        found = _found(admin, unanswered)
        rows = [(*_named(resource), key, value) for resource, values in found.items() for key, value in values.items()]
        print_rows(output, "partition unthrottle", COLUMNS, rows)
        if not yes and rows:
            moving = len(admin.list_partition_reassignments())
            going = f"; {moving} move{'s'[: moving != 1]} under way: --wait waits until they are done" if moving else ""
            end_of_plan(f"would take these off{going}")
        if rows:
            admin.alter_configs({resource: dict.fromkeys(values) for resource, values in found.items()})
    complain("the throttles were taken off" if rows else "no throttle is set")
    unanswered.end()


def _wait(admin: Admin) -> None:
    said = -1
    while (moving := len(admin.list_partition_reassignments())) > 0:
        if moving != said:
            said = moving
            complain(f"waiting: {moving} move{'s are' if moving != 1 else ' is'} under way (`ottla partition moves`)")
        time.sleep(LOOK_S)


def _found(admin: Admin, unanswered: Unanswered) -> dict[ConfigResource, dict[str, str]]:
    from ottla.client.admin import Broker

    found: dict[ConfigResource, dict[str, str]] = {}
    for node in sorted(node.node_id for node in admin.describe_cluster().nodes):
        with unanswered.of(node, f"the throttles of broker {node}"):
            found |= set_on_brokers(admin.describe_configs(Broker(node)), node)
    return found | set_on_topics(admin, sorted(admin.list_topics()))


def _named(resource: ConfigResource) -> tuple[str, str | None]:
    from ottla.client.admin import Broker, Topic

    if isinstance(resource, Broker):
        return "broker", "all" if resource.node_id is None else str(resource.node_id)
    return "topic", resource.name if isinstance(resource, Topic) else None
