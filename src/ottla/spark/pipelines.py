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

import ast
import contextlib
import importlib.util
import inspect
import itertools
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, overload

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.options import CHECKPOINTS, SPARKS_OWN

F = TypeVar("F", bound=Callable[..., Any])
BOOTSTRAP: Final = "kafka.bootstrap.servers"
_MARK: Final = "__ottla_pipeline__"
_SINK: Final = "__ottla_sink__"


@overload
def pipeline(function: F) -> F: ...
@overload
def pipeline() -> Callable[[F], F]: ...
def pipeline(function: Any = None) -> Any:
    """Marks the function as a pipeline of its file; it stays as it is. ``@pipeline()`` does the same."""
    if function is None:
        return pipeline
    setattr(function, _MARK, True)
    return function


def check_source(path: Path) -> None:
    """Checks what can be checked of a file without running it. KafkaError INVALID_CONFIG where it is no Python file, or a SyntaxError.

    INVALID_CONFIG, too, for a pipeline that does not take the session.
    """
    if importlib.util.spec_from_file_location(path.stem, path) is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{path} is not a Python file")
    tree = compile(path.read_bytes(), str(path), "exec", ast.PyCF_ONLY_AST)
    assert isinstance(tree, ast.Module), "exec makes modules"
    compile(tree, str(path), "exec")  # which finds a return outside of a function
    imports = [name for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "ottla.spark" for name in node.names]
    if any((name.name, name.asname) == ("pipeline", None) for name in imports):
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and _is_marked_alone(node) and not _takes_one(node.args):
                raise _without_session(f"{path}:{node.lineno}", node.name)


def _is_marked_alone(node: ast.FunctionDef) -> bool:
    """Returns whether @pipeline is the function's only decorator; another one may give it more arguments."""
    found = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return len(found) == 1 and isinstance(found[0], ast.Name) and found[0].id == "pipeline"


def _takes_one(arguments: ast.arguments) -> bool:
    """Returns whether a function of these arguments can be called with one."""
    count = len(arguments.posonlyargs) + len(arguments.args)
    is_complete = count - len(arguments.defaults) <= 1 and all(arguments.kw_defaults)
    return is_complete and (count > 0 or arguments.vararg is not None)


def _without_session(place: str, function: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"{place}: a pipeline takes the SparkSession, and nothing else: def {function}(spark)")


def pipelines_of(path: Path) -> dict[str, Callable[[Any], Any]]:
    """Returns the pipelines of a file, by the names of their functions. KafkaError INVALID_CONFIG for a file that has none."""
    check_source(path)
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None, "the source was checked"
    assert found.loader is not None, "the source was checked"
    module = importlib.util.module_from_spec(found)
    with placed(found.origin or str(path)):
        found.loader.exec_module(module)
    pipelines = {name: value for name, value in vars(module).items() if getattr(value, _MARK, False)}
    if not pipelines:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{path} has no pipeline: put @pipeline of ottla.spark above a function of the session")
    for name, value in pipelines.items():
        try:
            inspect.signature(value).bind(None)
        except TypeError:
            raise _without_session(str(path), name) from None
    return pipelines


@contextlib.contextmanager
def placed(file: str, function: str | None = None) -> Iterator[None]:
    """Puts the innermost line of the file, and the pipeline, before what ottla refuses of it."""
    try:
        yield
    except KafkaError as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        if error.code is not ErrorCode.INVALID_CONFIG or not lines:
            raise
        path = Path(file)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        which = "" if function is None else f" (pipeline {function})"
        raise KafkaError(error.code, f"{shown}:{lines[-1]}{which}: {error.message}") from error


def _file_of(pipeline: Callable[[Any], Any]) -> str:
    """Returns the file that has the function; nothing for what is no function."""
    code = getattr(inspect.unwrap(pipeline), "__code__", None)
    return "" if code is None else str(code.co_filename)


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


def check_is_free(names: Iterable[str]) -> None:
    """Checks that a pipeline sets none of its runner's options of a writer. KafkaError INVALID_CONFIG otherwise: it would be lost."""
    for name in names if runner() is not None else ():
        if name.lower() in SPARKS_OWN:
            way_out = "the directory of checkpoints is that of ottla pipeline run --data DIR"
            if name.lower() == "queryname":
                way_out = "a query is called after its application (--app) and its function"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} is set by the runner of a pipeline: leave it out; {way_out}")


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
        with placed(_file_of(pipeline), function), running(app, function, bootstrap, checkpoint, order, client) as found:
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
