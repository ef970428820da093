"""``ottla quota``: list and set what users, client ids and addresses may do in a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.config import config_of, once, report_changes
from ottla.cli.output import bootstrap_option, end_of_plan, format_option, print_rows, yes_option

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT: Final = "<default>"
"""As a name: every entity without a quota of its own."""
KINDS: Final = ("user", "client-id", "ip")


def _entity_options(function: F) -> F:
    for kind in reversed(KINDS):
        option = click.option(f"--{kind}", f"{kind.replace('-', '_')}", metavar="NAME", help=f"This {kind}, or {DEFAULT} for all others.")
        function = option(function)
    return function


def _entity(**names: str | None) -> tuple[tuple[str, str | None], ...]:
    given = [(kind, names[kind.replace("-", "_")]) for kind in KINDS if names[kind.replace("-", "_")] is not None]
    return tuple((kind, None if name == DEFAULT else name) for kind, name in sorted(given))


def _shown(entity: tuple[tuple[str, str | None], ...]) -> str:
    return " ".join(f"{kind}={DEFAULT if name is None else name}" for kind, name in entity)


@click.group()
def quota() -> None:
    """List and set quotas of users, client ids and addresses."""


@quota.command("list")
@_entity_options
@bootstrap_option
@format_option
def list_quotas(bootstrap: str, output: str, **names: str | None) -> None:
    """List quotas: all, or those that an entity has."""
    from ottla.sync import Admin, QuotaMatch

    wanted = {kind: QuotaMatch.DEFAULT if name is None else name for kind, name in _entity(**names)}
    with Admin(bootstrap, **client_settings()) as admin:
        found = admin.describe_client_quotas(wanted)
    rows = [(_shown(entity), key, value) for entity, values in found.items() for key, value in sorted(values.items())]
    print_rows(output, "quota list", ("entity", "quota", "value"), sorted(rows))


@quota.command("set")
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("-d", "--delete", "deleted", multiple=True, metavar="KEY", help="A quota to remove.")
@_entity_options
@yes_option
@bootstrap_option
@format_option
def set_quota(values: tuple[str, ...], deleted: tuple[str, ...], yes: bool, bootstrap: str, output: str, **names: str | None) -> None:
    """Set quotas of a user, a client id, both, or an address.

    \b
    ottla quota set producer_byte_rate=1MB --user alice --yes
    ottla quota set consumer_byte_rate=524288 --client-id '<default>' --yes
    ottla quota set connection_creation_rate=10 --ip 10.0.0.7 --yes
    """
    from ottla.sync import Admin

    entity = _entity(**names)
    if not entity:
        raise click.UsageError("whose? give --user, --client-id or --ip")
    asked: list[tuple[str, float | None]] = [(key, None) for key in deleted]
    for key, text in map(config_of, values):
        try:
            asked.append((key, float(text)))
        except ValueError:
            raise click.UsageError(f"{key}={text}: expected a number") from None
    changes = once(asked)
    if not changes:
        raise click.UsageError("nothing to change; try producer_byte_rate=1MB")
    if not yes:
        with Admin(bootstrap, **client_settings()) as admin:
            [refusal] = admin.alter_client_quotas({entity: changes}, validate_only=True).values()
        if refusal is not None:
            raise refusal
        report_changes(output, "quota set", changes, "planned")
        plan = ", ".join(f"remove {key}" if value is None else f"set {key}={value:.15g}" for key, value in changes.items())
        end_of_plan(f"would {plan} of {_shown(entity)}")
    with Admin(bootstrap, **client_settings()) as admin:
        [error] = admin.alter_client_quotas({entity: changes}).values()
    if error is not None:
        raise error
    report_changes(output, "quota set", changes, "changed")
    click.echo(f"changed {', '.join(changes)} of {_shown(entity)}", err=True)
