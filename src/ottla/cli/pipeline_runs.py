"""What runs the pipelines of a file has in common, on this machine and on a cluster; and the directory of an application."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from ottla.cli.client_settings import client_settings, spark_options
from ottla.cli.ctrl_c import ctrl_c_in_pauses, stopped_by_signals
from ottla.cli.exit_codes import CANNOT_CONTINUE, WRONG_CALL
from ottla.cli.output import complain, with_way_out
from ottla.cli.values import Directory
from ottla.errors import ErrorCode, KafkaError, OttlaError
from ottla.types import topic_name_problem

LOCK: Final = ".ottla-pipeline"
NOTES: Final = ".data"
"""Beside the directories of applications: a file for each application that has used another one last, with its path."""
CAUGHT_UP_RESTARTS: Final = 5
KEPT_IN_TOPICS: Final = ("-checkpoint", "-changelog")
BROKERS_MS_MAX: Final = 10_000
QUERY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Spark's, which have an error's whole text as one line of JSON."""
DEAD_JVM: Final = "Spark's JVM has ended, as when it is killed for its memory"
_CLASS_OF_SPARKS: Final = re.compile(r"\[[A-Z]{2}")
"""The start of the text of an error that names its class; [Errno 2] is the start of another one."""
SET_BY_COMMAND: Final = frozenset(
    {"spark.master", "spark.app.name", "spark.submit.deployMode", "spark.pyspark.python", "spark.pyspark.driver.python"}
)

app_option = click.option("--app", help="The application's name.  [default: the file's name without its end]")

data_option = click.option(
    "--data",
    type=Directory(path_type=Path),
    help="The directory of the application's checkpoints.  [default: ~/.local/share/ottla/pipelines/APP]",
)

restarts_option = click.option(
    "--restarts",
    type=click.IntRange(0),
    help=f"End, with exit code 1, when a query has failed more than so many times in a row.  "
    f"[default: {CAUGHT_UP_RESTARTS} with --until-caught-up, else without end]",
)

checkpoint_option = click.option(
    "--checkpoint",
    type=click.Choice(["topic", "directory"]),
    help="Keep the checkpoints in topics, too, or in their directories alone.  [default: topic where the master is local]",
)


def _properties(context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    """Returns the properties of Spark that the pairs set. UsageError for anything else, and for what the command itself sets."""
    properties = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.UsageError(f"--conf {pair} is not KEY=VALUE with a key of Spark (spark.*)", context)
        if key in SET_BY_COMMAND:
            raise click.UsageError(f"--conf {pair}: the driver is this process, and the command sets this; see the other options", context)
        properties[key] = value
    return properties


conf_option = click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_properties,
    help="A property of Spark, such as spark.executor.memory=2g; may be given several times.",
)


@contextlib.contextmanager
def needs_pyspark() -> Iterator[None]:
    """Turns a missing module into an error of the command, with the way out."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing; install what pipelines need with: pip install 'ottla[spark]'") from None


def run_pipelines(
    file: Path,
    *,
    app: str,
    master: str,
    config: Mapping[str, str],
    checkpoint: str | None,
    data: Path | None,
    bootstrap: str,
    until_caught_up: bool,
    restarts: int | None,
    checkpoints: str | None = None,
    starting: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Runs the queries of the file until they have ended; exit code 3 where one may not continue, 1 where one has failed too often.

    ``checkpoints`` is where their checkpoints are, where that is not the application's directory; Spark's processes are started in
    ``starting``.
    """
    with needs_pyspark():
        from ottla.runtime.java import JavaMissingError
        from ottla.spark.defaults import MIRRORED, session, stop_session
        from ottla.spark.executors import is_local
        from ottla.spark.link import broken_off_in
        from ottla.spark.noise import keep_in
        from ottla.spark.pipelines import check_source, pipelines_of
        from ottla.spark.runner import Runner
    kind = checkpoint or ("topic" if is_local(master) else "directory")
    problem = topic_name_problem(app)
    if kind == "topic" and problem is not None:
        raise click.UsageError(f"the application is called {app!r}, and its checkpoints are in topics: {problem}; give another --app")
    directory = directory_of(app, data)
    with errors_of(file):
        check_source(file)
    with refusals_end():
        check_brokers(bootstrap)
    with held(directory):
        note_directory(app, directory)
        log_file = directory / "spark.log"
        click.echo(f"starting Spark ({master}) for the pipelines of {file.name}; Spark's log is {log_file}")
        try:
            with stopped_by_signals(), starting():
                spark = session(app, master=master, config={**(MIRRORED if kind == "topic" else {}), **config}, log_file=log_file)
        except JavaMissingError as error:
            raise click.ClickException(str(error)) from None
        keep_in(log_file)
        try:
            with refusals_end(), errors_of(file, log_file), ctrl_c_in_pauses() as pauses, broken_off_in(pauses.breakable):
                runner = Runner(
                    spark,
                    app,
                    pipelines_of(file),
                    checkpoints=checkpoints or str(directory),
                    bootstrap=bootstrap,
                    checkpoint=kind,
                    until_caught_up=until_caught_up,
                    restarts_max=CAUGHT_UP_RESTARTS if restarts is None and until_caught_up else restarts,
                    client=spark_options(),
                    say=click.echo,
                    pause=pauses.pause,
                    explain=refusal_text,
                    absent=lambda topics: absent_of(topics, bootstrap),
                )
                is_well = runner.run()
        finally:
            stop_session()
    if runner.can_be_restored:
        way = command_of("restore", app, data, bootstrap) if checkpoints is None else f"delete those in {checkpoints}, and start again"
        click.echo(f"to go on from the checkpoints in topics: {way}", err=True)
    if runner.is_to_be_reset:
        also = "" if checkpoints is None else f", and delete the checkpoints in {checkpoints}"
        click.echo(f"to begin again, with repeated results: {command_of('reset', app, data, bootstrap)}{also}", err=True)
    if runner.cannot_continue:
        sys.exit(CANNOT_CONTINUE)
    if not is_well:
        sys.exit(1)


def refusal_text(error: KafkaError, reads: str) -> str:
    """Returns a refusal of a query that reads these topics, with what the user needs there: the answer does not say what was asked."""
    text = error.message
    named = re.search(r"\btopic '([^']+)'", text)
    if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and named is not None and " takes " not in text:
        rights, why = "WRITE", "writes"
        if named[1] in reads.split(", "):
            rights, why = "READ", "reads"
        elif named[1].endswith(KEPT_IN_TOPICS):
            rights, why = "CREATE, READ, WRITE and DESCRIBE_CONFIGS", "keeps its state in"
        error = KafkaError(error.code, f"topic {named[1]!r}, which the query {why}, takes {rights}")
    return with_way_out(error)


@contextlib.contextmanager
def refusals_end() -> Iterator[None]:
    """Ends with exit code 3 where brokers refuse the user, who would be refused again."""
    from ottla.spark.runner import REFUSALS

    try:
        yield
    except KafkaError as error:
        if error.code not in REFUSALS:
            raise
        complain(with_way_out(error))
        sys.exit(CANNOT_CONTINUE)


def check_brokers(bootstrap: str) -> None:
    """Asks a broker for the cluster's metadata, before Spark takes its time to start. KafkaError within seconds where none answers."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings(request_timeout_ms=BROKERS_MS_MAX)) as admin:
        admin.describe_cluster()


def absent_of(topics: set[str], bootstrap: str) -> set[str]:
    """Returns which of the topics the brokers do not list; none where they do not answer, which the queries report."""
    from ottla.sync import Admin

    if not topics:
        return set()
    try:
        with Admin(bootstrap, **client_settings(request_timeout_ms=BROKERS_MS_MAX)) as admin:
            return topics - set(admin.list_topics())
    except KafkaError:
        return set()


def command_of(name: str, app: str, data: Path | None, bootstrap: str) -> str:
    """Returns the command that changes where the application goes on, with what this one was given."""
    where = [] if data is None else ["--data", str(data)]
    source = click.get_current_context().get_parameter_source("bootstrap")
    brokers = ["-B", bootstrap] if source == ParameterSource.COMMANDLINE else []
    return shlex.join(["ottla", "pipeline", name, app, "--yes", *where, *brokers])


@contextlib.contextmanager
def errors_of(file: Path, log_file: Path | None = None) -> Iterator[None]:
    """Turns what the file's own code raises into one line that names its line; the traceback is added to the log.

    So does what Spark raises where a query of the file is started: it names the file. What ottla refuses of the file, such as an option,
    is a wrong call: exit code 2. To be entered while Spark runs: it is asked for the text of its errors.
    """
    from ottla.spark.defaults import is_of_a_dead_jvm
    from ottla.spark.jvm_start import reason_of

    for name in QUERY_LOGGERS:
        logging.getLogger(name).disabled = True
    logging.getLogger().addFilter(is_not_of_py4j)
    try:
        yield
    except (OttlaError, click.ClickException) as error:
        if isinstance(error, KafkaError) and error.code == ErrorCode.INVALID_CONFIG:
            complain(with_way_out(error))
            sys.exit(WRONG_CALL)
        raise
    except Exception as error:
        frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        is_of_spark = not frames or Path(frames[-1][0]).parent.name == "py4j"  # a call of the file's code to the JVM, and not to others
        if isinstance(error, SyntaxError):
            frames.append((error.filename or "", error.lineno))
        lines = [line for name, line in frames if Path(name).absolute() == file.absolute()]
        if (is_of_spark or not lines) and log_file is not None and is_of_a_dead_jvm(error):
            raise click.ClickException(f"{DEAD_JVM}; {log_file} may say why") from None
        is_javas = type(error).__name__ == "Py4JJavaError"  # which PySpark has no class for
        if not lines and not is_javas and not type(error).__module__.startswith("pyspark."):
            raise
        if log_file is not None:
            with contextlib.suppress(OSError), log_file.open("a") as log:  # a full disk may be what the error is about
                traceback.print_exc(file=log)
        text, cause = reason_of(str(error)).rstrip(";"), getattr(error, "_cause", None)
        if text.endswith(":") and cause is not None:
            text = reason_of(str(cause))  # Spark says where it was, and leaves the reason to the error below
        is_named = is_javas or _CLASS_OF_SPARKS.match(text) is not None  # it starts with the name of a class
        named = text if is_named else f"{type(error).__name__}: {text}"
        where = f"{file}:{lines[-1]}" if lines else f"{file}: Spark refuses to start a query"
        notes = [note for note in getattr(error, "__notes__", ()) if note != text]
        raise click.ClickException("; ".join([f"{where}: {named}", *notes])) from None


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Returns False for what py4j logs with the root logger: the traceback of a call to a JVM that has ended, which is raised, too."""
    return Path(record.pathname).parent.name != "py4j"


def directory_of(app: str, data: Path | None) -> Path:
    """Returns the application's directory on this machine."""
    return _home() / app if data is None else data.absolute()


def _home() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "ottla" / "pipelines"


def note_directory(app: str, directory: Path) -> None:
    """Notes which directory the application has used last, where that is not its own one: for commands that are given none."""
    note = _home() / NOTES / app
    if directory == _home() / app:
        note.unlink(missing_ok=True)
        return
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(f"{directory}\n")


def check_directory(app: str, data: Path | None) -> None:
    """Checks that a call without --data means the directory that the application has used last. ClickException with the way out."""
    try:
        last = Path((_home() / NOTES / app).read_text().removesuffix("\n"))
    except OSError:
        return
    if data is None and last.is_dir():
        used, own = (shlex.quote(str(path)) for path in (last, _home() / app))
        raise click.ClickException(f"{app} ran last with --data {used}: give that, or --data {own} for the one that you mean")


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Holds the directory: no other process of this machine uses it meanwhile. One with files of another kind is refused."""
    directory.mkdir(parents=True, exist_ok=True)
    mark = directory / LOCK
    if not mark.exists() and any(directory.iterdir()):
        raise click.ClickException(f"{directory} has files that are not of a pipeline; name an empty or new directory with --data")
    with mark.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.ClickException(f"the application runs, and uses {directory}; stop it first") from None
        yield
