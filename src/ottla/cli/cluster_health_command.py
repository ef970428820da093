"""``ottla cluster health``: once, or again and again until the cluster is well."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.client_settings import client_options, client_settings, note_local_file
from ottla.cli.local_brokers import lone_broker, note_settings_of, running_at
from ottla.cli.node_orders import asked_option, data_option, place_of, state_of
from ottla.cli.output import asking_a_cluster, complain, format_option, print_json, wrong_call
from ottla.cli.values import Number
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.cli.health_seen import Finding

TIMEOUT_MS: Final = 5_000
WATCH_SECONDS: Final = 2.0
REPEAT_SECONDS: Final = 15.0
"""After which a command that waits says again what it waits for."""


@click.command()
@data_option
@client_options
@asked_option
@click.option("-w", "--watch", is_flag=True, help="Look again every two seconds, until Ctrl-C.")
@click.option("--until-healthy", is_flag=True, help="Look again until nothing is wrong, and end with 0.")
@click.option(
    "--timeout",
    type=Number(min=0),
    metavar="SECONDS",
    help="With --until-healthy: print what is wrong by then, and end with 1.  [default: no limit]",
)
@format_option
def health(data: str | None, bootstrap: str | None, watch: bool, until_healthy: bool, timeout: float | None, output: str) -> None:
    """Say what is wrong with the cluster, and what to do about it.

    Exit code 0 when nothing is; 1 when something is, or when no broker answers. With --until-healthy it waits for 0, also where no
    cluster runs yet; without --watch it then prints the last look alone. --timeout does not cut a look short.
    """
    if timeout is not None and not until_healthy:
        raise click.UsageError("--timeout limits --until-healthy")
    is_repeated = watch or until_healthy
    deadline = time.monotonic() + (math.inf if timeout is None else timeout)
    waiting = _Waiting()
    while True:
        is_last = time.monotonic() >= deadline
        try:
            problems = _look(data, bootstrap, output, is_shown=watch or not until_healthy or is_last, is_sure=until_healthy)
            is_well = not problems
            if problems and not watch and not is_last and until_healthy:
                more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
                waiting.say(f"waiting: {problems[0].problem}{_nodes_of(problems)}{more}")
        except OttlaError as error:
            if not is_repeated:
                raise
            is_well = False
            waiting.say(f"waiting: {error}" if until_healthy else str(error))
        if not is_repeated or is_last or (until_healthy and is_well):
            break
        time.sleep(min(WATCH_SECONDS, max(0.0, deadline - time.monotonic())))
    if not is_well:
        if timeout is not None:
            complain(f"the cluster is not healthy after {timeout:g} s")
        sys.exit(1)


def _nodes_of(problems: list[Finding]) -> str:
    """Returns which nodes the problems are about, where the first does not name them."""
    nodes = sorted({node for finding in problems for node in finding.nodes} - {*problems[0].nodes})
    return f" (look at node{'s'[: len(nodes) != 1]} {', '.join(map(str, nodes))})" if nodes else ""


def _now() -> float:
    return time.monotonic()


class _Waiting:
    """The lines about what a command waits for: one when that changes, and again after ``REPEAT_SECONDS``."""

    def __init__(self) -> None:
        self._said = ""
        self._again_at = 0.0

    def say(self, text: str) -> None:
        now = _now()
        if text != self._said or now >= self._again_at:
            self._said, self._again_at = text, now + REPEAT_SECONDS
            complain(text)


def _look(data: str | None, bootstrap: str | None, output: str, *, is_shown: bool, is_sure: bool) -> list[Finding]:
    """Returns what is wrong with the cluster. What was seen is printed where that is wanted, and where nothing is wrong."""
    from ottla.cli.cluster_health import look, notes_of, summary
    from ottla.cli.health_findings import findings
    from ottla.client.bootstrap import parse_bootstrap
    from ottla.sync import Admin

    servers = bootstrap if bootstrap and data is None else lone_broker(data) or _servers_of(data)
    with wrong_call():
        parse_bootstrap(servers)
    note_settings_of(servers)
    with asking_a_cluster(servers), Admin(servers, **client_settings(request_timeout_ms=TIMEOUT_MS)) as admin:
        seen = look(admin, is_sure=is_sure)
    seen.paused = _paused(servers, data)
    found = list(findings(seen))
    if is_shown or not found:
        if output == "json":
            notes = [{"note": note, "remedy": way} for note, way in notes_of(seen)]
            item: dict[str, Any] = {"is_healthy": not found, "problems": found, "notes": notes, "seen": seen}
            print_json("cluster health", [item])
        else:
            click.echo("\n".join(summary(seen, found)))
    return found


def _paused(servers: str, data: str | None) -> dict[int, int]:
    """Returns the nodes of this machine's cluster whose processes SIGSTOP has stopped, where that cluster was asked."""
    from ottla.runtime.supervision.paused import is_paused

    state = running_at(servers, place_of(data))
    return {} if state is None else {node.node_id: node.pid for node in state.nodes if node.pid is not None and is_paused(node.pid)}


def _servers_of(data: str | None) -> str:
    state = state_of(place_of(data))
    note_local_file(state.command_config)  # also of a place that is not the usual one
    return state.bootstrap
