"""What runs the pipelines of a file has in common, on this machine and on a cluster; and the directory of an application."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import click

from ottla.cli.client_settings import spark_options
from ottla.cli.ctrl_c import ctrl_c_in_pauses

LOCK: Final = ".ottla-pipeline"

app_option = click.option("--app", help="The application's name.  [default: the file's name without its end]")

data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the application's checkpoints.  [default: ~/.local/share/ottla/pipelines/APP]",
)

checkpoint_option = click.option(
    "--checkpoint",
    type=click.Choice(["topic", "directory"]),
    help="Keep the checkpoints in topics, too, or in their directories alone.  [default: topic where the master is local]",
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
    checkpoints: str | None = None,
    starting: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> None:
    """Runs the queries of the file until they have ended; exit code 1 where one was stopped.

    ``checkpoints`` is where their checkpoints are, where that is not the application's directory; Spark's processes are started in
    ``starting``.
    """
    with needs_pyspark():
        from ottla.runtime.java import JavaMissingError
        from ottla.spark.defaults import MIRRORED, session, stop_session
        from ottla.spark.executors import is_local
        from ottla.spark.pipelines import pipelines_of
        from ottla.spark.runner import Runner
    kind = checkpoint or ("topic" if is_local(master) else "directory")
    directory = directory_of(app, data)
    with held(directory):
        log_file = directory / "spark.log"
        click.echo(f"starting Spark ({master}) for the pipelines of {file.name}; Spark's log is {log_file}")
        try:
            with starting():
                spark = session(app, master=master, config={**(MIRRORED if kind == "topic" else {}), **config}, log_file=log_file)
        except JavaMissingError as error:
            raise click.ClickException(str(error)) from None
        try:
            with ctrl_c_in_pauses() as pause:
                runner = Runner(
                    spark,
                    app,
                    pipelines_of(file),
                    checkpoints=checkpoints or str(directory),
                    bootstrap=bootstrap,
                    checkpoint=kind,
                    until_caught_up=until_caught_up,
                    client=spark_options(),
                    say=click.echo,
                    pause=pause,
                )
                is_well = runner.run()
        finally:
            stop_session()
    if not is_well:
        click.echo(f"to begin again, with repeated results: ottla pipeline reset {app} --yes", err=True)
        sys.exit(1)


def directory_of(app: str, data: Path | None) -> Path:
    """Returns the application's directory on this machine."""
    if data is not None:
        return data.absolute()
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "ottla" / "pipelines" / app


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
