"""The sink of a stream: a ``foreachBatch`` function, in every output mode, exactly once or at least once.

Spark lets a Python streaming sink have append mode only, but what an aggregate without a window needs is update mode; a
``foreachBatch`` function has all modes. Exactly once is the default, and the driver writes then (``driver_sink``). With
``delivery="at_least_once"`` each micro-batch is written by one Spark job whose tasks deliver with idempotent producers; when it is run
again after a failure its rows are written again, which a keyed topic read as a table does not feel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.spark.changelogs import with_changes
from ottla.spark.checkpoint import counts_of, known_of
from ottla.spark.dead_letters import dead_letters
from ottla.spark.driver_sink import DriverSink
from ottla.spark.group_offsets import GroupOffsets
from ottla.spark.losses import noted_losses
from ottla.spark.options import CHECKPOINT, DELIVERIES, SINK, Options, checked, invalid, texts
from ottla.spark.pipelines import attached, brokers_of, runner
from ottla.spark.routes import record_columns
from ottla.spark.rows import check_columns, columns_of, write_rows
from ottla.spark.state_changes import CHANGE
from ottla.spark.worker_task import worker_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ottla.spark.registry_values import SchemasOf


def sink(options: Options, *, on_batch: Callable[[int, int], None] | None = None) -> Callable[[DataFrame, int], None]:
    """Returns a function for ``foreachBatch`` that writes each batch to topics; it takes the options of ``write.format("ottla")``.

    ``on_batch`` is called for each batch that is written completely: with its number, and its count of rows. With ``app`` a stream that is
    written at least once commits its offsets in the group of that name, for tools that show lag.
    """
    found = runner()
    given = texts(options)
    if found is not None:
        given = {"app": next(found.names)} | given
        if given.get("delivery", DELIVERIES[0]) == DELIVERIES[0]:
            given = {"checkpoint": found.checkpoint} | given
    settings = checked(given, SINK)
    is_exactly_once = settings.get("delivery", DELIVERIES[0]) == DELIVERIES[0]
    made = DriverSink(settings, on_batch) if is_exactly_once else None
    if found is not None:
        found.settings.append(settings)
    if made is not None:
        if found is not None:
            found.sinks.append(made)
        return made
    offsets = GroupOffsets(settings, settings["app"]) if "app" in settings else None  # to-TOPIC may be another query's, of the same topic

    def write(rows: DataFrame, batch_id: int) -> None:
        check_columns(rows.schema, settings)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow

            with worker_task():
                row_count = write_rows(batches, settings)
            yield pyarrow.RecordBatch.from_pydict({"rows": pyarrow.array([row_count], pyarrow.int64())})

        session: Any = rows.sparkSession
        is_classic = hasattr(session, "_jsparkSession")
        if is_classic:
            noted_losses(session, batch_id)
        written = rows.select(*columns_of(rows.columns)).mapInArrow(task, "rows long").collect()
        counts = counts_of(session) if is_classic else {}
        planned = known_of(session, batch_id, settings.get(CHECKPOINT)) if offsets is not None or any(counts.values()) else None
        if any(counts.values()):
            assert planned is not None, "only a query has counts"
            to_their_topics = {name: value for name, value in settings.items() if name not in ("topic", "path")}
            write_rows(dead_letters(session, counts, planned.before, planned.sources), to_their_topics)
        if offsets is not None and planned is not None:
            offsets.commit(planned, batch_id)
        if on_batch is not None:
            on_batch(batch_id, sum(row["rows"] for row in written))

    if found is not None:
        found.sinks.append(write)
    return write


def to_topic(
    frame: DataFrame,
    topic: str | None = None,
    *,
    key: str | None = None,
    value: str | None = None,
    values: SchemasOf | None = None,
    bootstrap: str | None = None,
    app: str | None = None,
    delivery: str | None = None,
    checkpoint: str | None = None,
    options: Options | None = None,
    on_batch: Callable[[int, int], None] | None = None,
) -> DataStreamWriter:
    """Returns PySpark's own writer with the sink set: trigger, output mode and start remain the caller's.

    ``key`` and ``value`` name columns. Without a value the record's value is a JSON object of all columns, or with ``values=avro(...)``
    a record of Avro, with ``protobuf(...)`` a message; a key has to be a plain value.
    Without a topic the frame has the columns of a record, with a topic in each row, as ``route`` makes them. ``app`` names the application
    over the loss of its checkpoint, and ``delivery`` is exactly_once or at_least_once: the options of these names. ``bootstrap`` names
    the brokers; in a pipeline it may be left out. With ``checkpoint="topic"`` the checkpoint is in a topic, too, and is written back here,
    where the option checkpointLocation says that it was and it no longer exists. A stream that is exactly once does not start without
    that option.
    """
    from pyspark.sql import functions as F

    said = texts(options or {})
    if topic is None and "topic" not in frame.columns and not {"topic", "path"} & {name.lower() for name in said}:
        raise invalid('no topic given: to_topic(frame, "topic"), or rows of route(...)')
    if topic is None and (key is not None or value is not None):
        raise invalid("key and value are for rows of one topic; without a topic give them to route")
    if values is not None and (topic is None or value is not None):
        raise invalid("values is for rows of one topic, of all their columns: give a topic, and no value")
    found = runner()
    wanted = {"topic": topic, "app": app, "delivery": delivery, "checkpoint": checkpoint}
    given = brokers_of(bootstrap, said) | {name: text for name, text in wanted.items() if text is not None} | said
    location = next((value for name, value in given.items() if name.lower() == CHECKPOINT.lower()), None)
    more = [name for name in frame.columns if name == CHANGE]
    rows = frame if topic is None else frame.select(*record_columns(frame, key=key, value=value, values=values, topic=topic), *more)
    check_columns(rows.drop(CHANGE).schema, {name.lower(): text for name, text in given.items()})  # now, and not in the first batch
    if more:
        if given.get("delivery", DELIVERIES[0]) != DELIVERIES[0]:
            raise invalid("changelogged needs delivery=exactly_once: the state is in the transaction of its results")
        if given.pop("topic", None) is not None and found is None:
            given.setdefault("app", f"to-{topic}")
    made = sink(given, on_batch=on_batch)
    if found is None and isinstance(made, DriverSink) and made.is_mirrored:
        if location is None:
            raise invalid(
                f'checkpoint="topic" needs options={{"{CHECKPOINT}": ...}}: a checkpoint that was lost is written back before the start'
            )
        made.prepare(location)
    if more:
        assert isinstance(made, DriverSink), "state in topics is exactly once"
        rows = with_changes(rows if topic is None else rows.withColumn("topic", F.lit(topic)), made.app)
    if not rows.isStreaming:
        raise invalid(
            'to_topic writes streams, and this frame is none: write a batch by df.write.format("ottla").mode("append").options(...).save()'
        )
    writer: DataStreamWriter = attached(_writer_of(rows, made).foreachBatch(made), made)
    return writer if location is None else writer.option(CHECKPOINT, location)


def _writer_of(rows: DataFrame, sink: Any) -> DataStreamWriter:
    """Returns PySpark's writer of the rows; one that is exactly once in a classic session asks for a checkpoint when it starts."""
    if not isinstance(sink, DriverSink) or not hasattr(rows.sparkSession, "_jsparkSession"):
        return rows.writeStream
    from ottla.spark.checkpointed_writer import CheckpointedWriter

    return CheckpointedWriter(rows)
