"""What commands print: a table for people, or JSON for programs.

With ``--format json`` standard output holds one JSON document and nothing else; diagnostics go to standard error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click
import msgspec

from ottla.cli.client_settings import client_options
from ottla.errors import KafkaError

F = TypeVar("F", bound=Callable[..., Any])


def format_option(function: F) -> F:
    """``--format text|json``."""
    option = click.option(
        "--format", "output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="The output format."
    )
    return option(function)


def override_option(function: F) -> F:
    """``-X KEY=VALUE``, any number of them."""
    option = click.option(
        "-X",
        "--override",
        "overrides",
        multiple=True,
        metavar="KEY=VALUE",
        help="A configuration key; takes precedence over the file and the environment.",
    )
    return option(function)


def bootstrap_option(function: F) -> F:
    """``-B host:port``, or OTTLA_BOOTSTRAP, and how brokers are reached (``client_settings.py``)."""
    option = click.option(
        "-B",
        "--bootstrap-server",
        "bootstrap",
        envvar="OTTLA_BOOTSTRAP",
        default="localhost:9092",
        show_default=True,
        callback=_checked,
        help="Bootstrap servers: host:port, comma-separated.",
    )
    return option(client_options(function))


def _checked(context: click.Context, parameter: click.Parameter, servers: str) -> str:
    from ottla.client.cluster import parse_bootstrap

    with wrong_call():
        parse_bootstrap(servers)
    return servers


@contextlib.contextmanager
def wrong_call() -> Iterator[None]:
    """A KafkaError within is the caller's: UsageError, exit code 2."""
    try:
        yield
    except KafkaError as error:
        raise click.UsageError(error.message) from error


def say_connectivity(problem: KafkaError | None) -> None:
    """What a client says of its brokers, on standard error as it changes."""
    if problem is None:
        complain("reconnected")
    else:
        complain(f"no broker can be reached, still trying: {problem.message}")


def complain(text: str) -> None:
    """One line on standard error."""
    click.echo(f"ottla: {text}", err=True)


def yes_option(function: F) -> F:
    """``--yes`` for what cannot be undone."""
    return click.option("-y", "--yes", is_flag=True, help="Apply the change; without it, only the plan is printed.")(function)


def print_rows(output: str, command: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Rows under column heads, or a list of objects by column name."""
    if output == "json":
        print_json(command, [dict(zip(columns, row, strict=True)) for row in rows])
        return
    table = [[column.upper().replace("_", "-") for column in columns]] + [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_json(command: str, items: Any) -> None:
    document = {"_command": command, "_version": 1, "items": items}
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, (list, tuple)):
        return ",".join(map(str, cell))
    return str(cell)
