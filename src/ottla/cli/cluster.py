"""``ottla cluster``: a cluster of several nodes on this machine, in one foreground process that supervises them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from ottla.cli.chosen_cluster import another, described
from ottla.cli.client_settings import client_options, note_local_file
from ottla.cli.cluster_add import add
from ottla.cli.cluster_health_command import health
from ottla.cli.cluster_remove import remove
from ottla.cli.local_brokers import lone_broker, note_settings_of, running_at
from ottla.cli.node_orders import asked_option, data_option, order, place_of, state_of
from ottla.cli.output import asking_a_cluster, complain, end_with, format_option, log_level_option, print_json, print_rows, wrong_call

if TYPE_CHECKING:
    from ottla.cli.nodes.place import ClusterFile, Place, PlaceState

NODES_MAX: Final = 100
ASK_TIMEOUT_MS: Final = 3_000
OUTSIDE_TIMEOUT_MS: Final = 15_000
STOP_SECONDS_MAX: Final = 120.0


@click.group()
def cluster() -> None:
    """Run several nodes on this machine: start, look at, stop and kill them, and add more."""


cluster.add_command(add)
cluster.add_command(health)
cluster.add_command(remove)


@cluster.command()
@click.option("-n", "--nodes", "count", type=click.IntRange(1, NODES_MAX), help="How many nodes a new cluster has.  [default: 3]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The first port of a new cluster; 0 finds free ones, of an old one too.  [default: 9092, or free ones]",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]|own",
    help="Where a new cluster keeps its metadata, in place of a quorum of its nodes; own starts a ZooKeeper beside them. "
    "-X zookeeper.ssl.client.enable=true and its neighbours reach one by TLS.",
)
@click.option("-X", "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="A configuration key of all nodes; it is kept.")
@click.option("--restart", "is_restarting", is_flag=True, help="Start a node again that fails or is killed.")
@log_level_option("info")
@format_option
@click.option(
    "--console", "has_console", is_flag=True, help="Serve a page to look at the cluster and to kill its nodes; its address is printed."
)
@click.option("--detach", "is_detached", is_flag=True, help="Give the shell back once clients are served; `ottla cluster stop` ends it.")
@click.option(
    "--secure", is_flag=True, help="A new cluster over SASL_SSL, with ACLs: a certificate, a user and a file for clients are made."
)
@data_option
def start(
    count: int | None,
    port: int | None,
    zookeeper: str | None,
    overrides: tuple[str, ...],
    is_restarting: bool,
    log_level: str,
    output: str,
    has_console: bool,
    is_detached: bool,
    secure: bool,
    data: str | None,
) -> None:
    """Start a cluster and serve until it is stopped.

    SIGTERM, Ctrl-C or `ottla cluster stop` stop it.

    Topics of a new cluster have three replicas and min.insync.replicas=2, as far as there are nodes: any one of three or more may be
    down. -X sets others.

    A directory that has a cluster already is resumed, with all its nodes, on the ports that they had. The first three nodes are
    brokers and controllers, the others are brokers; with --zookeeper all are brokers, and any may be the controller. A node that dies is
    reported, and not started again unless --restart is given.
    """
    from ottla.cli.broker import check_key
    from ottla.cli.console import console_beside
    from ottla.cli.nodes.at_zookeeper import begin_home
    from ottla.cli.nodes.detached import start_detached, take_descriptor
    from ottla.cli.nodes.foreground import Foreground, Manner, format_nodes, run_foreground, wait_for_orphans
    from ottla.cli.nodes.plan import check, check_free, cluster_plans
    from ottla.cli.secure_place import SecurePlace
    from ottla.runtime.certificates import check_extra

    if is_detached and has_console:
        raise click.UsageError("--console is for a cluster in the foreground; beside a detached one: ottla console --data DIR")
    if is_detached:
        sys.exit(start_detached([argument for argument in sys.argv[sys.argv.index("start") + 1 :] if argument != "--detach"]))
    waiting = take_descriptor()
    place = place_of(data)
    place.lock()
    if secure:
        check_extra("ottla cluster start --secure")
    for override in overrides:
        check_key(override.partition("=")[0].strip())
    found, is_new = described(place, count, port, overrides, zookeeper, is_secured=secure)
    secured = SecurePlace(Path(place.security), "ottla cluster") if found.is_secured else None
    if secured is not None:
        secured.write_nodes(is_alone=len(found.nodes) == 1)
    server = begin_home(place, found)
    plans = cluster_plans(place, found)
    check(plans)
    wait_for_orphans(plans)
    way_out = "stop it, or start with --port 0" if is_new else "stop it: the cluster's clients and nodes know this port"
    check_free([address for plan in plans for address in plan.addresses], way_out)
    for plan in plans:
        os.makedirs(os.path.dirname(place.node_file(plan.node_id, "data")), exist_ok=True)
        place.write_properties(plan.node_id, plan.properties)

    def on_served(state: PlaceState) -> None:
        announce(state, place, found, output=output, waiting=waiting)
        if has_console:
            beside.start(state.bootstrap, place.path, state.command_config)

    async def make() -> Foreground:
        await format_nodes(place, found, plans, [] if secured is None else [secured.credential()])
        place.write(found)  # with what -X has changed
        manner = Manner(log_level, "text", has_log_files=True, is_restarting=is_restarting)
        return Foreground(
            place,
            found,
            plans,
            manner,
            on_served=on_served,
            plan_another=lambda: another(place, found),
            zookeeper=server,
        )

    try:
        with console_beside() as beside:
            run_foreground(make)
    finally:
        if server is not None:
            server.kill()
    complain("all nodes have stopped")


def announce(state: PlaceState, place: Place, found: ClusterFile, *, output: str, waiting: int | None) -> None:
    """Prints the nodes on standard output, once all serve, or where another command waits; a reader that has gone away stops no cluster."""
    from ottla.cli.nodes.detached import announce_detached
    from ottla.cli.nodes.plan import replication_of

    if output == "json":
        line = {"bootstrap": state.bootstrap, "data": place.path, "cluster_id": state.cluster_id}
        if state.command_config is not None:
            line["command_config"] = state.command_config
        lines = [msgspec.json.encode(line | {"nodes": {node.node_id: node.pid for node in state.nodes}}).decode()]
    else:
        option = "" if place.path == place_of(None).path else f" {place.option}"
        lines = [
            f"ottla cluster: {len(state.nodes)} node{'s serve' if len(state.nodes) > 1 else ' serves'} Kafka clients",
            f"  bootstrap  {state.bootstrap}",
            f"  data       {place.path}  (logs in node-1/node.log and so on)",
            f"  topics     {replication_of(found)}",
            *([] if state.command_config is None else [f"  client     {state.command_config}  (user admin, who may do everything)"]),
            f"  try        ottla cluster status{option}",
            *([f"             ottla cluster kill 2{option}"] if len(state.nodes) > 1 else []),
            f"             ottla cluster add{option}",
            "Press Ctrl-C to stop it." if waiting is None else f"It runs on; `ottla cluster stop{option}` stops it.",
        ]
    if waiting is not None:
        announce_detached(waiting, "\n".join(lines) + "\n", place)
        return
    try:
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):
        return


@cluster.command()
@data_option
@client_options
@asked_option
@format_option
@click.pass_context
def status(context: click.Context, data: str | None, bootstrap: str | None, output: str) -> None:
    """Show the nodes, as their supervisor and the cluster see them.

    Exit code 1 when the cluster does not run, or no controller is active. A cluster that is asked by -B says itself who serves, and how
    far each node lags behind in the metadata. A controller is silent that does not fetch the metadata: it is down, or the active
    controller cannot be reached from it. --data takes precedence over OTTLA_BOOTSTRAP, and a cluster of this machine that
    OTTLA_BOOTSTRAP names is shown with its processes.
    """
    from click.core import ParameterSource

    from ottla.cli.node_ends import shown_of
    from ottla.cli.nodes.standing import standing_of
    from ottla.cli.quorum_states import controller_text
    from ottla.runtime.supervision.control import NoSupervisor

    bootstrap = bootstrap or lone_broker(data)
    is_elsewhere = bool(bootstrap)
    if context.get_parameter_source("bootstrap") is ParameterSource.ENVIRONMENT:
        is_elsewhere = is_elsewhere and data is None and running_at(bootstrap or "", place_of(None)) is None
    if is_elsewhere:
        status_from_outside(bootstrap or "", output)
        return
    place = place_of(data)
    try:
        state = shown_of(state_of(place))
    except NoSupervisor:
        report_stopped(place, output)
        sys.exit(1)
    note_local_file(state.command_config)
    seen = standing_of(state, ASK_TIMEOUT_MS)
    rows = [
        (node.node_id, node.roles, node.pid, node.address, node.state, seen.broker_of(node), seen.controller_of(node))
        for node in state.nodes
    ]
    columns = ("node", "roles", "pid", "address", "process", "broker", "controller")
    ago_ms = [seen.fetched_ms_ago.get(node.node_id) for node in state.nodes]
    if output == "json":
        nodes = [dict(zip((*columns, "fetched_ms_ago"), (*row, ago), strict=True)) for row, ago in zip(rows, ago_ms, strict=True)]
        document = {"cluster_id": state.cluster_id, "bootstrap": state.bootstrap, "supervisor_pid": state.supervisor_pid}
        document["home"] = state.home
        print_json("cluster status", [document | {"active_controller": seen.active_controller, "problem": seen.problem, "nodes": nodes}])
    else:
        click.echo(f"cluster {state.cluster_id}  supervisor {state.supervisor_pid}  bootstrap {state.bootstrap}  home {state.home}")
        table = [(*row[:-1], controller_text(row[-1], ago)) for row, ago in zip(rows, ago_ms, strict=True)]
        print_rows(output, "cluster status", columns, table)
    end_with(seen.problem)


def status_from_outside(bootstrap: str, output: str) -> None:
    from ottla.cli.nodes.standing import SEEN_COLUMNS, seen_from_outside
    from ottla.cli.quorum_states import controller_text
    from ottla.client.bootstrap import parse_bootstrap

    with wrong_call():
        parse_bootstrap(bootstrap)
    note_settings_of(bootstrap)
    with asking_a_cluster(bootstrap):
        seen = seen_from_outside(bootstrap, OUTSIDE_TIMEOUT_MS)
    if output == "json":
        nodes = [dict(zip(SEEN_COLUMNS, row, strict=True)) for row in seen.rows]
        document = {"cluster_id": seen.cluster_id, "active_controller": seen.active_controller, "problem": seen.problem}
        print_json("cluster status", [document | {"nodes": nodes}])
    else:
        click.echo(f"cluster {seen.cluster_id}")
        table = [(*row, controller_text(controller, ago_ms), lag) for *row, controller, lag, ago_ms in seen.rows]
        print_rows(output, "cluster status", SEEN_COLUMNS[:-1], table)
    end_with(seen.problem)


def report_stopped(place: Place, output: str) -> None:
    found = place.read()
    if found is None:
        complain(f"there is no cluster in {place.path}; `ottla cluster start` makes one, and -B HOST:PORT asks any other")
    elif output == "json":
        print_json("cluster status", [{"cluster_id": found.cluster_id, "supervisor_pid": None, "nodes": []}])
    else:
        was = place.state()
        ended = "" if was is None else f"; its supervisor {was.supervisor_pid} was killed, and the nodes stop by themselves"
        complain(f"the cluster in {place.path} of {len(found.nodes)} nodes does not run{ended}; `ottla cluster start` resumes it")


@cluster.command()
@click.argument("node", type=int, required=False)
@data_option
def stop(node: int | None, data: str | None) -> None:
    """Stop all nodes in order, or NODE alone."""
    import time

    from ottla.cli.node_ends import waiting_for_the_end
    from ottla.runtime.supervision.control import NoSupervisor

    place = place_of(data)
    with waiting_for_the_end(place, node):
        order(place, "stop", node)
        if node is not None:
            click.echo(f"node {node} has stopped", err=True)
            return
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while time.monotonic() < deadline:
            try:
                order(place, "status")
            except NoSupervisor:
                click.echo("the cluster has stopped", err=True)
                return
            time.sleep(0.05)
    raise click.ClickException(f"nodes still run after {STOP_SECONDS_MAX:.0f} s; `ottla cluster status` names them")


@cluster.command()
@click.argument("node", type=int)
@data_option
def kill(node: int, data: str | None) -> None:
    """Kill NODE as by kill -9, without any warning to it."""
    order(place_of(data), "kill", node)
    click.echo(f"node {node} was killed", err=True)


@cluster.command()
@click.argument("node", type=int)
@data_option
def restart(node: int, data: str | None) -> None:
    """Start NODE again; one that runs is stopped in order first."""
    from ottla.cli.node_ends import waiting_for_the_end

    place = place_of(data)
    with waiting_for_the_end(place, node):
        order(place, "restart", node)
    click.echo(f"node {node} serves", err=True)
