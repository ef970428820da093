"""``ottla demo``: the main job."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.cli.values import Directory

FLIGHT_COUNT = 336_776


@click.command()
@click.option("--keep", is_flag=True, help="Resume the last run: topics and checkpoint are kept, and nothing is sent again.")
@click.option(
    "--data",
    type=Directory(path_type=Path),
    help="The directory of the brokers' data and the checkpoint; emptied unless --keep is given.",
)
@click.option("--kill", is_flag=True, help="Kill (SIGKILL) a Python worker, a broker and Spark's JVM in the run; remove the checkpoints.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="The first of the brokers' six ports on end.  [default: 9092, or free ones]"
)
@click.option(
    "--records", type=click.IntRange(1, FLIGHT_COUNT), default=FLIGHT_COUNT, show_default=True, help="Send only this many flights."
)
@click.option("--master", default="local[2]", show_default=True, help="The Spark master.")
def demo(keep: bool, data: Path | None, kill: bool, port: int, records: int, master: str) -> None:
    """Stream the 336,776 flights that left New York in 2013 through three brokers and a PySpark pipeline, and print the results.

    Ctrl-C stops it cleanly at any point; --keep resumes from there.
    """
    try:
        from ottla.runtime.java import JavaMissingError
        from ottla.spark.demo.job import run
        from ottla.spark.demo.place import PlaceError, default_directory
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing; install what the demo needs with: pip install 'ottla[spark]'") from None

    directory = (data or default_directory()).absolute()
    try:
        run(directory, keep=keep, count_max=records, master=master, port=port, is_killing=kill, say=click.echo)
    except (PlaceError, JavaMissingError) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        click.echo(f"\nstopped; the data and results so far are in {directory}; `ottla demo --keep` resumes from there", err=True)
        raise
