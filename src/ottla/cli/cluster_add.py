"""``ottla cluster add``: one more broker in the cluster of this machine, or none and nothing left of it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import click
import msgspec

from ottla.cli.client_settings import client_settings, note_local_file
from ottla.cli.cluster_remove import unregister
from ottla.cli.node_orders import data_option, order, place_of, state_of
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.cli.nodes.place import Place, PlaceState

ASK_TIMEOUT_MS: Final = 3_000


@click.command()
@data_option
def add(data: str | None) -> None:
    """Add a broker to the running cluster. New topics have partitions on it; older topics stay where they are.

    Refused at once where no controller is active, which lets brokers join. Of a broker that does not start nothing is left.
    """
    from ottla.cli.nodes.place import PlaceState

    place = place_of(data)
    state = state_of(place)
    note_local_file(state.command_config)
    _refuse_without_controller(state)
    removed = _removed(place)
    try:
        state = msgspec.json.decode(order(place, "add").state, type=PlaceState)
    except OttlaError:
        _unregister_those(state, _removed(place) - removed)
        raise
    click.echo(f"node {state.nodes[-1].node_id} has joined and serves at {state.nodes[-1].address}", err=True)


def _refuse_without_controller(state: PlaceState) -> None:
    """Raises OttlaError where no controller is active: a new broker would wait for one for a minute.

    One that has just lost its majority believes for some seconds that it is: the processes are counted first.
    """
    from ottla.cli.nodes.standing import standing_of

    voters = [node for node in state.nodes if "controller" in node.roles]
    down = [node.node_id for node in voters if node.pid is None]
    needed = len(voters) // 2 + 1
    problem = f"of {len(voters)} controllers {needed} must run" if voters and len(voters) - len(down) < needed else None
    if problem is None:
        seen = standing_of(state, ASK_TIMEOUT_MS)
        if seen.active_controller is not None and seen.active_controller >= 0:
            return
        problem = seen.problem or "no controller is active"
    if not down:
        raise OttlaError(f"nothing was added: {problem}; `ottla cluster health` says what is wrong")
    named, calls = ", ".join(map(str, down)), " and ".join(f"`ottla cluster restart {node}`" for node in down)
    is_not = f"node{'s'[: len(down) != 1]} {named} {'does' if len(down) == 1 else 'do'} not run"
    raise OttlaError(f"nothing was added, which takes an active controller: {problem}, and {is_not}; {calls}, then add again")


def _removed(place: Place) -> set[int]:
    found = place.read()
    return set() if found is None else {*found.removed}


def _unregister_those(state: PlaceState, nodes: set[int]) -> None:
    """Unregisters brokers that have registered and then did not start."""
    from ottla.sync import Admin

    with contextlib.suppress(OttlaError), Admin(state.bootstrap, **client_settings()) as admin:
        for node in nodes:
            unregister(admin, node)
