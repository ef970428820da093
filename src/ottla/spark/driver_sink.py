"""A stream's sink that is exactly once: the driver collects each batch and writes it, with the source's offsets, in one transaction.

Spark may run tasks again, elsewhere or twice: nothing is written before the batch has been collected. ``exactly_once`` decides, the
checkpoint says which batch it is, and one producer writes. Nothing of it is made before the first batch: the sink is pickled with the
function that has it, and readers of Spark Connect run it in another process.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.client.producer_settings import ProducerSettings
from ottla.client.transaction_errors import CommitOutcomeUnknownError
from ottla.errors import ErrorCode
from ottla.spark.changelogs import Changelogs, check_apart, check_complete
from ottla.spark.checkpoint import (
    PlannedBatch,
    asked_of_spark,
    begin_of,
    check_lasting,
    counts_of,
    ends_of,
    late_rows_of,
    local_directory,
    names_of,
    read_from,
)
from ottla.spark.checkpoint_topic import CheckpointTopic
from ottla.spark.dead_letters import dead_letters
from ottla.spark.exactly_once import Ask, Batch, ExactlyOnce, Step
from ottla.spark.link import Link, WaitInterruptedError, interrupt, is_interrupted, link_for, resume
from ottla.spark.losses import note, noted_losses
from ottla.spark.marker import Committed, Noticed, hash_of
from ottla.spark.mirror import Mirror
from ottla.spark.options import CHECKPOINT, invalid, is_mirrored, number_of
from ottla.spark.restoring import restore
from ottla.spark.row_slice import RowSlice
from ottla.spark.rows import RowWriter, check_columns, columns_of, topic_of
from ottla.spark.sockets import keep_directory
from ottla.spark.transactional_delivery import TransactionalDelivery
from ottla.spark.transactor import Transactor
from ottla.types import Headers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

REQUEST_BYTES_MAX: Final = 33_554_432
CLOSE_TIMEOUT_S: Final = 2
ABORT_TIMEOUT_S: Final = 2
LINGER_MS: Final = 100
"""Batches fill by size meanwhile; a commit sends what is not full at once."""


class BatchTooLargeError(RuntimeError):
    """A batch does not fit into the driver, and nothing of it was written."""


class Application:
    """The machine and the producer of one application, in the process that writes its batches."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._topic = topic_of(settings)
        app = app_of(settings)
        self._link: Link = link_for(settings)
        self._machine = ExactlyOnce(app)
        self._transactor = Transactor(self._link.cluster, self._link.connect, app, producer_settings(settings, app))
        self._mirror = Mirror(CheckpointTopic(app, settings)) if is_mirrored(settings) else None
        self.changelogs = Changelogs(settings)
        self._turn = threading.Lock()
        self._thread: int | None = None  # that writes a batch
        atexit.register(self.close)

    def close(self) -> None:
        """Closes the producer, where that takes no longer than the end of a process may. It writes no batch afterwards."""
        atexit.unregister(self.close)
        closing = self._link.start(self._transactor.close())
        with contextlib.suppress(Exception):
            closing.result(CLOSE_TIMEOUT_S)
        closing.cancel()

    def deliver(
        self,
        planned: PlannedBatch,
        number: int,
        collect: Callable[[], Iterable[pa.RecordBatch]],
        dead_letters: Callable[[], Iterable[pa.RecordBatch]] = tuple,
        noticed: Callable[[], Noticed] = Noticed,
    ) -> int | None:
        """Returns how many rows were written; None when they had been before. StopError when the batch may not be written.

        ``dead_letters`` is called when the rows have been collected, and so is ``noticed``; letters name their topics. One batch at a
        time: a query that was stopped and started again may come while its last batch still ends in another thread.
        """
        with self._turn:
            self._thread = threading.get_ident()
            try:
                return self._deliver(planned, number, collect, dead_letters, noticed)
            finally:
                thread, self._thread = self._thread, None
                resume(thread)

    def interrupt(self) -> None:
        """Ends the batch that is being written, as it waits for brokers: it is aborted where one answers at once, else it is left open.

        The next FENCE ends what was left open, one way or the other.
        """
        thread = self._thread
        if thread is not None:
            interrupt(thread)
            if self._thread != thread:
                resume(thread)  # the batch has ended meanwhile, and the thread may write that of another query

    def _perform(self, asked: Ask) -> Committed | None:
        """Does a step of the transactor's. Of a batch that was interrupted, an abort does not take long."""
        if asked is not Step.ABORT or not is_interrupted(threading.get_ident()):
            return self._link.run(self._transactor.perform(asked))
        aborting = self._link.start(self._transactor.perform(asked))
        try:
            return aborting.result(ABORT_TIMEOUT_S)
        except TimeoutError:
            aborting.cancel()
            return None

    def _deliver(
        self,
        planned: PlannedBatch,
        number: int,
        collect: Callable[[], Iterable[pa.RecordBatch]],
        dead_letters: Callable[[], Iterable[pa.RecordBatch]],
        noticed: Callable[[], Noticed],
    ) -> int | None:
        begin = begin_of(planned.sources) if number == 0 else None
        read_to = ends_of(planned.sources)
        kept = None if self._mirror is None else self._mirror.topic.partition
        ends = self._link.run(self._transactor.places(read_to, topic=self._topic, number=number, kept=kept))
        is_mirrored, is_partial, now_ms = self._mirror is not None, read_to != ends, time.time_ns() // 1_000_000
        batch = Batch(planned.query, number, hash_of(planned.sources), begin, ends, is_mirrored, is_partial, now_ms)
        asking = self._machine.deliver(batch)
        rows: Iterable[pa.RecordBatch] = ()
        letters: list[pa.RecordBatch] = []
        row_count = 0
        answer: Committed | Noticed | None = None
        problem: BaseException | None = None
        try:
            while True:
                asked = asking.send(answer) if problem is None else asking.throw(problem)
                answer = problem = None
                try:
                    if asked is Step.COLLECT:
                        if self._mirror is not None:
                            self._mirror.renew()  # here no transaction waits for the answer
                        rows = collect()
                        letters = list(dead_letters())
                        answer = noticed()
                    elif asked is Step.WRITE:
                        row_count = self._write(rows)
                        self._write(letters, to_their_topics=True)
                        self._write_checkpoint(planned, number)
                    else:
                        answer = self._perform(asked)
                        if asked is Step.READ and self._mirror is not None:
                            self._mirror.load()
                except WaitInterruptedError as error:
                    unknown = CommitOutcomeUnknownError(ErrorCode.REQUEST_TIMED_OUT, "the query was stopped before its commit was answered")
                    problem = unknown if asked is Step.COMMIT else error
                except BaseException as error:  # noqa: BLE001 - the machine raises it again, when it has aborted what it can
                    problem = self._transactor.judged(error)
        except StopIteration as done:
            if not done.value:
                return None
            if self._mirror is not None:
                self._mirror.settle()
            return row_count

    def _write(self, batches: Iterable[pa.RecordBatch], *, to_their_topics: bool = False) -> int:
        delivery = TransactionalDelivery(self._link, self._transactor.producer, batch_bytes=batch_bytes_of(self._settings))
        writer = RowWriter(delivery, None if to_their_topics else self._topic)
        row_count = 0
        for batch in batches:
            writer.write(batch)
            row_count += batch.num_rows
        delivery.flush()
        return row_count

    def _write_checkpoint(self, planned: PlannedBatch, number: int) -> None:
        """Writes what the checkpoint has and its topic lacks, within the transaction."""
        if self._mirror is None:
            return
        root = local_directory(planned.location, "checkpoint=topic needs one that the driver reads")
        partition = self._mirror.topic.partition
        delivery = TransactionalDelivery(self._link, self._transactor.producer, batch_bytes=batch_bytes_of(self._settings))
        now_ms = time.time_ns() // 1_000_000

        def send(key: bytes, value: bytes | None, headers: Headers) -> None:
            delivery.add(RowSlice(partition, [key], [value], [headers], 0, 1, now_ms))

        self._mirror.write(root, number, send)
        delivery.flush()


def app_of(settings: Mapping[str, str]) -> str:
    """Returns the application's name, which is its transactional id and its group."""
    app = settings.get("app") or (f"to-{topic_of(settings)}" if topic_of(settings) else None)
    if app is None:
        raise invalid("exactly once needs a name that outlives the checkpoint: give the option app, where the topic is a column's")
    return app


def batch_bytes_of(settings: Mapping[str, str]) -> int:
    return number_of(settings, "kafka.batch.size")


def producer_settings(settings: Mapping[str, str], app: str) -> ProducerSettings:
    """Returns the producer's settings, from the sink's options."""
    return ProducerSettings(
        transactional_id=app,
        transaction_timeout_ms=number_of(settings, "kafka.transaction.timeout.ms"),
        delivery_timeout_ms=number_of(settings, "kafka.delivery.timeout.ms"),
        compression_type=settings.get("kafka.compression.type", "none").lower(),
        buffer_memory=number_of(settings, "kafka.buffer.memory"),
        batch_size=batch_bytes_of(settings),
        max_request_size=REQUEST_BYTES_MAX,
        linger_ms=LINGER_MS,
    )


class DriverSink:
    """The function of a ``foreachBatch``."""

    def __init__(self, settings: Mapping[str, str], on_batch: Callable[[int, int], None] | None = None) -> None:
        app_of(settings)
        self._settings = settings
        self._on_batch = on_batch
        self._application: Application | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_application": None}

    @property
    def is_mirrored(self) -> bool:
        """Whether the checkpoint is in a topic, too."""
        return is_mirrored(self._settings)

    def prepare(self, location: str) -> int | None:
        """Restores a missing checkpoint, with ``checkpoint=topic``. Returns how many files, None where there was no need.

        To be called before the query starts. StopError when the topic's checkpoint does not belong to what was written.
        """
        if not self.is_mirrored:
            return None
        app = app_of(self._settings)
        directory = local_directory(location, "checkpoint=topic needs one that the driver reads")
        return restore(app, self._settings, producer_settings(self._settings, app), directory)

    @property
    def app(self) -> str:
        return app_of(self._settings)

    def interrupt(self) -> None:
        """Ends the batch that is being written, if there is one, with an error; it comes again when the query is started again."""
        if self._application is not None:
            self._application.interrupt()

    def close(self) -> None:
        """Closes what the batches so far have opened: of a query that has ended, and is started again with another sink."""
        application, self._application = self._application, None
        if application is not None:
            application.close()

    def _complete(self, batches: list[pa.RecordBatch], session: Any, number: int) -> list[pa.RecordBatch]:
        """Returns the batches after checking that all changes of state are in them; their topics exist then."""
        if hasattr(session, "_jsparkSession"):
            assert self._application is not None, "it collects them"
            check_apart(names_of(session), self.app)
            for topic in check_complete(counts_of(session), self.app, rows_by_topic(batches)):
                note(session, self._application.changelogs.ensure(topic, number))
        return batches

    def __call__(self, rows: DataFrame, number: int) -> None:
        """Commits the batch's rows and its offsets together, unless that was done before."""
        keep_directory()
        check_columns(rows.schema, self._settings)
        session: Any = rows.sparkSession
        is_classic = hasattr(session, "_jsparkSession")
        planned = asked_of_spark(session, number) if is_classic else read_from(self._settings.get(CHECKPOINT), number)
        if self._application is None:
            if is_classic:
                check_lasting(planned.location)
            self._application = Application(self._settings)
        lost: dict[str, tuple[int, int]] = {}

        def collect() -> list[pa.RecordBatch]:
            lost.update(noted_losses(session, number) if is_classic else {})
            return self._complete(collected(rows, number), session, number)

        row_count = self._application.deliver(
            planned,
            number,
            collect,
            lambda: dead_letters(session, counts_of(session), planned.before, planned.sources) if is_classic else (),
            lambda: Noticed(late_rows_of(session) if is_classic and planned.has_state else 0, lost),
        )
        if row_count is None:
            if planned.has_state:
                if is_classic:
                    noted_losses(session, number)  # of what was written, the state lacks what was deleted since
                rows.write.format("noop").mode("overwrite").save()  # the batch's state is not written before its rows are read
        elif self._on_batch is not None:
            self._on_batch(number, row_count)


def rows_by_topic(batches: Iterable[pa.RecordBatch]) -> dict[str, int]:
    """Returns how many rows go to each topic that they name."""
    found: Counter[str] = Counter()
    for batch in batches:
        if "topic" in batch.schema.names:
            for pair in batch.column("topic").drop_null().value_counts():
                found[pair["values"].as_py()] += pair["counts"].as_py()
    return found


def collected(rows: DataFrame, number: int) -> list[pa.RecordBatch]:
    """Returns the rows, in the driver. BatchTooLargeError, with the ways out, where Spark does not let them come."""
    try:
        names = columns_of(rows.columns)
        table: pa.Table = (rows if names == rows.columns else rows.select(*names)).toArrow()  # to plan a selection takes 7 ms
        return table.to_batches()  # type: ignore[no-any-return]
    except Exception as error:
        if "spark.driver.maxResultSize" not in str(error):
            raise
        raise BatchTooLargeError(
            f"batch {number} is larger than spark.driver.maxResultSize, and the driver writes it; nothing was written. It is planned "
            "already: raise spark.driver.maxResultSize (and spark.driver.memory) until it is through, and lower maxOffsetsPerTrigger of "
            'the source for those that follow; or let tasks write, with delivery="at_least_once"'
        ) from error
