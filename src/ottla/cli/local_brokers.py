"""The brokers that a command asks where neither -B nor OTTLA_BOOTSTRAP names them.

The client's properties may name them. Otherwise they are this machine's, where what serves takes precedence over what does not run: the
nodes of the cluster in the usual place, as long as its supervisor answers; then a broker that listens where all commands look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec

from ottla.cli.client_settings import named_servers, note_local_file
from ottla.cli.node_orders import place_of
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.cli.nodes.place import Place, PlaceState

LOCAL: Final = "localhost:9092"
SHOWN: Final = "bootstrap.servers of the client, else the nodes of the cluster that `ottla cluster start` runs, or localhost:9092"
"""What the help has for the default."""
ANSWER_SECONDS_MAX: Final = 3.0
_SAID: Final = "ottla.local_brokers.said"


def bootstrap_default() -> str:
    """Returns the bootstrap servers of a command that was given none; says so where two could be meant."""
    if (named := named_servers()) is not None:
        return named
    state = running(place_of(None))
    if state is None:
        return LOCAL
    _say_of_another(state)
    return state.bootstrap


def note_settings_of(servers: str) -> None:
    """Takes the client properties of the secured cluster that runs in the usual place, where one of these addresses is its own."""
    state = running_at(servers, place_of(None))
    if state is not None:
        note_local_file(state.command_config)


def running_at(servers: str, place: Place) -> PlaceState | None:
    """Returns the nodes of the cluster of this place, if it runs and has one of the addresses."""
    state = running(place)
    return state if state is not None and {*servers.split(",")} & {*state.bootstrap.split(",")} else None


def running(place: Place) -> PlaceState | None:
    """Returns the nodes of the cluster of this place, if it runs."""
    from ottla.cli.nodes.place import PlaceState
    from ottla.runtime.supervision.control import Order, ask_supervisor

    if place.state() is None:  # no supervisor runs without it: no socket is asked
        return None
    try:
        answer = ask_supervisor(place.path, Order("status"), seconds_max=ANSWER_SECONDS_MAX)
        return None if answer.error is not None else msgspec.json.decode(answer.state, type=PlaceState)
    except OttlaError:
        return None


def lone_broker(data: str | None) -> str | None:
    """Returns the servers of the client's properties, or a broker that listens where all commands look, where no cluster is named.

    None where one runs in the usual place.
    """
    from ottla.cli.quorum_voters import takes_connections

    if data is not None:
        return None
    if (named := named_servers()) is not None:
        return named
    place = place_of(None)
    state = running(place)
    if state is not None:
        _say_of_another(state)
        return None
    if not takes_connections(LOCAL):
        return None
    if place.read() is not None:
        _say(f"the cluster in {place.path} does not run; asking the broker at {LOCAL}")
    return LOCAL


def _say_of_another(state: PlaceState) -> None:
    """Says that the nodes are asked and not the broker that listens where commands look, if there is one that is none of them."""
    from ottla.cli.quorum_voters import takes_connections

    ports = {address.rpartition(":")[2] for address in state.bootstrap.split(",")}
    if LOCAL.rpartition(":")[2] not in ports and takes_connections(LOCAL):
        _say(f"asking the cluster of `ottla cluster start` at {state.bootstrap}; -B {LOCAL} asks the broker there")


def _say(text: str) -> None:
    """Prints the line once, however often the command looks."""
    context = click.get_current_context(silent=True)
    if context is None or context.resilient_parsing or _SAID in context.meta:
        return
    context.meta[_SAID] = text
    click.echo(f"ottla: {text}", err=True)
