"""A user's file of pipelines: functions from a SparkSession to the writers of one or more streams.

::

    from ottla.spark import pipeline, to_topic

    @pipeline
    def totals(spark):
        orders = spark.readStream.format("ottla").options(**{"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}).load()
        return to_topic(orders.groupBy("key").count(), "totals", key="key").outputMode("update")

``ottla pipeline run FILE`` runs them. A writer is PySpark's own: trigger and output mode are the function's, its name and its checkpoint
the runner's. While the function runs, a sink that has no ``app`` takes the name of its query, and one without brokers the runner's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.options import CHECKPOINTS

F = TypeVar("F", bound=Callable[..., Any])
BOOTSTRAP: Final = "kafka.bootstrap.servers"
_MARK: Final = "__ottla_pipeline__"
_SINK: Final = "__ottla_sink__"


def pipeline(function: F) -> F:
    """Marks the function as a pipeline of its file; it stays as it is."""
    setattr(function, _MARK, True)
    return function


def check_source(path: Path) -> None:
    """Checks what can be checked of a file without running it. KafkaError INVALID_CONFIG where it is no Python file, or a SyntaxError."""
    if importlib.util.spec_from_file_location(path.stem, path) is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{path} is not a Python file")
    compile(path.read_bytes(), str(path), "exec")


def pipelines_of(path: Path) -> dict[str, Callable[[Any], Any]]:
    """Returns the pipelines of a file, by the names of their functions. KafkaError INVALID_CONFIG for a file that has none."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{path} is not a Python file")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    pipelines = {name: value for name, value in vars(module).items() if getattr(value, _MARK, False)}
    if not pipelines:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{path} has no pipeline: put @pipeline of ottla.spark above a function of the session")
    return pipelines


def writers_of(function: str, made: Any) -> list[Any]:
    """Returns the writers that a pipeline has returned, as a list. KafkaError INVALID_CONFIG for anything that is none."""
    writers = list(made) if isinstance(made, list | tuple) else [made]
    for writer in writers:
        if not hasattr(writer, "queryName"):
            found = "None" if writer is None else f"a value of type {type(writer).__name__}"
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"the pipeline {function} returned {found}: return what to_topic makes, or the writeStream of another sink, not started",
            )
    return writers


def name_of(app: str, function: str, index: int) -> str:
    """Returns a query's name: its transactional id, its group, and its checkpoint."""
    return f"{app}-{function}" if index == 0 else f"{app}-{function}-{index + 1}"


def is_query_of(app: str, name: str) -> bool:
    """True when the query of that name belongs to the application, not to one whose name only starts like it (orders, orders-eu).

    What follows the application's name is a function, which has no dashes. A query that is called as the application is its own, too.
    """
    if name == app:
        return True
    function, _, index = name.removeprefix(f"{app}-").partition("-")
    return name.startswith(f"{app}-") and function.isidentifier() and (not index or index.isdigit())


@dataclass(frozen=True, slots=True)
class Running:
    """The instructions of a runner to the sinks of a pipeline, and the list of those sinks."""

    names: Iterator[str]
    bootstrap: str
    checkpoint: str  # directory or topic, of sinks that do not say
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # options of how to reach these brokers; with passwords
    sinks: list[Any] = field(default_factory=list)  # in the order of their names
    settings: list[Mapping[str, str]] = field(default_factory=list)  # of these sinks


@dataclass(frozen=True, slots=True)
class Made:
    """The writers that a pipeline has returned, and what is known of their sinks, by the indexes of the writers."""

    writers: list[Any]
    sinks: dict[int, Any]
    settings: dict[int, Mapping[str, str]]

    @property
    def apps(self) -> set[str]:
        """The groups whose offsets these sinks commit."""
        return {settings["app"] for settings in self.settings.values()}


_RUNNING: Final[ContextVar[Running | None]] = ContextVar("ottla_pipeline", default=None)


@contextlib.contextmanager
def running(
    app: str,
    function: str,
    bootstrap: str,
    checkpoint: str = CHECKPOINTS[0],
    order: Sequence[int] = (),
    client: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    """Gives sinks that are made within names, these brokers, how to reach them, and this kind of checkpoint.

    ``order`` has the indexes of their names, in the order in which they are made; sinks beyond it take the next ones.
    """
    names = (name_of(app, function, index) for index in itertools.chain(order, itertools.count(len(order))))
    found = Running(names, bootstrap, checkpoint, client or {})
    token = _RUNNING.set(found)
    try:
        yield found
    finally:
        _RUNNING.reset(token)


def runner() -> Running | None:
    """Returns the runner; None where none runs the program."""
    return _RUNNING.get()


def made_by(
    pipeline: Callable[[Any], Any],
    session: Any,
    app: str,
    function: str,
    *,
    bootstrap: str,
    checkpoint: str,
    client: Mapping[str, str] | None = None,
) -> Made:
    """Returns what the pipeline makes, each sink with the name of its writer's query, in whatever order it has made them.

    A function that does not return its writers in that order is called once more: sinks have their names from the start.
    """
    order: list[int] = []
    for _ in range(2):
        with running(app, function, bootstrap, checkpoint, order, client) as found:
            writers = writers_of(function, pipeline(session))
        meant = order_of(writers, found.sinks)
        if meant == (order or list(range(len(meant)))):
            return Made(writers, dict(zip(meant, found.sinks)), dict(zip(meant, found.settings)))
        order = meant
    raise KafkaError(ErrorCode.INVALID_CONFIG, f"pipeline {function} returns its writers in another order each time it is called")


def order_of(writers: Sequence[Any], sinks: Sequence[Any]) -> list[int]:
    """Returns for each sink the index of its writer: the writer that has it (``attached``), else the next writer without a sink."""
    owned = {id(writer.__dict__[_SINK]): index for index, writer in enumerate(writers) if _SINK in vars(writer)}
    others = itertools.chain((index for index, writer in enumerate(writers) if _SINK not in vars(writer)), itertools.count(len(writers)))
    return [owned[id(sink)] if id(sink) in owned else next(others) for sink in sinks]


def attached(writer: Any, sink: Any) -> Any:
    """Returns the writer, with a note that this is its sink."""
    setattr(writer, _SINK, sink)
    return writer


def brokers_of(bootstrap: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options that name the brokers: the caller's, or the runner's with how to reach them.

    A runner's password is for its own brokers alone.
    """
    if bootstrap is not None:
        return {BOOTSTRAP: bootstrap}
    found = runner()
    if found is None or BOOTSTRAP in {name.lower() for name in options}:
        return {}
    return {BOOTSTRAP: found.bootstrap, **found.client}
