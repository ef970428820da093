"""The main job from start to end, and what it says meanwhile.

The first half of the work is sending, the second Spark's; both run at once, beside a cluster of three brokers. A Ctrl-C (or
SIGTERM) at any point stops the sender, the query, Spark's JVM and the brokers, in this order, each in the way it likes; what was
sent and computed until then stays, and ``--keep`` resumes from it. With ``--kill`` a broker, a Python worker and
the JVM die meanwhile, and the checkpoints' directories are removed (``drill.py``, ``engine.py``).
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.runtime.stops import stop_signals
from ottla.spark.defaults import stop_session
from ottla.spark.demo.drill import JVM, WORKER, KillDrill
from ottla.spark.demo.engine import Engine
from ottla.spark.demo.flights import FLIGHT_COUNT, Flights, airlines
from ottla.spark.demo.pipeline import OFFSETS_PER_TRIGGER
from ottla.spark.demo.place import Brokers, held
from ottla.spark.demo.results import Results, of_state, percentile, read_results, table
from ottla.spark.demo.sending import FLIGHTS, FlightSender, create_topics, end_offsets, send_airlines
from ottla.spark.offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

AHEAD_MAX: Final = 2 * OFFSETS_PER_TRIGGER
BAR_WIDTH: Final = 24
LINE_INTERVAL_S: Final = 0.2
PLAIN_LINE_INTERVAL_S: Final = 5.0
"""Without a terminal each line stays, so there are fewer."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of the job."""

    sent_count: int  # flights in the topic, earlier runs included
    read_count: int  # flights that the query has read, earlier runs included
    results: Results


def run(
    directory: Path, *, keep: bool, count_max: int, master: str, port: int = 0, is_killing: bool = False, say: Callable[[str], None]
) -> JobOutcome:
    """Runs the complete job. KeyboardInterrupt after everything has been stopped."""
    started_ms, started = time.time_ns() // 1_000_000, time.monotonic()
    with _terminable(), held(directory, keep=keep), _logging_to(directory / "job.log"), contextlib.ExitStack() as stack:
        say(f"data       {directory}" + ("  (kept from before)" if keep else "  (emptied)"))
        brokers = stack.enter_context(_calmly(Brokers(directory, port=port)))
        say(f"brokers    {brokers.bootstrap}, logs in {brokers.place / 'node-1' / 'node.log'} and so on")
        flights = Flights(count_max)
        create_topics(brokers.bootstrap)
        send_airlines(brokers.bootstrap, airlines())
        stack.enter_context(_calmly(_Stopping(stop_session)))  # before it starts, for it may be interrupted half-way
        engine = Engine(directory, master, brokers.bootstrap)
        stack.enter_context(_calmly(_Stopping(engine.stop)))
        version = engine.start()
        say(f"spark      {version}, {master}, log in {directory / 'spark.log'}")
        sender = FlightSender(brokers.bootstrap, flights, end_offsets(brokers.bootstrap, FLIGHTS), ahead_max=AHEAD_MAX)
        stack.enter_context(_calmly(_Stopping(sender.stop)))
        drill = KillDrill(brokers, sender, len(flights), kills_spark=True) if is_killing else None
        if drill is not None:
            stack.enter_context(_calmly(_Stopping(drill.stop)))
        if sender.sent_before:
            say(f"resuming   {sender.sent_before:,} flights were sent before")
        began = time.monotonic()
        sender.start()
        if drill is not None:
            drill.start()
        read_count = _watch(sender, drill, engine, len(flights), brokers.bootstrap, say)
        computed_s = time.monotonic() - began
        engine.stop()
        results = read_results(brokers.bootstrap, since_ms=started_ms)
        _report(say, sender, flights, read_count, results, computed_s)
        outcome = JobOutcome(sender.sent_count, read_count, results)
    say(f"all in     {time.monotonic() - started:.1f} s; brokers and Spark are stopped, the data is in {directory}")
    return outcome


@contextlib.contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Writes what libraries log and warn of, as PySpark does about a call that was interrupted, to the file."""
    handler = logging.FileHandler(path)
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(handler)
        handler.close()


class _Stopping(contextlib.AbstractContextManager[None]):
    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def __exit__(self, *_: object) -> None:
        self._stop()


@contextlib.contextmanager
def _calmly(manager: Any) -> Iterator[Any]:
    """Enters the context manager; a second Ctrl-C does not disturb its end."""
    value = manager.__enter__()
    try:
        yield value
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            manager.__exit__(None, None, None)
        finally:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the job as Ctrl-C does; the earlier handlers return afterwards."""
    before = {number: signal.getsignal(number) for number in stop_signals()}
    for number in before.keys() - {signal.SIGINT}:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(sender: FlightSender, drill: KillDrill | None, engine: Engine, total: int, bootstrap: str, say: Callable[[str], None]) -> int:
    """Waits until all is sent and read, with a line of progress meanwhile; how many flights the first query has read."""
    drained: _Drained | None = None
    line = _Line(say)
    while drained is None or drained.is_alive():
        if drained is None and not sender.is_alive():
            if sender.error is not None:
                raise sender.error
            drained = _Drained(engine.queries)
            drained.start()
        sender.read_count = max(sender.read_count, _read_count(engine.queries[0]))  # one that was started again has read nothing yet
        if drill is not None:
            line.insert(drill.events())
            _kill(engine, drill)
        line.show(_progress(sender, sender.read_count, total))
        line.insert(engine.check())
        if drained is None:
            sender.join(LINE_INTERVAL_S)
        else:
            drained.join(LINE_INTERVAL_S)
    if drained.error is not None:
        raise drained.error
    if drill is not None:
        drill.join()
        line.insert(drill.events())
    # What was read in an earlier run makes no progress report: all that is there has been read when the query is drained.
    read_count = max(_read_count(engine.queries[0]), sum(end_offsets(bootstrap, FLIGHTS)))
    line.show(_progress(sender, read_count, total), is_last=True)
    return read_count


def _kill(engine: Engine, drill: KillDrill) -> None:
    """Does what the drill asks for; what fails is asked for again."""
    if drill.wanted == WORKER:
        said = engine.kill_worker()
        if said is not None:
            drill.on_killed(said)
    elif drill.wanted == JVM:
        engine.kill_jvm(drill.say)
        drill.on_killed()


class _Drained(threading.Thread):
    """Ends when the queries have processed all that is there."""

    def __init__(self, queries: list[StreamingQuery]) -> None:
        super().__init__(name="drained", daemon=True)
        self._queries = queries
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            for query in self._queries:
                query.processAllAvailable()
        except BaseException as error:  # noqa: BLE001 - the thread's edge: the job raises it
            self.error = error


def _read_count(query: StreamingQuery) -> int:
    """Returns how many flights the query's finished batches cover: offsets start at 0."""
    progress = query.lastProgress
    end = progress.sources[0].endOffset if progress is not None and progress.sources else None
    return sum(offset for partition, offset in from_json(json.loads(end)).items() if partition.topic == FLIGHTS) if end else 0


def _progress(sender: FlightSender, read_count: int, total: int) -> str:
    filled = BAR_WIDTH * sender.sent_count // max(1, total)
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    return f"flights    [{bar}] {sender.sent_count:,} of {total:,} sent, {read_count:,} read by Spark"


class _Line:
    """One line, rewritten on a terminal; on anything else a new line now and then."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._is_terminal = sys.stdout.isatty()
        self._shown = 0.0

    def insert(self, texts: Iterable[str]) -> None:
        """Prints lines that stay."""
        for text in texts:
            if self._is_terminal:
                sys.stdout.write("\r\x1b[K")
            self._say(text)

    def show(self, text: str, *, is_last: bool = False) -> None:
        if self._is_terminal:
            sys.stdout.write(f"\r{text}\x1b[K" + ("\n" if is_last else ""))
            sys.stdout.flush()
        elif is_last or time.monotonic() - self._shown > PLAIN_LINE_INTERVAL_S:
            self._say(text)
            self._shown = time.monotonic()


def _report(
    say: Callable[[str], None], sender: FlightSender, flights: Flights, read_count: int, results: Results, computed_s: float
) -> None:
    say("")
    for line in table(results):
        say(line)
    say("")
    sent_now = sender.sent_count - sender.sent_before
    rate = f"{sent_now / computed_s:,.0f} records/s, from the first one sent to the last result, Spark's warm-up included"
    say(f"sent       {sender.sent_count:,} of {len(flights):,} flights{_of_all(len(flights))}, {sent_now:,} of them in this run")
    say(f"read       {read_count:,} by Spark" + (f"; {rate}" if sent_now else ""))
    cancelled_count = flights.cancelled_count()
    lost_count = read_count - cancelled_count - results.flight_count
    verdict = "every flight is accounted for" if lost_count == 0 else f"{lost_count:,} ARE NOT ACCOUNTED FOR"
    say(f"flown      {results.flight_count:,} in the results, {cancelled_count:,} cancelled by the file: {verdict}")
    say(f"results    {results.record_count:,} records read back by a plain consumer, the latest for each of {len(results.latest):,} keys")
    for line in of_state(results):
        say(line)
    if results.latencies_ms:
        median, p99 = (percentile(results.latencies_ms, fraction) for fraction in (0.5, 0.99))
        say(f"latency    {median:,} ms median, {p99:,} ms p99, from a flight sent to the result that has it written")


def _of_all(count: int) -> str:
    return "" if count == FLIGHT_COUNT else f" (asked for; the file has {FLIGHT_COUNT:,})"
