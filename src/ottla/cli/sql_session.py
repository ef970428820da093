"""The statements of one ``ottla sql``: Spark starts for the first that needs it, and serves all."""

from __future__ import annotations

import contextlib
import difflib
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import click

from ottla.cli.client_settings import spark_options
from ottla.cli.ctrl_c import ctrl_c_in_pauses
from ottla.cli.output import print_rows, without_controls
from ottla.cli.pipeline_runs import DEAD_JVM, QUERY_LOGGERS, is_not_of_py4j
from ottla.cli.sql_text import HELP, READS_ONLY, is_help, is_write, makes_view, tables_of, words_of, wrong_start

if TYPE_CHECKING:
    from ottla.sync import Admin

POLL_S: Final = 0.2
VIEWS_OF_SPARK: Final = (["show"], ["use"])
"""Statements whose names are none of tables alone: show columns, functions, views."""
_COLUMN: Final = re.compile(r"\[UNRESOLVED_COLUMN[^]]*\][^`]*((?:`[^`]+`\.?)+)")
NEEDS: Final = "is missing; install what queries need with: pip install 'ottla[spark]'"


class SqlSession:
    """A Spark session over the topics of a cluster, for the block of a ``with``. ClickException with one line for what cannot be run."""

    def __init__(
        self,
        admin: Admin,
        schemas: Mapping[str, str],
        *,
        registry: str | None,
        since_ms: int | None,
        is_stream: bool,
        master: str,
        bootstrap: str,
        output: str,
    ) -> None:
        self._admin = admin
        self._schemas: dict[str, Any] = dict(schemas)
        self._registry = registry
        self._asked: set[str] = set()  # topics that the registry has been asked for
        self._since_ms = since_ms
        self._is_stream = is_stream
        self._master = master
        self._bootstrap = bootstrap
        self._output = output
        self._has_views = False
        self._spark: Any = None
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.close()

    def check(self, statements: Sequence[str]) -> None:
        """Checks all of them before Spark starts, and that schemas are of their topics."""
        from ottla.spark.queries import check_schemas

        named = set[str]()
        has_views = self._has_views
        for statement in statements:
            named.update(self.check_one(statement, has_views=has_views))
            has_views = has_views or makes_view(words_of(statement))
        if named:
            check_schemas(self._schemas, named)

    def check_one(self, statement: str, *, has_views: bool | None = None) -> list[str]:
        """Checks that the statement reads, and that it names a topic, or may name a view; returns its topics."""
        from ottla.spark.queries import named_in, topics_like
        from ottla.spark.time_travel import with_views

        words = words_of(statement)
        if is_help(statement):
            return []
        if is_write(words):
            raise click.ClickException(f"{words[0]}: {READS_ONLY}")
        there = self._admin.list_topics()
        topics = named_in(statement, there)
        if not topics:
            problem = wrong_start(words)
            if problem is not None:
                raise click.ClickException(problem)
            if self._is_stream:
                hint = _hint(statement, there)
                raise click.ClickException(f"the query names no topic of the cluster{hint}; `ottla topic list` shows them")
        unknown = [name for name in tables_of(statement) if name not in there]
        may_be_views = (self._has_views if has_views is None else has_views) or words[:1] in VIEWS_OF_SPARK
        if not topics and unknown and not may_be_views and topics_like(statement, ()) is None:
            raise click.ClickException(f"there is no topic {unknown[0]!r}{_hint(statement, there)}; `ottla topic list` shows them")
        _, as_of = with_views(statement, topics)
        if self._is_stream and as_of:
            raise click.UsageError("--follow reads what comes from now on, and a topic as of a time has an end: leave one of them out")
        return topics

    def run(self, statement: str) -> None:
        """Runs one statement, and prints its rows."""
        from ottla.spark.queries import follow, make_views, named_in, topics_like, with_case
        from ottla.spark.time_travel import with_views

        if is_help(statement):
            click.echo(HELP)
            return
        there = self._admin.list_topics()
        shown = topics_like(statement, [name for name, topic in there.items() if not topic.is_internal])
        if shown is not None:
            print_rows(self._output, "sql", ("table",), [(topic,) for topic in shown])
            return
        topics = named_in(statement, there)
        query, as_of = with_views(statement, topics)
        self._ask_registry(topics)
        schemas = {topic: found for topic, found in self._schemas.items() if topic in topics}
        spark = self._started()
        with _errors_of_spark([topic for topic in topics if topic not in schemas]):
            with with_case(spark, topics, there):
                make_views(
                    spark,
                    topics,
                    schemas,
                    bootstrap=self._bootstrap,
                    since_ms=self._since_ms,
                    is_stream=self._is_stream,
                    as_of=as_of,
                    client=spark_options(),
                )
                frame = spark.sql(query)
            if makes_view(words_of(statement)):
                self._has_views = True
            elif self._is_stream:
                _wait(follow(frame, _say))
            else:
                print_rows(self._output, "sql", tuple(frame.columns), [tuple(map(_plain, row)) for row in frame.collect()])

    def _started(self) -> Any:
        """Returns Spark's session, which starts when it is first needed."""
        from ottla.runtime.java import JavaMissingError
        from ottla.spark.defaults import session, stop_session
        from ottla.spark.noise import keep_in

        if self._spark is None:
            log_file = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="ottla-sql-"))) / "spark.log"
            try:
                self._spark = session("ottla-sql", master=self._master, log_file=log_file)
            except JavaMissingError as error:
                raise click.ClickException(str(error)) from None
            self._closing.callback(stop_session)
            keep_in(log_file)
        return self._spark

    def _ask_registry(self, topics: Iterable[str]) -> None:
        """Gives topics without a schema that of the registry, where they have one there."""
        if self._registry is None:
            return
        asked = [topic for topic in topics if topic not in self._schemas and topic not in self._asked]
        self._schemas |= _of_registry(self._registry, asked)
        self._asked.update(asked)


def _hint(query: str, topics: Iterable[str]) -> str:
    """Returns which topic a table of the query may mean, for an error; empty where none is near."""
    by_letters = {topic.lower(): topic for topic in topics}
    near = [found[0] for name in tables_of(query) if (found := difflib.get_close_matches(name.lower(), by_letters, n=1))]
    return f"; did you mean {by_letters[near[0]]}?" if near else ""


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
def _errors_of_spark(plain: Sequence[str]) -> Iterator[None]:
    """Turns what Spark raises into one line with the reason. To be entered while Spark runs: it is asked for the text of its errors.

    ``plain`` are the topics of the query that have no schema: one may have the column that Spark has not found.
    """
    from pyspark.errors import PySparkException

    from ottla.spark.defaults import is_of_a_dead_jvm

    logging.getLogger().addFilter(is_not_of_py4j)
    for name in QUERY_LOGGERS:
        logging.getLogger(name).disabled = True
    try:
        yield
    except PySparkException as error:
        text = str(error)
        raise click.ClickException(_reason(text).rstrip() + _schema_hint(text, plain)) from None
    except Exception as error:
        if not is_of_a_dead_jvm(error):
            raise
        raise click.ClickException(DEAD_JVM) from None


def _schema_hint(text: str, plain: Sequence[str]) -> str:
    """Returns what to add to Spark's error about a column that it does not know; empty for another error."""
    found = _COLUMN.match(text.strip())
    if found is None or not plain:
        return ""
    column = re.findall(r"`([^`]+)`", found[1])[-1]
    names = " and ".join(plain)
    return f'; {names} {"has" if len(plain) == 1 else "have"} no schema here: --schema {plain[0]}="{column} string"'


def _reason(text: str) -> str:
    """Returns why Spark has failed: the reason that its text quotes, else its first line. Options that a pipeline has are left out."""
    from ottla.spark.reading import AFTER_DELETION, GO_ON
    from ottla.spark.runner import reason_of

    if "Traceback (most recent call last)" not in text:
        return text.strip().partition("\n")[0].rstrip(";")
    return ": ".join(reason_of(text)).removesuffix(f". {AFTER_DELETION}").removesuffix(f". {GO_ON}")


def _wait(query: Any) -> None:
    """Waits until the query fails, or a Ctrl-C."""
    with ctrl_c_in_pauses() as pauses:
        try:
            while query.isActive:
                pauses.pause(POLL_S)
            raise click.ClickException(_reason(str(query.exception())))
        finally:
            query.stop()


def _say(rows: list[Any]) -> None:
    import json

    for row in rows:
        click.echo(without_controls(json.dumps(row.asDict(recursive=True), default=str, ensure_ascii=False), form="\\u{:04x}"))


def _plain(value: Any) -> Any:
    """Returns the value as tables and JSON have it."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
