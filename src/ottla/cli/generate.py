"""``ottla generate``: files for monitoring and running a broker, on standard output."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, Final

import click


@click.group()
def generate() -> None:
    """Print dashboards, rules and units for running brokers."""


@generate.command("grafana-dashboard")
@click.argument("name", type=click.Choice(["brokers", "lag"]), default="brokers")
def grafana_dashboard(name: str) -> None:
    """A Grafana dashboard as JSON, to be imported."""
    from ottla.cli.templates.dashboards import broker_dashboard, lag_dashboard

    _print_json(broker_dashboard() if name == "brokers" else lag_dashboard())


_job_option = click.option("--job", default="ottla", show_default=True, help="The name of the job that scrapes the brokers.")


@generate.command("alert-rules")
@_job_option
@click.option("--lag", type=click.IntRange(min=0), default=1000, show_default=True, help="ConsumerLag fires above so many records.")
def alert_rules(job: str, lag: int) -> None:
    """Alert rules for Prometheus, as JSON.

    JSON is a form of YAML that Prometheus reads.
    """
    from ottla.cli.templates import prometheus

    _print_yaml(prometheus.alert_rules(job=job, lag=lag))


@generate.command("prometheus-config")
@click.argument("targets", nargs=-1, required=True, metavar="[https://]HOST:PORT...")
@_job_option
@click.option("--username", metavar="NAME", help="A user of the admin pages.")
@click.option("--password-file", metavar="FILE", help="Where Prometheus finds this user's password, alone in a file.")
@click.option("--ca", metavar="FILE", help="Where Prometheus finds the authority of the admin pages' certificates, as PEM.")
@click.option("--certificate", metavar="FILE", help="Prometheus's own certificate, for pages that ask for one; with --key.")
@click.option("--key", metavar="FILE", help="The key of --certificate.")
def prometheus_config(
    targets: tuple[str, ...],
    job: str,
    username: str | None,
    password_file: str | None,
    ca: str | None,
    certificate: str | None,
    key: str | None,
) -> None:
    """Scrape jobs for Prometheus, as JSON.

    JSON is a form of YAML that Prometheus reads. HOST:PORT are the brokers' ottla.admin.listener.

    \b
    ottla generate prometheus-config https://a:9644 https://b:9644 --ca authority.pem --username metrics --password-file metrics.password
    """
    from ottla.cli.templates import prometheus

    secured = [target.removeprefix(HTTPS) for target in targets if target.startswith(HTTPS)]
    if secured and len(secured) != len(targets):
        raise click.UsageError("some targets have https:// and some not: a job has one scheme, so call the command once for each")
    if (username is None) != (password_file is None) or (certificate is None) != (key is None):
        raise click.UsageError("--username goes with --password-file, and --certificate with --key")
    if not secured and any((username, ca, certificate)):
        raise click.UsageError("users and certificates are for https://HOST:PORT: pages without TLS ask for neither")
    tls = {name: value for name, value in (("ca_file", ca), ("cert_file", certificate), ("key_file", key)) if value is not None}
    access: dict[str, Any] = {"scheme": "https"} if secured else {}
    access |= {"tls_config": tls} if tls else {}
    access |= {"basic_auth": {"username": username, "password_file": password_file}} if username is not None else {}
    _print_yaml(prometheus.scrape_config(secured or list(targets), job=job, access=access))


HTTPS: Final = "https://"
_HIDDEN: Final = ("tmp/", "var/tmp/", "home/", "root/", "run/user/")


@generate.command("systemd")
@click.option("--properties", default="/etc/ottla/server.properties", show_default=True, help="The broker's configuration file.")
@click.option("--user", default="ottla", show_default=True, help="The account that the broker runs under.")
@click.option("--cores", metavar="N|auto", help="As many brokers, as `ottla broker start --cores` runs them.")
def systemd(properties: str, user: str, cores: str | None) -> None:
    """A systemd unit for one broker or several."""
    from ottla.cli.templates.systemd import unit

    if cores is not None:
        from ottla.cli.nodes.cores import core_count

        core_count(cores)  # what is wrong is refused here, and not when the unit starts
    click.echo(unit(command=_command(), properties=properties, user=user, cores=cores), nl=False)


def _command() -> str:
    """Returns the command of a unit, by its absolute path; warns where the unit would not find it."""
    command = shutil.which("ottla") or f"{sys.executable} -m ottla"
    if command.lstrip("/").startswith(_HIDDEN):
        place = "a unit has a /tmp of its own and no home directories (PrivateTmp, ProtectHome)"
        click.echo(f"warning: {command}: {place}; install ottla elsewhere, as below /opt (docs/install.md)", err=True)
    return command


@generate.command("pipeline-unit")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--app", help="The application's name.  [default: the file's name without its end]")
@click.option("--user", default="ottla", show_default=True, help="The account that the pipelines run under.")
@click.option(
    "-B",
    "--bootstrap-server",
    "bootstrap",
    envvar="OTTLA_BOOTSTRAP",
    show_envvar=True,
    default="localhost:9092",
    show_default=True,
    help="host:port, comma-separated.",
)
@click.option("--command-config", metavar="FILE", envvar="OTTLA_COMMAND_CONFIG", show_envvar=True, help="A properties file of the client.")
@click.option("--memory", metavar="SIZE", help="What driver, JVM and Python workers may take together, as 2G.")
def pipeline_unit(file: Path, app: str | None, user: str, bootstrap: str, command_config: str | None, memory: str | None) -> None:
    """A systemd unit for the pipelines of FILE.

    Save it as ottla-pipeline-APP.service. Checkpoints are below /var/lib/ottla-pipelines/APP.
    """
    from ottla.cli.templates.systemd import pipeline_unit as unit

    text = unit(
        command=_command(),
        file=str(file.absolute()),
        app=app or file.stem,
        user=user,
        bootstrap=bootstrap,
        command_config=command_config,
        memory=memory,
    )
    click.echo(text, nl=False)


@generate.command("compose")
@click.option("--nodes", default=3, show_default=True, type=click.IntRange(1, 9), help="How many nodes.")
@click.option("--cluster-id", help="The cluster's id; a new one when it is left out.")
@click.option("--image", default="ottla", show_default=True, help="The image of the nodes.")
def compose(nodes: int, cluster_id: str | None, image: str) -> None:
    """A compose file for a cluster of containers.

    They run on one machine. The file is JSON, which is YAML.
    """
    from ottla.broker.formatting import random_uuid
    from ottla.cli.templates.compose import compose as file
    from ottla.runtime.world import real_world

    _print_json(file(nodes=nodes, cluster_id=cluster_id or random_uuid(real_world()), image=image))


def _print_json(value: dict[str, Any]) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _print_yaml(value: dict[str, Any]) -> None:
    """Prints JSON, which is YAML: every tool that reads the one reads the other."""
    _print_json(value)
