"""Which cluster of this machine a command is about, and what its supervisor is asked to do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.values import Directory
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.cli.nodes.place import Place, PlaceState
    from ottla.runtime.supervision.control import Answer


def data_option(function: Any) -> Any:
    return click.option(
        "--data",
        type=Directory(),
        help="The directory of the cluster, with all that its nodes have.  [default: ottla/cluster in the user's data directory]",
    )(function)


def asked_option(function: Any) -> Any:
    return click.option(
        "-B",
        "--bootstrap-server",
        "bootstrap",
        envvar="OTTLA_BOOTSTRAP",
        show_envvar=True,
        help="Ask this cluster, of other machines, in place of one that runs here.",
    )(function)


def place_of(data: str | None) -> Place:
    from ottla.cli.nodes.place import Place, default_data_directory, default_place

    return Place(data if data is not None else default_place(default_data_directory(os.environ)))


def order(place: Place, command: str, node: int | None = None) -> Answer:
    """Returns what the supervisor did. OttlaError with its words when it could not."""
    from ottla.runtime.supervision.control import Order, ask_supervisor

    answer = ask_supervisor(place.path, Order(command, node))
    if answer.error is not None:
        raise OttlaError(answer.error)
    return answer


def state_of(place: Place) -> PlaceState:
    """Returns the nodes that run, as their supervisor knows them. NoSupervisor where none runs."""
    import msgspec

    from ottla.cli.nodes.place import PlaceState

    return msgspec.json.decode(order(place, "status").state, type=PlaceState)
