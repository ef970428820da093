"""``ottla broker``: start a broker; list a cluster's brokers and their log directories; drain a broker, remove one that will not return."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from ottla.cli.admin_pages import admin_beside
from ottla.cli.broker_drain import drain
from ottla.cli.client_settings import client_settings
from ottla.cli.exit_codes import WrongConfig
from ottla.cli.names import BROKERS
from ottla.cli.output import (
    bootstrap_option,
    complain,
    end_of_plan,
    end_with,
    format_option,
    log_level_option,
    override_option,
    print_rows,
    yes_option,
)
from ottla.cli.unanswered import Unanswered
from ottla.config import BROKER_KEYS, BrokerConfig, find_broker_key, from_environment, nearest, read_properties
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.admin import LogDir


@click.group()
def broker() -> None:
    """Run a broker; list a cluster's brokers, drain and remove them."""


broker.add_command(drain)


@broker.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False), required=False)
@override_option
@click.option("--cores", default="1", metavar="N|auto", help="Run this many brokers, as one cluster: a broker is a core.  [default: 1]")
@click.option("--strict", is_flag=True, help="Refuse unknown keys.")
@log_level_option("info")
@click.option(
    "--log-format",
    type=click.Choice(["auto", "text", "json"]),
    default="auto",
    show_default=True,
    help="The format of the log; auto is text on a terminal, and JSON otherwise.",
)
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False),
    help="A file to which the first listener's host:port, of each broker, is written once clients are served.",
)
def start(
    file: str | None, overrides: tuple[str, ...], cores: str, strict: bool, log_level: str, log_format: str, ready_file: str | None
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Keys come from FILE (a server.properties), then from KAFKA_* and OTTLA_* variables, then from -X; later ones win. With --cores, ids
    and ports count up from the first broker's, each entry of log.dirs has a directory for each broker, and a broker that fails is
    started again.

    Exit code 78 for a configuration with which no node starts: another start would end in the same way.
    """
    with refused_configuration():
        _start(file, overrides, cores, strict=strict, log_level=log_level, log_format=log_format, ready_file=ready_file)


@contextlib.contextmanager
def refused_configuration() -> Iterator[None]:
    """Lets a node that its configuration keeps from starting end with an exit code of its own, so that it is not started again."""
    try:
        yield
    except KafkaError as error:
        if error.code != ErrorCode.INVALID_CONFIG:
            raise
        raise WrongConfig(error.code, error.message) from error


def _start(
    file: str | None, overrides: tuple[str, ...], cores: str, *, strict: bool, log_level: str, log_format: str, ready_file: str | None
) -> None:
    gc.disable()  # nothing of what a start makes is garbage; run_broker turns it on again
    given = gather(file, os.environ, overrides)
    if file is None and not any(name.startswith(("KAFKA_", "OTTLA_")) for name in os.environ) and not overrides:
        complain(f"no FILE is given: this is a broker of its own, with its data in {given['log.dirs']}")
    config = BrokerConfig(given)
    if strict and config.unknown:
        name, hint = next(iter(config.unknown.items()))
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"unknown key {name!r}" + (f"; did you mean {hint!r}?" if hint else ""))
    if cores == "1":
        start_one(config, log_level, log_format, ready_file)
    else:
        from ottla.cli.nodes.cores import core_count
        from ottla.cli.nodes.cores_command import start_cores

        gc.enable()
        count = core_count(cores)
        if count == 1 and cores == "auto" and not has_brokers(config):
            start_one(config, log_level, log_format, ready_file)
        else:
            start_cores(given, count, is_auto=cores == "auto", log_level=log_level, log_format=log_format, ready_file=ready_file)


@broker.command("list")
@bootstrap_option
@format_option
def list_brokers(bootstrap: str, output: str) -> None:
    """List the brokers that are registered, and whether they serve.

    Without an active controller this is as brokers last knew it: `down` is one at whose address nothing listens. Exit code 1 then.
    """
    from ottla.cli.nodes.standing import SERVES, states_of
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        found = admin.describe_cluster(include_fenced=True)
        states, problem = states_of(admin, found)
    rows = [
        (node.node_id, f"{node.host}:{node.port}", node.rack, states.get(node.node_id, SERVES))
        for node in sorted(found.nodes, key=lambda node: node.node_id)
    ]
    print_rows(output, "broker list", ("id", "address", "rack", "state"), rows)
    end_with(problem)


@broker.command()
@click.argument("ids", nargs=-1, type=int, required=True, metavar="ID...", shell_complete=BROKERS)
@bootstrap_option
@format_option
def describe(ids: tuple[int, ...], bootstrap: str, output: str) -> None:
    """Describe brokers: address, state, replicas, directories.

    Also shown is the configuration that differs from the defaults.
    """
    from ottla.cli.broker_description import print_description
    from ottla.sync import Admin

    unanswered = Unanswered()
    with Admin(bootstrap, **client_settings()) as admin:
        print_description(admin, ids, output, unanswered)
    unanswered.end()


@broker.command()
@click.argument("ids", nargs=-1, type=int, metavar="[ID]...", shell_complete=BROKERS)
@bootstrap_option
@format_option
@click.option("--replicas", "is_by_replica", is_flag=True, help="A row a replica, the largest first.")
@click.option("--directory", "paths", multiple=True, metavar="DIR", help="Of each broker only this directory.")
def logdirs(ids: tuple[int, ...], bootstrap: str, output: str, is_by_replica: bool, paths: tuple[str, ...]) -> None:
    """List log directories: of these brokers, or of all that serve.

    LAG is how many records the replicas in it lack of what their leaders have committed, and - where a broker does not know it.
    """
    from ottla.cli.log_dirs import lag_of, named_only, print_replicas
    from ottla.sync import Admin

    unanswered = Unanswered()
    found: dict[int, list[LogDir]] = {}
    with Admin(bootstrap, **client_settings()) as admin:
        if not ids:
            cluster = admin.describe_cluster(include_fenced=True)
            ids = tuple(sorted({node.node_id for node in cluster.nodes} - cluster.fenced))
            for node_id in sorted(cluster.fenced):
                unanswered.say(f"the log directories of broker {node_id} are not shown: it is registered and does not serve")
        for node_id in ids:
            with unanswered.of(node_id, f"the log directories of broker {node_id}"):
                found |= {owner: named_only(each, paths) for owner, each in admin.describe_log_dirs([node_id]).items()}
    if paths and not any(found.values()):
        unanswered.say(f"no broker that was asked has a log directory {', '.join(paths)}; without --directory all are listed")
    if is_by_replica:
        print_replicas(output, found)
        unanswered.end()
        return
    rows = []
    for node_id, directories in found.items():
        for directory in directories:
            size = sum(replica.size_bytes for replica in directory.replicas)
            error = directory.error.code.name if directory.error is not None else "full" if directory.is_full else None
            is_known = directory.error is None and directory.total_bytes >= 0  # of one that has failed it may be the volume above its own
            space = (directory.usable_bytes, directory.total_bytes) if is_known else (None, None)
            rows.append((node_id, directory.path, len(directory.replicas), size, lag_of([directory]), *space, error))
    columns = ("broker", "directory", "replicas", "bytes", "lag", "usable_bytes", "total_bytes", "error")
    print_rows(output, "broker logdirs", columns, rows)
    unanswered.end()


@broker.command()
@click.argument("broker_id", type=int, metavar="ID", shell_complete=BROKERS)
@yes_option
@bootstrap_option
def unregister(broker_id: int, yes: bool, bootstrap: str) -> None:
    """Remove a broker that will not return from the cluster."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        if not yes:
            from ottla.cli.unseen_topics import unseen_text

            topics = admin.list_topics()
            held = sum(broker_id in partition.replicas for topic in topics.values() for partition in topic.partitions.values())
            if (unseen := unseen_text(admin, topics)) is not None:
                complain(unseen)
            move = f"move them first with `ottla broker drain {broker_id} --replicas --yes`"
            first = f"; it holds {held} replica{'s'[: held != 1]}: {move}" if held else ""
            end_of_plan(f"would remove broker {broker_id} from the cluster{first}")
        try:
            admin.unregister_broker(broker_id)
        except KafkaError as error:
            if error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise
            raise KafkaError(error.code, f"in ZooKeeper mode broker {broker_id} leaves the cluster when it is stopped") from error
    click.echo(f"removed broker {broker_id}", err=True)


def start_one(config: BrokerConfig, log_level: str, log_format: str, ready_file: str | None) -> None:
    """Runs a broker in this process."""
    from ottla.broker.node import Broker
    from ottla.cli.logging import configure_logging
    from ottla.cli.ready import report_ready
    from ottla.runtime.serve import run_broker

    configure_logging(log_level, json=None if log_format == "auto" else log_format == "json")
    if has_brokers(config):
        from ottla.cli.nodes.cores import refuse_lone

        refuse_lone(config.log_dirs)

    def announce(broker: Broker) -> None:
        host, port = next(iter(broker.addresses.values()))
        report_ready(f"{host}:{port}", ready_file)

    run_broker(config, on_started=announce, beside=admin_beside(config))


def has_brokers(config: BrokerConfig) -> bool:
    """True when a log directory has the brokers of --cores, or the nodes of a cluster."""
    return any(os.path.exists(os.path.join(path, "cluster.json")) for path in config.log_dirs)


def check_key(key: str) -> None:
    """Raises UsageError for a key of -X that no broker has. In a file, which may have keys for plug-ins, it is a warning."""
    if find_broker_key(key) is None:
        near = nearest(key, BROKER_KEYS)
        hint = f"did you mean {near}?" if near else "`ottla config keys` lists the keys"
        raise click.UsageError(f"-X {key}: is not a broker key; {hint}")


def gather(file: str | None, environ: Mapping[str, str], overrides: tuple[str, ...]) -> dict[str, str]:
    """Merges all sources. Where no key names a log directory, that of the systemd unit (StateDirectory), else one of the user's."""
    from ottla.cli.nodes.place import default_data_directory

    values: dict[str, str] = {}
    if file is not None:
        values |= read_properties(file)
    values |= from_environment(environ)
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator:
            raise click.UsageError(f"-X {override}: expected KEY=VALUE")
        check_key(key.strip())
        values[key.strip()] = value.strip()
    if "log.dirs" not in values and "log.dir" not in values:  # an empty one is refused, as by Kafka
        values["log.dirs"] = environ.get("STATE_DIRECTORY", "").split(":")[0] or default_data_directory(environ)
    return values
