"""``ottla pipeline submit``: run the pipelines of a file with executors on other machines, which get this environment as one archive."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from ottla.cli.output import bootstrap_option
from ottla.cli.pipeline_runs import (
    app_option,
    checkpoint_option,
    conf_option,
    directory_of,
    held,
    needs_pyspark,
    restarts_option,
    run_pipelines,
)
from ottla.cli.values import Directory

ARCHIVE = "environment.tar.gz"


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--master", required=True, help="The Spark master, such as spark://HOST:7077.")
@click.option(
    "--checkpoints",
    required=True,
    metavar="LOCATION",
    help="Where the checkpoints are, which driver and executors reach: hdfs://..., s3a://..., or a directory that all of them share.",
)
@app_option
@click.option("--until-caught-up", is_flag=True, help="End when all that is there now has been read.")
@click.option("--only", multiple=True, metavar="PACKAGE", help="Send this package and what it requires, beside ottla's own needs; not all.")
@click.option(
    "--python", "pythons", multiple=True, metavar="PATH", help="The Python of the executors' machines.  [default: python3.x of PATH]"
)
@click.option(
    "--archive",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Send this archive, made before, in place of one of the packages that are installed here.",
)
@conf_option
@restarts_option
@checkpoint_option
@click.option(
    "--data",
    type=Directory(path_type=Path),
    help="The directory of the driver's own files.  [default: ~/.local/share/ottla/pipelines/APP]",
)
@bootstrap_option
def submit(
    file: Path,
    master: str,
    checkpoints: str,
    app: str | None,
    until_caught_up: bool,
    only: tuple[str, ...],
    pythons: tuple[str, ...],
    archive: Path | None,
    conf: dict[str, str],
    restarts: int | None,
    checkpoint: str | None,
    data: Path | None,
    bootstrap: str,
) -> None:
    """Run FILE with the executors of a cluster.

    The functions that have @pipeline are run; the driver is this process.

    Executors need Java, Spark, and a Python of this one's minor version. They get the packages that are installed here, without PySpark,
    as one archive. Queries are started again when they fail, as by 'ottla pipeline run'; a task that is lost with its executor is run
    again elsewhere. Ctrl-C stops all of them.
    """
    with needs_pyspark():
        from ottla.spark.environment import NAME, beside_driver, write_archive
        from ottla.spark.executors import is_local
    if is_local(master):
        raise click.UsageError(f"--master {master} has no executors elsewhere: use 'ottla pipeline run'")
    if archive is not None and (only or pythons):
        raise click.UsageError("--only and --python say what an archive is made of: leave them out with --archive")
    name = app or file.stem
    directory = directory_of(name, data)
    with held(directory):
        sent = directory / ARCHIVE
        if archive is None:
            write_archive(sent, only=only, pythons=pythons)
            click.echo(f"{sent}: {sent.stat().st_size / 1e6:,.0f} MB of packages for executors")
        elif archive.resolve() != sent.resolve():
            shutil.copyfile(archive, sent)
    sends = [f"{sent}#{NAME}", *filter(None, [conf.get("spark.archives")])]
    run_pipelines(
        file.absolute(),
        app=name,
        master=master,
        config={**conf, "spark.archives": ",".join(sends)},
        checkpoint=checkpoint,
        data=data,
        bootstrap=bootstrap,
        until_caught_up=until_caught_up,
        restarts=restarts,
        checkpoints=checkpoints.rstrip("/"),
        starting=lambda: beside_driver(directory),
    )
