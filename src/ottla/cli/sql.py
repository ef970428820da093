"""``ottla sql``: queries over topics, on Spark."""

from __future__ import annotations

import contextlib
import importlib
import sys
import time
from collections.abc import Iterator
from typing import TextIO

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.ctrl_c import stopped_by_signals
from ottla.cli.offsets import parse_offsets
from ottla.cli.output import bootstrap_option, format_option, wrong_call
from ottla.cli.schema_types import schema_problem
from ottla.cli.sql_session import NEEDS, SqlSession
from ottla.cli.sql_text import is_help, split
from ottla.errors import KafkaError

GREETING = "a statement ends with a semicolon; help; shows some, exit ends"
PROMPTS = ("ottla> ", "    -> ")
ENDS = ("exit", "quit")


@click.command()
@click.argument("query", required=False)
@click.option("-f", "--file", "file", type=click.File(encoding="utf-8"), help="Run the statements of the file; - is standard input.")
@click.option(
    "--schema", "schemas", multiple=True, metavar="TOPIC=COLUMNS", help="The topic's values are JSON: orders='id string, amount double'."
)
@click.option("--since", metavar="TIME", help="Only records from this time on: an ISO time, -1h, now, or milliseconds since 1970.")
@click.option("--registry", metavar="URL", help="A schema registry: topics that have a schema there are Avro or Protobuf.")
@click.option("--follow", is_flag=True, help="Go on with what comes from now on, until Ctrl-C, in lines of JSON.")
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
@bootstrap_option
@format_option
def sql(
    query: str | None,
    file: TextIO | None,
    schemas: tuple[str, ...],
    since: str | None,
    registry: str | None,
    follow: bool,
    master: str,
    bootstrap: str,
    output: str,
) -> None:
    """Run a SQL QUERY whose tables are topics, such as "select customer, sum(amount) from orders group by customer".

    Several statements have semicolons between them; one start of Spark serves all. The first that fails ends the command. Without QUERY
    and FILE they are read from the terminal, each when its semicolon has been typed, until Ctrl-D, or from standard input.

    Without a schema a topic has the columns key and value as text, topic, partition, offset and timestamp; with one the columns of its
    values, and those besides. Names with dots or dashes need backquotes. A value that does not fit its schema has nulls. "orders timestamp
    as of '2026-01-01 12:00'" is the topic as it was then; "show tables" lists the topics. "create temporary view" names a query for the
    statements after it.
    """
    if query is not None and file is not None:
        raise click.UsageError("give a QUERY or --file, not both")
    given: dict[str, str] = {}
    for text in schemas:
        name, equals, columns = text.partition("=")
        if not equals:
            raise click.UsageError(f"--schema {text}: it must be TOPIC=COLUMNS, such as orders='id string'")
        problem = schema_problem(columns)
        if problem is not None:
            raise click.UsageError(f"--schema {text}: {problem}")
        given[name] = columns
    with wrong_call():
        since_ms = None if since is None else parse_offsets(f"@{since}", int(time.time() * 1000)).start.value
    statements = None
    if query is not None or file is not None or not is_terminal():
        text = query if query is not None else (file or sys.stdin).read()
        whole, rest = split(text)
        statements = [*whole, *([rest] if rest else [])]
        if not statements:
            raise click.UsageError('there is no statement; give one, such as "select * from orders", or --file FILE')
    if follow and (statements is None or len(statements) > 1):
        raise click.UsageError("--follow is for one query, which goes on until Ctrl-C")
    try:
        importlib.import_module("ottla.spark.defaults")
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} {NEEDS}") from None
    from ottla.sync import Admin

    with (
        stopped_by_signals(),
        Admin(bootstrap, **client_settings()) as admin,
        SqlSession(
            admin, given, registry=registry, since_ms=since_ms, is_stream=follow, master=master, bootstrap=bootstrap, output=output
        ) as session,
    ):
        if statements is None:
            _converse(session)
            return
        session.check(statements)
        for number, statement in enumerate(statements):
            if number and output == "text":
                click.echo()
            session.run(statement)


def is_terminal() -> bool:
    """Returns whether statements are typed."""
    return sys.stdin.isatty()


def _converse(session: SqlSession) -> None:
    """Runs what is typed at the terminal, statement by statement; an error is printed, and the next one is read."""
    click.echo(GREETING, err=True)
    for statement in _typed():
        try:
            session.check_one(statement)
            session.run(statement)
        except click.ClickException as error:
            click.echo(f"Error: {error.format_message()}", err=True)
        except KafkaError as error:
            click.echo(f"Error: {error.message}", err=True)


def _typed() -> Iterator[str]:
    """Yields the statements that are typed, until Ctrl-D, or a line with exit or quit; a Ctrl-C drops an unfinished one."""
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")  # from then on lines can be edited, and earlier ones come back
    rest = ""
    while True:
        try:
            line = input(PROMPTS[bool(rest)])
        except EOFError:
            click.echo()
            return
        except KeyboardInterrupt:
            click.echo()
            rest = ""
            continue
        if not rest and line.strip().rstrip(";").lower() in ENDS:
            return
        if not rest and is_help(line):
            line += ";"
        statements, rest = split(f"{rest}\n{line}" if rest else line)
        yield from statements
