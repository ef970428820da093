"""``ottla user``: list, add, delete SCRAM users. A password is never an argument: it is asked for, or read from a file or from standard
input.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.output import bootstrap_option, end_of_plan, format_option, print_rows, with_way_out, yes_option
from ottla.errors import KafkaError
from ottla.types import Secret

if TYPE_CHECKING:
    from ottla.client.admin import UserChange

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@click.group()
def user() -> None:
    """Manage SCRAM users."""


@user.command("list")
@click.argument("names", nargs=-1)
@bootstrap_option
@format_option
def list_users(names: tuple[str, ...], bootstrap: str, output: str) -> None:
    """List all users, or NAMES, with their mechanisms."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        users = admin.describe_users(names or None)
    for found in users.values():
        if isinstance(found, KafkaError):
            raise found
    rows = [
        (name, mechanism, iterations)
        for name, found in sorted(users.items())
        if not isinstance(found, KafkaError)
        for mechanism, iterations in found.items()
    ]
    print_rows(output, "user list", ("user", "mechanism", "iterations"), rows)


@user.command()
@click.argument("name")
@click.option("-m", "--mechanism", "mechanisms", multiple=True, type=click.Choice(MECHANISMS), help="Both when it is not given.")
@click.option("-i", "--iterations", type=click.IntRange(4096, 16384), default=4096, show_default=True, help="Of PBKDF2.")
@click.option("--password-file", type=click.File(encoding="utf-8"), help="Its first line is the password; - is standard input.")
@bootstrap_option
@format_option
def add(name: str, mechanisms: tuple[str, ...], iterations: int, password_file: Any, bootstrap: str, output: str) -> None:
    """Add a user, or give one another password. It is asked for unless there is a --password-file."""
    from ottla.client.admin import UserChange

    password = _password(password_file)
    chosen = mechanisms or MECHANISMS
    _alter(output, "user add", bootstrap, [UserChange(name, mechanism, password, iterations) for mechanism in chosen], "added")


@user.command()
@click.argument("name")
@click.option(
    "-m", "--mechanism", "mechanisms", multiple=True, type=click.Choice(MECHANISMS), help="All of the user's when it is not given."
)
@yes_option
@bootstrap_option
@format_option
def delete(name: str, mechanisms: tuple[str, ...], yes: bool, bootstrap: str, output: str) -> None:
    """Delete a user, or its credentials of one mechanism."""
    from ottla.client.admin import UserChange
    from ottla.sync import Admin

    chosen = mechanisms
    if not chosen:
        with Admin(bootstrap, **client_settings()) as admin:
            found = admin.describe_users([name])[name]
        if isinstance(found, KafkaError):
            raise found
        chosen = tuple(found)
    if not yes:
        end_of_plan(f"would delete the credentials of {name} for {' and '.join(chosen)}")
    _alter(output, "user delete", bootstrap, [UserChange(name, mechanism) for mechanism in chosen], "deleted")


def _password(file: Any) -> Secret:
    if file is None:
        if not sys.stdin.isatty():
            raise click.UsageError("there is no terminal to ask for the password: --password-file FILE has it, or - for standard input")
        text = str(click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    else:
        text = file.readline().rstrip("\r\n")
    if not text:
        raise click.UsageError("the password is empty")
    return Secret(text)


def _alter(output: str, command: str, bootstrap: str, changes: list[UserChange], done: str) -> None:
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        results = admin.alter_users(changes)
    rows = [(name, done if error is None else with_way_out(error)) for name, error in results.items()]
    print_rows(output, command, ("user", "outcome"), rows)
    if any(error is not None for error in results.values()):
        sys.exit(1)
