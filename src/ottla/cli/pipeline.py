"""``ottla pipeline``: run the pipelines of a file; show what an application has written, write its checkpoints back, let it begin again."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_settings import client_settings, spark_options
from ottla.cli.ctrl_c import stopped_by_signals
from ottla.cli.output import bootstrap_option, complain, end_of_plan, format_option, print_rows, with_way_out, yes_option
from ottla.cli.pipeline_runs import (
    app_option,
    check_directory,
    checkpoint_option,
    command_of,
    conf_option,
    data_option,
    directory_of,
    errors_of,
    held,
    needs_pyspark,
    note_directory,
    restarts_option,
    run_pipelines,
)
from ottla.cli.pipeline_status import StatusRow, applications, checkpoint_topics, status_rows
from ottla.cli.pipeline_submit import submit
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.sync import Admin

SILENCE_S: Final = 30


@click.group()
def pipeline() -> None:
    """Run pipelines on Spark, exactly once."""


@pipeline.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@app_option
@click.option("--until-caught-up", is_flag=True, help="End when all that is there now has been read.")
@click.option("--master", help="The Spark master.  [default: local[*]]")
@conf_option
@click.option("--small", is_flag=True, help="Take little memory: local[1], and a JVM of 512 MB; batches take longer.")
@restarts_option
@checkpoint_option
@data_option
@bootstrap_option
def run(
    file: Path,
    app: str | None,
    until_caught_up: bool,
    master: str | None,
    conf: dict[str, str],
    small: bool,
    restarts: int | None,
    checkpoint: str | None,
    data: Path | None,
    bootstrap: str,
) -> None:
    """Run the functions of FILE that have @pipeline.

    Their queries are started again when they fail.

    A query that may not go on (another copy runs, the checkpoint is not that of the topic, the user lacks a right) is not started again:
    exit code 3. Ctrl-C or SIGTERM stops all of them between two steps; the next run goes on from there, also on another machine: a
    checkpoint that is not there is written back from its topic.
    """
    if small and master is not None:
        raise click.UsageError("--small is for one machine, with local[1]: leave --master out")
    with needs_pyspark():
        from ottla.spark.defaults import SMALL
    run_pipelines(
        file,
        app=app or file.stem,
        master=master or ("local[1]" if small else "local[*]"),
        config={**SMALL, **conf} if small else conf,
        checkpoint=checkpoint,
        data=data,
        bootstrap=bootstrap,
        until_caught_up=until_caught_up,
        restarts=restarts,
    )


@pipeline.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@app_option
@click.option("--plan", "with_plan", is_flag=True, help="Print Spark's own plan of each query, too.")
@checkpoint_option
@bootstrap_option
@format_option
def explain(file: Path, app: str | None, with_plan: bool, checkpoint: str | None, bootstrap: str, output: str) -> None:
    """Show what the queries of FILE read, keep and write.

    It needs no broker, and starts none of them.
    """
    name = app or file.stem
    with needs_pyspark():
        from ottla.runtime.java import JavaMissingError
        from ottla.spark.defaults import SMALL, session, stop_session
        from ottla.spark.explaining import Explained, explained
        from ottla.spark.pipelines import pipelines_of
    with errors_of(file):
        pipelines = pipelines_of(file)
    with tempfile.TemporaryDirectory(prefix="ottla-explain-") as directory:
        try:
            spark = session(name, master="local[1]", config=SMALL, log_file=Path(directory) / "spark.log")
        except JavaMissingError as error:
            raise click.ClickException(str(error)) from None
        try:
            with errors_of(file):
                warnings: list[str] = []
                found = list(explained(spark, name, pipelines, bootstrap=bootstrap, checkpoint=checkpoint or "topic", warn=warnings.append))
            print_rows(output, "pipeline explain", Explained._fields, [row for row, _ in found])
            for text in warnings:
                click.echo(f"warning: {text}", err=True)
            for row, frame in found if with_plan and output == "text" else ():
                click.echo(f"\n{row.query}")
                frame.explain()
        finally:
            stop_session()


@pipeline.command()
def prepare() -> None:
    """Make Spark start faster.

    It writes what Spark's JVM has loaded and linked to a file of some 200 MB in ~/.cache/ottla. Later starts on this machine take it from
    there, by 'ottla pipeline', 'ottla sql', 'ottla demo' and ottla.spark.session. It needs Java 25 or later, and a minute.
    """
    with needs_pyspark():
        from ottla.runtime.java import JavaMissingError, use_java
        from ottla.spark.start_recording import write
    try:
        with stopped_by_signals():
            place = write(use_java())
    except JavaMissingError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{place}: {place.stat().st_size / 1e6:,.0f} MB, from which Spark starts")


@pipeline.command("list")
@bootstrap_option
@format_option
def list_queries(bootstrap: str, output: str) -> None:
    """List the queries that commit their offsets to this cluster.

    They may run anywhere. It also shows when each has written its last batch, and whether their checkpoints are in topics. One that has a
    lag and has long written none may no longer run; one without a lag has nothing to write.
    """
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        there = checkpoint_topics(admin)
        rows = [
            (row.query, row.delivery, row.batch, row.last_batch, row.lag, row.late_rows, row.writes_now, row.query in there)
            for row in status_rows(admin)
        ]
    columns = ("query", "delivery", "batch", "last_batch", "lag", "late_rows", "writes_now", "checkpoint_in_topic")
    print_rows(output, "pipeline list", columns, rows)


@pipeline.command()
@click.argument("app")
@bootstrap_option
@format_option
def status(app: str, bootstrap: str, output: str) -> None:
    """Show what the queries of APP have written last.

    Also shown is how far their topics go on.
    """
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        rows = status_rows(admin, app)
        left = {} if rows else checkpoint_topics(admin, app)
    if left:
        raise click.ClickException(
            f"{', '.join(left)}: no offsets are committed, and {', '.join(left.values())} is there: the offsets were deleted with the "
            f"topics that were read, or have expired, or no batch was written yet; `ottla pipeline reset {app}` lets it begin again"
        )
    if not rows:
        raise click.ClickException(f"no query of an application {app} has committed offsets here: ottla pipeline list")
    print_rows(output, "pipeline status", StatusRow._fields, rows)


@pipeline.command()
@click.argument("app")
@click.argument("store")
@click.argument("key", required=False)
@bootstrap_option
@format_option
def state(app: str, store: str, key: str | None, bootstrap: str, output: str) -> None:
    """Show the state STORE that a processor of APP keeps.

    It is the state of one KEY, or of all, as of the last batch, from its topic (changelogged). Exit code 1 where KEY has none.
    """
    from ottla.spark.pipelines import is_query_of
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        end = f"-{store}-changelog"
        there = admin.list_topics()
        names = [name for name in there if name.endswith(end) and is_query_of(app, name.removesuffix(end))]
        if f"{app}-{store}-changelog" in names:  # of a query that is called APP
            names = [f"{app}-{store}-changelog"]
        if len(names) != 1:
            kept = sorted(name for name in there if name.startswith(f"{app}-") and name.endswith("-changelog"))
            has = f"; topics of states are {', '.join(kept)}" if kept else ": only a processor of changelogged(...) keeps its state in one"
            found = f"topics {', '.join(sorted(names))} have one: give the query's name, APP-FUNCTION"
            found = found if names else f"no topic has one{has}"
            raise click.ClickException(f"state {store!r} of application {app!r}: {found}")
        newest = newest_values(admin, names[0], bootstrap)
    rows = sorted((name, value) for name, value in newest.items() if key in (None, name))
    print_rows(output, "pipeline state", ("key", "value"), rows)
    if key is not None and not rows:
        sys.exit(1)


def newest_values(admin: Admin, topic: str, bootstrap: str, now_s: Callable[[], float] = time.monotonic) -> dict[str, str]:
    """Returns the newest committed value of each key of the topic, as text. A batch that is being written is not waited for.

    Of a key in several partitions, as when the topic got more of them, it is that of the latest time. ClickException where nothing comes
    for half a minute, as when a broker dies meanwhile and no other leads.
    """
    from ottla.sync import Consumer
    from ottla.types import TopicPartition

    partitions = [TopicPartition(topic, index) for index in admin.describe_topic(topic).partitions]
    newest: dict[tuple[str, int], tuple[int, str | None]] = {}  # by key and partition, with the time
    with Consumer(bootstrap, **client_settings(auto_offset_reset="earliest", isolation_level="read_committed")) as consumer:
        ends = consumer.end_offsets(partitions)  # the first record of a transaction that is open ends what can be read
        consumer.assign(partitions)
        seen, since_s = dict.fromkeys(partitions, -1), now_s()
        while any(seen[partition] < end for partition, end in ends.items()):
            positions = {partition: consumer.position(partition) for partition in partitions}
            if positions != seen:
                seen, since_s = positions, now_s()
            elif now_s() - since_s > SILENCE_S:
                stuck = min(partition for partition, end in ends.items() if seen[partition] < end)
                text = f"{stuck} is not read to its end: nothing came for {SILENCE_S} s from offset {seen[stuck]} on"
                raise click.ClickException(f"{text}, and the end is {ends[stuck]}; `ottla cluster health` says what is wrong")
            for record in consumer.poll(1000):
                name = (record.key or b"").decode(errors="replace")
                value = None if record.value is None else record.value.decode(errors="replace")
                newest[name, record.partition] = record.timestamp_ms, value
    moments = {(name, time_ms, partition): value for (name, partition), (time_ms, value) in newest.items()}
    last = {moment[0]: value for moment, value in sorted(moments.items())}
    return {name: value for name, value in last.items() if value is not None}


@pipeline.command()
@click.argument("app")
@yes_option
@data_option
@bootstrap_option
def reset(app: str, yes: bool, data: Path | None, bootstrap: str) -> None:
    """Delete the offsets and the checkpoints of APP.

    Those in topics, too: its next run begins again. Its results are kept. What ran with --data DIR is reset with the same --data.
    Refused while it runs on this machine, or has a transaction open. Exit code 1 where there is no such application.
    """
    from ottla.sync import Admin

    check_directory(app, data)
    directory = directory_of(app, data)
    with Admin(bootstrap, **client_settings()) as admin:
        found_groups = applications(admin, app)
        groups = list(found_groups)
        topics = checkpoint_topics(admin, app)
        busy = [group for group in groups if admin.pending_offsets(group)]
        if busy:
            raise click.ClickException(f"{', '.join(busy)} writes a batch now; stop it first")
        there = directory.is_dir() and any(directory.iterdir())
        found = [f"the offsets of {', '.join(groups)}"] if groups else []
        found += [f"topic {topic}" for topic in topics.values()] + ([str(directory)] if there else [])
        if not found:
            raise click.ClickException(
                f"no such application: {app} has no offsets and no topic in this cluster, and no files in {directory}"
            )
        elsewhere = [group for group, last in found_groups.items() if id_in(directory / group) != last.spark_id]
        if elsewhere:
            complain(
                f"warning: {directory} has no checkpoint of {', '.join(elsewhere)} that has written last; one that is elsewhere stays, and "
                "stops the next run: name the directory of 'pipeline run --data DIR' with --data"
            )
        if not yes:
            end_of_plan(f"would delete {', '.join(found)}")
        with held(directory) if there else contextlib.nullcontext():
            for group, problem in admin.delete_groups(groups).items() if groups else ():
                if problem is not None:
                    raise problem
                click.echo(f"{group}: offsets deleted")
            for topic, problem in admin.delete_topics(list(topics.values())).items() if topics else ():
                if problem is not None:
                    raise KafkaError(problem.code, f"topic {topic!r}: {problem.message}") from problem
                click.echo(f"topic {topic}: deleted")
            if there:
                shutil.rmtree(directory)
                note_directory(app, directory_of(app, None))
                click.echo(f"{directory}: deleted")


@pipeline.command()
@click.argument("app")
@yes_option
@data_option
@bootstrap_option
def restore(app: str, yes: bool, data: Path | None, bootstrap: str) -> None:
    """Write the checkpoints of APP back from their topics.

    They replace those that are there, such as ones from a backup.

    'ottla pipeline run' does it by itself for a checkpoint that is missing. Refused while APP runs on this machine; one that runs elsewhere
    is stopped. A query whose topic does not have the batch that was written last is left as it is: exit code 1, after the others.
    """
    with needs_pyspark():
        from ottla.spark.driver_sink import producer_settings
        from ottla.spark.restoring import restore as write_back
    from ottla.spark.exactly_once import BEGIN_AGAIN, StopError
    from ottla.sync import Admin

    check_directory(app, data)
    directory = directory_of(app, data)
    with Admin(bootstrap, **client_settings()) as admin:
        topics = checkpoint_topics(admin, app)
    if not topics:
        raise click.ClickException(f"there is no topic with a checkpoint of application {app!r}")
    replaced = [str(directory / name) for name in topics if (directory / name).exists()]
    if replaced and not yes:
        end_of_plan(f"would replace {', '.join(replaced)}")
    settings = {"kafka.client.id": "ottla-cli", **spark_options(), "kafka.bootstrap.servers": bootstrap}
    is_whole = True
    with held(directory), stopped_by_signals():
        for name, topic in topics.items():
            try:
                count = write_back(name, settings, producer_settings(settings, name), directory / name, replaces=True)
            except StopError as error:
                reason, again, _ = str(error).partition(BEGIN_AGAIN)  # what follows is for programs that start a query themselves
                way_out = f"{BEGIN_AGAIN}: {command_of('reset', app, data, bootstrap)}" if again else ""
                complain(f"{directory / name}: left as it is: {reason}{way_out}")
                is_whole = False
            except KafkaError as error:
                if error.is_transient:
                    raise  # the others wait for the same brokers
                complain(f"{directory / name}: left as it is: {with_way_out(error)}")
                is_whole = False
            else:
                click.echo(f"{directory / name}: {count or 'no'} files written from topic {topic}")
    if not is_whole:
        sys.exit(1)


def id_in(checkpoint: Path) -> str | None:
    """Returns Spark's id of the query that has its checkpoint in the directory; None where there is none."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


pipeline.add_command(submit)
