"""``ottla cluster remove``: a broker that was added to the cluster of this machine leaves it for good.

Each step is passed over where it is done already, so that a call that was interrupted is made again.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_settings import client_settings, note_local_file
from ottla.cli.node_orders import data_option, order, place_of, state_of
from ottla.errors import ErrorCode, KafkaError, OttlaError

if TYPE_CHECKING:
    from ottla.sync import Admin

LEFT_ALREADY: Final = (ErrorCode.BROKER_ID_NOT_REGISTERED, ErrorCode.UNSUPPORTED_VERSION)
"""The second is ZooKeeper mode, where a broker that is stopped is not registered."""


@click.command()
@click.argument("node", type=int)
@click.option("--delete-data", is_flag=True, help="Delete the node's directory, too; it is kept without this option.")
@data_option
def remove(node: int, delete_data: bool, data: str | None) -> None:
    """Remove a broker for good: stop NODE, unregister and forget it.

    It must hold no replicas: `ottla broker drain NODE --replicas` moves them. A controller stays, because the quorum keeps its voters. The
    id is not given again.
    """
    from ottla.sync import Admin

    place = place_of(data)
    state = state_of(place)
    note_local_file(state.command_config)
    found = {each.node_id: each for each in state.nodes}.get(node)
    if found is None:
        raise OttlaError(f"there is no node {node}; the nodes are {', '.join(str(each.node_id) for each in state.nodes)}")
    if "controller" in found.roles:
        raise OttlaError(
            f"node {node} is a controller, and the quorum keeps its voters; nodes that `ottla cluster add` added can be removed"
        )
    with Admin(state.bootstrap, **client_settings()) as admin:
        _refuse_with_replicas(admin, node)
        if found.pid is not None:
            order(place, "stop", node)
        _refuse_with_replicas(admin, node)  # of topics that were created meanwhile
        unregister(admin, node)
    order(place, "remove", node)
    directory = place.directory_of(node)
    if delete_data:
        shutil.rmtree(directory)
    click.echo(f"node {node} was removed; its directory {directory} {'was deleted' if delete_data else 'is kept'}", err=True)


def _refuse_with_replicas(admin: Admin, node: int) -> None:
    partitions = [partition for topic in admin.list_topics().values() for partition in topic.partitions.values()]
    held = sum(node in partition.replicas for partition in partitions)
    if held:
        text = f"node {node} holds {held} replica{'s'[: held != 1]}: while it runs, `ottla broker drain {node} --replicas --yes` moves them"
        raise OttlaError(f"{text}, and `ottla partition moves` shows how far that is; then remove it")


def unregister(admin: Admin, node: int) -> None:
    """Unregisters the broker; nothing changes where it is not registered."""
    try:
        admin.unregister_broker(node)
    except KafkaError as error:
        if error.code not in LEFT_ALREADY:
            raise
