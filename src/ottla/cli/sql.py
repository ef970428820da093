"""``ottla sql``: a query over topics, on Spark."""

from __future__ import annotations

import contextlib
import difflib
import logging
import re
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ottla.cli.client_settings import client_settings, spark_options
from ottla.cli.ctrl_c import ctrl_c_in_pauses
from ottla.cli.offsets import parse_offsets
from ottla.cli.output import bootstrap_option, format_option, print_rows, wrong_call
from ottla.cli.pipeline_runs import QUERY_LOGGERS
from ottla.cli.schema_types import schema_problem

POLL_S = 0.2
_TABLE = re.compile(r"\b(?:from|join)\s+`?([\w.-]+)", re.IGNORECASE)
NEEDS = "is missing; install what queries need with: pip install 'ottla[spark]'"


@click.command()
@click.argument("query")
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
    query: str,
    schemas: tuple[str, ...],
    since: str | None,
    registry: str | None,
    follow: bool,
    master: str,
    bootstrap: str,
    output: str,
) -> None:
    """Run a SQL QUERY whose tables are topics, such as "select customer, sum(amount) from orders group by customer".

    Without a schema a topic has the columns key and value as text, topic, partition, offset and timestamp; with one the columns of its
    values, and those besides. Names with dots or dashes need backquotes. A value that does not fit its schema has nulls. "orders timestamp
    as of '2026-01-01 12:00'" is the topic as it was then; "show tables" lists the topics.
    """
    given: dict[str, Any] = {}
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
    try:
        from ottla.runtime.java import JavaMissingError
        from ottla.spark.defaults import session, stop_session
        from ottla.spark.queries import check_schemas, make_views, named_in, topics_like
        from ottla.spark.queries import follow as followed
        from ottla.spark.time_travel import with_views
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} {NEEDS}") from None
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        there = admin.list_topics()
    shown = topics_like(query, [name for name, topic in there.items() if not topic.is_internal])
    if shown is not None:
        print_rows(output, "sql", ("table",), [(topic,) for topic in shown])
        return
    topics = named_in(query, there)
    if not topics:
        raise click.ClickException(f"the query names no topic of the cluster{_hint(query, there)}; `ottla topic list` shows them")
    check_schemas(given, topics)
    query, as_of = with_views(query, topics)
    if follow and as_of:
        raise click.UsageError("--follow reads what comes from now on, and a topic as of a time has an end: leave one of them out")
    if registry is not None:
        given |= _of_registry(registry, [topic for topic in topics if topic not in given])
    with tempfile.TemporaryDirectory(prefix="ottla-sql-") as directory:
        try:
            spark = session("ottla-sql", master=master, log_file=Path(directory) / "spark.log")
        except JavaMissingError as error:
            raise click.ClickException(str(error)) from None
        try:
            with _errors_of_spark():
                make_views(
                    spark, topics, given, bootstrap=bootstrap, since_ms=since_ms, is_stream=follow, as_of=as_of, client=spark_options()
                )
                frame = spark.sql(query)
                if follow:
                    _wait(followed(frame, _say))
                else:
                    print_rows(output, "sql", tuple(frame.columns), [tuple(map(_plain, row)) for row in frame.collect()])
        finally:
            stop_session()


def _hint(query: str, topics: Iterable[str]) -> str:
    """Returns which topic a table of the query may mean, for an error; empty where none is near."""
    names: list[str] = _TABLE.findall(query)
    near = [found[0] for name in names if (found := difflib.get_close_matches(name, topics, n=1))]
    return f"; did you mean {near[0]}?" if near else ""


def _of_registry(registry: str, topics: list[str]) -> dict[str, Any]:
    """Returns the topics that have a schema in the registry, each with its form."""
    from ottla.spark.avro_values import avro
    from ottla.spark.protobuf_values import protobuf
    from ottla.spark.registry import WRONG_KIND, Registry, RegistryError

    found: dict[str, Any] = {}
    for topic in topics:
        try:
            Registry(registry).newest(f"{topic}-value")
        except RegistryError as error:
            if error.status not in (404, WRONG_KIND):
                raise click.ClickException(error.message) from None
            if error.status == WRONG_KIND:
                found[topic] = protobuf(registry)
        else:
            found[topic] = avro(registry)
    return found


@contextlib.contextmanager
def _errors_of_spark() -> Iterator[None]:
    """Turns what Spark raises into one line with the reason. To be entered while Spark runs: it is asked for the text of its errors."""
    from pyspark.errors import PySparkException

    for name in QUERY_LOGGERS:
        logging.getLogger(name).disabled = True
    try:
        yield
    except PySparkException as error:
        raise click.ClickException(_reason(str(error))) from None


def _reason(text: str) -> str:
    """Returns why Spark has failed: the reason that its text quotes, else its first line."""
    from ottla.spark.runner import reason_of

    return ": ".join(reason_of(text)) if "Traceback (most recent call last)" in text else text.strip().partition("\n")[0].rstrip(";")


def _wait(query: Any) -> None:
    """Waits until the query fails, or a Ctrl-C."""
    with ctrl_c_in_pauses() as pause:
        try:
            while query.isActive:
                pause(POLL_S)
            raise click.ClickException(_reason(str(query.exception())))
        finally:
            query.stop()


def _say(rows: list[Any]) -> None:
    import json

    for row in rows:
        click.echo(json.dumps(row.asDict(recursive=True), default=str, ensure_ascii=False))


def _plain(value: Any) -> Any:
    """Returns the value as tables and JSON have it."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
