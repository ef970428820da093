"""Runs the pipelines of an application: queries are started, watched, and started again when they fail.

Before the first one starts, each has a line with what it reads and writes, and where its checkpoint is. One that finds no record at its
start says once that it waits. A query that fails waits before it is started again, twice as long each time, up to a minute; one that has
run for a minute since, and has done a batch or had none to do for long, waits a second again: to wait for brokers that are away takes
minutes, too. Where restarts are bounded, so many failures in a row end it. A ``StopError`` (another copy,
another checkpoint) ends it for good: to go on would double or skip rows, or take turns with the other copy. The same holds for a batch
that does not fit into the driver, for records that are lost, for a file whose state is not that of the checkpoint, for a checkpoint that
lacks files of its state, for an option that is wrong, and for what the user may not do, or a login that is refused.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.checkpointed_writer import CheckpointedWriter
from ottla.spark.dead_letters import LeftOutWarning, dead_letter_topics
from ottla.spark.defaults import is_of_a_dead_jvm
from ottla.spark.exactly_once import BEGIN_AGAIN, RESTORE, StopError
from ottla.spark.jvm_start import reason_of as java_reason_of
from ottla.spark.kept_state import ChangedStateError, check_state
from ottla.spark.losses import taken
from ottla.spark.marker import CHECKPOINT_SUFFIX
from ottla.spark.options import CHECKPOINT, DELIVERIES
from ottla.spark.outputs import loop_text, loops_of
from ottla.spark.pipelines import BOOTSTRAP, Made, made_by, name_of
from ottla.spark.plans import streams_of
from ottla.spark.progress import Progress, bad_rows_of, batches_after, is_at_rest, watermark_of
from ottla.spark.reading import AFTER_DELETION
from ottla.spark.sockets import keep_directory
from ottla.types import topic_name_problem

BACKOFF_S_MAX: Final = 60
STEADY_S: Final = 60
STEADY_IDLE_S: Final = 900
"""Of a query that has done no batch: longer than one waits for brokers that are away, before it fails."""
POLL_S: Final = 0.5
IDLE: Final = ("Waiting for", "Getting offsets from")
"""The first words in the status of a Spark query that has nothing to do; a query that starts has the second for a moment, too."""
IDLE_LOOKS: Final = 2
RESTS_MIN: Final = 2
"""After so many batches for which nothing had come, neither records nor time, a query has caught up. A state with timers or a TTL by the
clock has Spark run such batches on and on."""
STOP_S_MAX: Final = 5
"""How long a sink may go on to wait for brokers when its query is stopped."""
FINAL: Final = ("StopError", "BatchTooLargeError", "DataLossError")
REFUSALS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    }
)
"""What brokers answer to a user until an administrator has changed what the user may do, or the user logs in otherwise."""
CHANGED_STATE: Final = re.compile(
    r"\[(STATE_STORE_\w*SCHEMA_\w+|STATE_STORE_INVALID_(VARIABLE_TYPE_CHANGE|CONFIG_AFTER_RESTART)"
    r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA)\]"
)
"""Spark's refusals of a checkpoint whose state has other types or kinds, or is of other steps, or another mode of output or time."""
SPARKS_WAY_OUT: Final = re.compile(r", or restart with a new checkpoint directory\.( SQLSTATE: \w+)?")
"""Which is none where the group of the query has its marker."""
CHANGED_STATE_WAY_OUT: Final = (
    "The checkpoint has the state of another version of this query. Run the file as it was, or this one beside it as another application, "
    "with --app."
)
LOST_STATE: Final = re.compile(
    r"\[(STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
    r"|CANNOT_LOAD_STATE_STORE\.(?:AUTO_SNAPSHOT_REPAIR_FAILED|CANNOT_FIND_\w+|CANNOT_READ_\w+|INVALID_CHECKPOINT_LINEAGE|UNEXPECTED_FILE_SIZE)"
    r"|STATE_STORE_ROW_CHECKSUM_VERIFICATION_FAILED)\] [^\n]*"
    r"|\[CANNOT_LOAD_STATE_STORE\.UNCATEGORIZED\] [^\n]*(?=(?:\n\s+(?:at|\.\.\.) [^\n]*)*\nCaused by: java\.io\.EOFException)"
    r"|Failed to read log file [^\n]* Incomplete log file|its checkpoint cannot be used: "
    r"(?:\S*\.MismatchedInputException: |\[STREAMING_CHECKPOINT_MISSING_METADATA_FILE\])[^\n]*"
)
"""Spark's refusals of a checkpoint that lacks files, or has empty or damaged ones: it says the same at the next start."""
LOST_STATE_KIND: Final = "LostStateError"
MADE_AGAIN: Final = "its topic was deleted and made again"
"""In the error of a source whose log ends before what was read. The group's offsets have gone with the topic, so a query that is exactly
once stops with ``failOnDataLoss=false``, too."""
_REFUSAL: Final = re.compile(rf"({'|'.join(code.name for code in REFUSALS)})(?:: (.+))?$")
_WRONG: Final = re.compile(rf"{ErrorCode.INVALID_CONFIG.name}: ")
"""An option, or a configuration: it stays wrong until the file is changed."""
_CODE: Final = re.compile(r"([A-Z_]+)(?:: |$)")
_CAUSE: Final = re.compile(r"^Caused by: (?:[\w.$]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
_FRAME: Final = re.compile(r'^ *(?:Traceback |File "([^"]+)", line (\d+))', re.MULTILINE)
_NOT_THE_USERS: Final = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3|^<|\.zip/")
_PACKAGE: Final = f"{Path(__file__).parents[1]}/"
_REASON: Final = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)


@dataclass(slots=True)
class RunningQuery:
    function: str
    index: int  # among the writers that the function returns
    reads: str  # topics, or what else it reads on and on
    query: Any = None  # PySpark's StreamingQuery; None while it waits to be started
    started_s: float = 0.0
    failures: int = 0  # one after the other
    due_s: float = 0.0  # of the next start
    shown_batch: int = -1
    has_read: bool = False  # a record
    idle_looks: int = 0  # in which it had nothing to do, one after the other, before its first record
    rests: int = 0  # batches for which nothing had come, one after the other
    watermark: str | None = ""  # of its last batch; none has an empty one
    commits: bool = False  # the offsets, itself: its sink does
    is_exactly_once: bool = False
    is_ours: bool = False  # its sink, which writes bad rows to their topic
    sink: Any = None  # of ours, that it has now
    has_lost: bool = False  # bad rows, and has said so


class Runner:
    def __init__(
        self,
        session: Any,
        app: str,
        pipelines: Mapping[str, Callable[[Any], Any]],
        *,
        checkpoints: str | Path,
        bootstrap: str,
        checkpoint: str,
        until_caught_up: bool,
        restarts_max: int | None = None,
        client: Mapping[str, str] | None = None,
        say: Callable[[str], object],
        now_s: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
        streams: Callable[[Any], Sequence[str]] = streams_of,
        loops: Callable[[Any, str, Mapping[str, str] | None], Sequence[str]] = loops_of,
        explain: Callable[[KafkaError, str], str] = lambda error, reads: str(error),
        absent: Callable[[set[str]], set[str]] = lambda topics: set(),
    ) -> None:
        self._session = session
        self._app = app
        self._pipelines = pipelines
        self._checkpoints = checkpoints
        self._bootstrap = bootstrap
        self._progress = Progress({BOOTSTRAP: bootstrap, **(client or {})})
        self._client = client
        self._checkpoint = checkpoint
        self._until_caught_up = until_caught_up
        self._restarts_max = restarts_max
        self._say = say
        self._now_s = now_s
        self._pause = pause
        self._streams = streams
        self._loops = loops  # the topics that a query both reads and writes
        self._explain = explain  # a refusal of a query that reads these topics, with the right that is missing
        self._absent = absent  # of these topics, those that do not exist
        self._queries: list[RunningQuery] = []
        self._is_stopped = False
        self.cannot_continue = False
        """A query may not go on by itself."""
        self.is_to_be_reset = False
        """It would go on from the start."""
        self.can_be_restored = False
        """It would go on from the checkpoint in its topic."""
        self.failure = ErrorCode.UNKNOWN_SERVER_ERROR
        """The code of the last failure that had one."""

    def run(self) -> bool:
        """Returns when every query has ended: True when none was stopped. KeyboardInterrupt when a Ctrl-C has ended all of them."""
        for function in self._pipelines:
            made = self._made(function)
            for index, writer in enumerate(made.writers):
                found = RunningQuery(function, index, ", ".join(self._streams(writer)))
                self._queries.append(found)
                self._say(self._introduction(found, made.settings.get(index)))
                name = name_of(self._app, function, index)
                for topic in self._loops(writer, name, made.settings.get(index)):
                    self._say(f"warning: {loop_text(name, topic)}")
        for topic in sorted(self._absent(dead_letter_topics())):
            self._say(f"bad_rows={topic}: there is no such topic; the first bad row fails its query, unless the brokers create topics")
        try:
            while self._queries:
                for found in list(self._queries):
                    self._look(found)
                self._pause(POLL_S)
        finally:
            self._stop(self._queries)
        return not self._is_stopped

    def _stop(self, queries: Sequence[RunningQuery]) -> None:
        """Stops the queries. A batch that is being written is written, unless its sink has waited for too long by then."""

        def interrupt() -> None:
            for found in running:
                if hasattr(found.sink, "interrupt"):
                    found.sink.interrupt()

        running = [found for found in queries if found.query is not None]
        interrupting = threading.Timer(STOP_S_MAX, interrupt)
        interrupting.daemon = True
        interrupting.start()
        try:
            for found in running:
                found.query.stop()
        finally:
            interrupting.cancel()

    def _introduction(self, found: RunningQuery, sink: Mapping[str, str] | None) -> str:
        """Returns the line of a query that is about to start; ``sink`` has the settings of a sink of ours."""
        name = name_of(self._app, found.function, found.index)
        writes = "" if sink is None else f", writes {sink.get('topic', 'the topics of its rows')}"
        also = f" and topic {name}{CHECKPOINT_SUFFIX}" if sink is not None and sink.get("checkpoint") == "topic" else ""
        return f"{name}  reads {found.reads}{writes}; checkpoint in {self._checkpoints}/{name}{also}"

    def _made(self, function: str) -> Made:
        pipeline = self._pipelines[function]
        return made_by(
            pipeline, self._session, self._app, function, bootstrap=self._bootstrap, checkpoint=self._checkpoint, client=self._client
        )  # fmt: skip

    def _start(self, found: RunningQuery) -> None:
        keep_directory()
        name = name_of(self._app, found.function, found.index)
        location = f"{self._checkpoints}/{name}"
        if hasattr(found.sink, "close"):
            found.sink.close()  # of the run that has failed
        made = self._made(found.function)
        sink: Any = made.sinks.get(found.index)
        found.sink = sink
        if hasattr(sink, "prepare"):
            count = sink.prepare(location)
            if count is not None:
                self._say(f"{name}  had lost its checkpoint; {count} files are written back from its topic")
        writer = made.writers[found.index].queryName(name).option(CHECKPOINT, location)
        if self._until_caught_up:
            writer = writer.trigger(availableNow=True)
        if not isinstance(writer, CheckpointedWriter):  # which does so itself
            check_state(getattr(writer, "_df", None), location)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LeftOutWarning)  # a batch with bad rows says it
                found.query = writer.start()
        except Exception as error:
            if type(error).__module__.startswith("pyspark."):
                self._say(f"{name}  cannot be started")  # the error does not name it
            raise
        found.started_s, found.shown_batch = self._now_s(), -1
        found.rests, found.watermark = 0, ""
        found.commits = name in made.apps
        found.is_ours = found.index in made.settings
        found.is_exactly_once = found.is_ours and made.settings[found.index].get("delivery", DELIVERIES[0]) == DELIVERIES[0]

    def _look(self, found: RunningQuery) -> None:
        """Looks after the query, which runs, waits for its next start, or is dropped from the queries."""
        name = name_of(self._app, found.function, found.index)
        if found.query is None:
            if self._now_s() >= found.due_s:
                try:
                    self._start(found)
                except (StopError, KafkaError) as error:  # the checkpoint cannot be written back, or not yet
                    self._on_failure(found, type(error).__name__, str(error))
                except Exception as error:
                    if not is_of_checkpoint(error):
                        raise
                    text = f"its checkpoint cannot be used: {java_reason_of(str(error))}"
                    kind = LOST_STATE_KIND if LOST_STATE.match(text) else type(error).__name__
                    self._on_failure(found, kind, text)
            return
        is_active = found.query.isActive  # before its last progress is asked for
        for progress in batches_after(found.shown_batch, found.query):
            found.shown_batch = progress["batchId"]
            found.has_read = found.has_read or progress.get("numInputRows") != 0
            found.rests = found.rests + 1 if is_at_rest(progress, found.watermark) else 0
            found.watermark = watermark_of(progress)
            if found.has_read:  # the first batches of an aggregate have no records; "waits" says as much
                self._say(self._progress.line(name, progress))
            for text in taken(str(progress.get("id"))):
                self._say(f"{name}  {text}")
            if not found.is_ours and not found.has_lost and bad_rows_of(progress):
                found.has_lost = True
                self._say(f"{name}  leaves bad rows out: to_topic and sink write them to the topic of bad_rows, and other sinks do not")
            if not found.commits:
                self._progress.commit(name, progress, is_last=not is_active)
        if is_active and self._until_caught_up and found.rests >= RESTS_MIN:
            self._stop([found])
        elif is_active:
            if not found.has_read and found.idle_looks < IDLE_LOOKS:
                found.idle_looks = found.idle_looks + 1 if found.query.status["message"].startswith(IDLE) else 0
                if found.idle_looks == IDLE_LOOKS:
                    self._say(f"{name}  waits for records in {found.reads}")
            return
        ended = found.query.exception()
        if ended is None:
            self._queries.remove(found)
            self._say(f"{name}  has caught up" if self._until_caught_up else f"{name}  has ended")
            return
        said = str(ended)
        lost = LOST_STATE.search(said)
        kind, reason = reason_of(said) if lost is None else (LOST_STATE_KIND, lost[0])
        self._on_failure(found, kind, reason + place_of(said, kind, reason))

    def _on_failure(self, found: RunningQuery, kind: str, reason: str) -> None:
        """Lets the query wait for its next start, or drops it from the queries."""
        name = name_of(self._app, found.function, found.index)
        is_changed = kind == ChangedStateError.__name__ or CHANGED_STATE.match(reason) is not None
        is_lost = kind == LOST_STATE_KIND
        if is_changed:
            reason = f"{SPARKS_WAY_OUT.sub('.', reason)} {CHANGED_STATE_WAY_OUT}"
        code = _CODE.match(reason)
        if code is not None and code[1] in ErrorCode.__members__:
            self.failure = ErrorCode[code[1]]
        refusal = _REFUSAL.match(reason)
        if refusal is not None:
            reason = self._explain(KafkaError(ErrorCode[refusal[1]], refusal[2] or ""), found.reads)
        if kind in FINAL or is_changed or is_lost or refusal is not None or _WRONG.match(reason):
            self._queries.remove(found)
            self._is_stopped = self.cannot_continue = True
            reason, again, _ = reason.partition(BEGIN_AGAIN)
            can_begin_again = bool(again) or is_changed or is_lost or MADE_AGAIN in reason or AFTER_DELETION in reason
            self.is_to_be_reset = self.is_to_be_reset or can_begin_again
            if found.is_exactly_once and topic_name_problem(found.reads) is None:  # the only topic: no marker is left
                reason = reason.replace(f" {AFTER_DELETION}", "")
            is_in_topic = is_lost and getattr(found.sink, "is_mirrored", False)
            self.can_be_restored = self.can_be_restored or is_in_topic or RESTORE in reason
            reason = reason.replace(RESTORE, "")
            self._say(f"{name}  stopped, and is not started again: {reason.rstrip()}")
            return
        steady_s = STEADY_S if found.shown_batch >= 0 else STEADY_IDLE_S
        has_run = found.query is not None and self._now_s() - found.started_s >= steady_s
        found.failures = 1 if has_run else found.failures + 1
        if self._restarts_max is not None and found.failures > self._restarts_max:
            self._queries.remove(found)
            self._is_stopped = True
            times = f" {found.failures} times in a row" if found.failures > 1 else ""
            self._say(f"{name}  has failed{times}, and is not started again: {kind}: {reason}")
            return
        delay_s = min(BACKOFF_S_MAX, 2 ** (found.failures - 1))
        found.query, found.due_s = None, self._now_s() + delay_s
        self._say(f"{name}  failed, and is started again in {delay_s} s: {kind}: {reason}")


def is_of_checkpoint(error: Exception) -> bool:
    """Returns whether the start of a query raises this because of its checkpoint's files, of which other queries have none.

    PySpark has no class for what Java says of most of them. A JVM that has ended is an OSError, too, and ends all queries.
    """
    if type(error).__module__.startswith("pyspark."):
        return "[STREAMING_CHECKPOINT_MISSING_METADATA_FILE]" in str(error)
    return type(error).__name__ == "Py4JJavaError" or (isinstance(error, OSError) and not is_of_a_dead_jvm(error))


def reason_of(text: str) -> tuple[str, str]:
    """Returns class and text of the error that ended a query: the last one of the Python traceback that Spark's own text quotes.

    Where that one says only that something was waited for, it is the innermost cause that says what has happened.
    """
    found: list[tuple[str, str]] = _REASON.findall(text)
    final = [pair for pair in found if pair[0] in FINAL] or [pair for pair in found if _REFUSAL.match(pair[1]) or _WRONG.match(pair[1])]
    if not final and found and found[-1][1].rstrip().endswith(":"):
        found = [pair for pair in _CAUSE.findall(text) if not pair[1].rstrip().endswith(":")] or found
    return (final or found or [("error", text.strip().splitlines()[0])])[-1]


def place_of(text: str, kind: str, reason: str) -> str:
    """Returns where the error arose in the user's code, as " (FILE:LINE)"; nothing for one that arose elsewhere, or of ottla's own."""
    before, error, _ = text.rpartition(f"\n{kind}: {reason}")  # an error of a package has its module's name before its own
    if not error:
        return ""
    place = ""
    for frame in _FRAME.finditer(before):
        if frame[1] is None:
            place = ""  # another traceback starts
        elif not _NOT_THE_USERS.search(frame[1]) and not frame[1].startswith(_PACKAGE):
            place = f" ({frame[1]}:{frame[2]})"
    return place
