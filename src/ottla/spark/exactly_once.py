"""When a batch is written, when it has been written before, and when neither can be known: a machine without Spark and without a network.

::

    FENCE    earlier producers of the application are fenced; what they left open is aborted, what they committed is committed
    READ     the newest marker, once no transaction has offsets of the group that may be committed yet
             -> the batch of the marker: written before (SKIP);  the batch that follows it: COLLECT;  any other one: STOP
    COLLECT  the rows are here
             -> what was noticed of records that are not among them; the marker has the sum
    BEGIN, WRITE, Seal, COMMIT: one transaction of the rows, and of the source's end offsets with the batch's marker

FENCE and READ come with the first batch, and after a failure. Whatever ends between two steps leaves a transaction that the next FENCE
ends one way or the other, and READ says which. Every batch is sealed, empty ones too: so the marker of a batch is that of its
predecessor, and one that is not proves that the checkpoint and the topic do not belong together.

A driver that was fenced stops for good: were it to fence the other one in turn, two copies would take each other's place for ever. Not so
one whose transaction's time was over, as after an outage: it is its coordinator that has ended it then. Unless a marker says that another
driver has written since, the batch may come again.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn

from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.transaction_errors import FENCED, CommitOutcomeUnknownError, ProducerFencedError
from ottla.errors import KafkaError
from ottla.spark.marker import Committed, Marker, Noticed
from ottla.spark.offsets import Offsets, as_json
from ottla.types import TopicPartition

RESTORE: Final = "Delete the checkpoint's directory and start again: it is written back from its topic as it was then. "
"""A sentence of a text of a query whose checkpoint is in a topic, too; what runs pipelines has its own command beside it."""
DEFAULT_APP: Final = "to-"
"""The start of the name of an application that was given none; the topic follows."""
BEGIN_AGAIN: Final = "To write from the start again"
"""The start of the last sentence of a text; what runs pipelines has its own command in place of that sentence."""


class StopError(RuntimeError):
    """The batch may not be written, and trying again would not change that. The text has the command that mends it."""


class TransactionExpiredError(KafkaError):
    """The producer was fenced when its transaction had been open for longer than it may be: by its coordinator, as far as is known."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch, as its checkpoint has it."""

    query: str
    number: int
    offsets_hash: str
    begin: Offsets | None  # of a query's first batch: where it says that it started, if it does
    end: Offsets  # what the group commits; it has one partition at least, for the marker
    is_mirrored: bool = False  # the checkpoint is in a topic, too
    is_partial: bool = False  # the sources have more partitions than the group can commit, as of another cluster
    now_ms: int | None = None  # when it is about to be written


class Step(Enum):
    FENCE = "fence"
    READ = "read"
    COLLECT = "collect"
    BEGIN = "begin"
    WRITE = "write"
    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Seal:
    """The offsets of the group, in the transaction."""

    offsets: dict[TopicPartition, OffsetAndMetadata]


Ask = Step | Seal


class ExactlyOnce:
    """The batches of one application, one after the other."""

    def __init__(self, app: str) -> None:
        self._app = app
        self._committed: Committed | None = None  # None until it is read, and after a failure
        self._stopped: StopError | None = None

    def deliver(self, batch: Batch) -> Generator[Ask, Committed | Noticed | None, bool]:
        """Asks for step after step; READ is answered with what was committed. True when the rows count now, False when they did before.

        A step that fails is thrown in, and raised on when what can be undone has been. StopError when the batch may not be written.
        """
        if self._stopped is not None:
            raise self._stopped
        known, self._committed = self._committed, None
        asked: Ask = Step.FENCE
        try:
            if known is None:
                yield asked
                read = yield Step.READ
                assert isinstance(read, Committed), "READ is answered"
                known = read
            if is_written(self._app, batch, known):
                self._committed = known
                return False
            counted = yield Step.COLLECT
            noticed = counted if isinstance(counted, Noticed) else Noticed()
            serial = 0 if known.marker is None else known.marker.serial + 1
            if known.marker is not None and known.marker.query == batch.query:
                noticed = known.marker.noticed.and_then(noticed)
            marker = Marker(batch.query, batch.number, batch.offsets_hash, serial, batch.now_ms, noticed, batch.is_partial)
            seal = Seal({partition: OffsetAndMetadata(offset, marker.text()) for partition, offset in batch.end.items()})
            for asked in (Step.BEGIN, Step.WRITE, seal, Step.COMMIT):
                yield asked
        except StopError as stop:
            self._stopped = stop
            raise
        except ProducerFencedError as error:
            self._stop(error)
        except TransactionExpiredError:
            yield from self._check_alone(batch)
            raise
        except (GeneratorExit, CommitOutcomeUnknownError):
            raise  # the next FENCE settles it
        except BaseException:
            if asked is not Step.FENCE:
                try:
                    yield Step.ABORT
                except ProducerFencedError as error:  # a leader that refuses an epoch does not say why; the coordinator does
                    self._stop(error)
                except TransactionExpiredError:
                    yield from self._check_alone(batch)
            raise
        self._committed = Committed(marker, dict(batch.end))
        return True

    def _check_alone(self, batch: Batch) -> Generator[Ask, Committed | Noticed | None, None]:
        """Raises StopError where another driver has written since; the next FENCE would stop that one."""
        known = yield Step.READ
        assert isinstance(known, Committed), "READ is answered"
        try:
            is_written(self._app, batch, known)
        except StopError as stop:
            self._stopped = stop
            raise

    def _stop(self, error: ProducerFencedError) -> NoReturn:
        self._stopped = StopError(_fenced(self._app, error))
        raise self._stopped from error


def is_written(app: str, batch: Batch, committed: Committed) -> bool:
    """True when the batch has been written before; False when it is the next one. StopError when neither can be known."""
    marker = committed.marker
    if marker is None:
        if batch.number == 0:
            return False
        raise StopError(_why(app, batch, committed, "the group has no marker of any batch: it was deleted, or its offsets have expired"))
    if marker.query == batch.query:
        if marker.batch == batch.number:
            if marker.offsets_hash == batch.offsets_hash:
                return True
            raise StopError(_why(app, batch, committed, "it was written from other offsets than the checkpoint has for it"))
        if marker.batch == batch.number - 1:
            return False
        if marker.batch > batch.number:
            raise StopError(_why(app, batch, committed, "the checkpoint is older than what was written, as one from a backup is"))
        raise StopError(_why(app, batch, committed, "the batches between them are missing, as after the restore of a cluster"))
    if batch.number > 0:
        raise StopError(_why(app, batch, committed, "another checkpoint of the application has written since"))
    if batch.begin is not None and _follows(batch.begin, committed):
        return False
    raise StopError(_why(app, batch, committed, "it has another checkpoint, and does not begin where that one ended"))


def _follows(begin: Offsets, committed: Committed) -> bool:
    """Returns whether a query that starts there goes on where another one ended, which had all partitions that its topics had then.

    A partition that was added since is read from its first record, as the other query would have read it.
    """
    added = begin.keys() - committed.offsets.keys()
    if added:
        topics = {partition.topic for partition in committed.offsets}
        is_whole = committed.marker is not None and not committed.marker.is_partial
        if not is_whole or any(partition.topic not in topics or begin[partition] != 0 for partition in added):
            return False
    return {partition: offset for partition, offset in begin.items() if partition not in added} == committed.offsets


def _why(app: str, batch: Batch, committed: Committed, why: str) -> str:
    """Returns what the checkpoint and the topic say, and the ways out."""
    last, follow = "no batch was written", ""
    if committed.marker is not None:
        last = f"the last one written is batch {committed.marker.batch} of query {committed.marker.query}"
        offsets = json.dumps(as_json(committed.offsets))
        if batch.is_mirrored:
            follow = RESTORE
        if not committed.marker.is_partial:  # else they are no start
            follow += f"To go on after it, without the query's state, start with a new checkpoint and startingOffsets='{offsets}'. "
        if committed.marker.query != batch.query and app.startswith(DEFAULT_APP):
            follow = f"Where that is another query that writes the same topic, give each a name of its own: app=NAME. {follow}"
    text = f"application {app!r}: batch {batch.number} of query {batch.query} may not be written, and {last}: {why}. "
    return f"{text}{follow}{BEGIN_AGAIN}, use a new checkpoint after: ottla group delete {app} --yes"


def _fenced(app: str, error: ProducerFencedError) -> str:
    what = error.message.removesuffix(FENCED).removesuffix(": ")  # it advises the owner of a producer
    text = f"application {app!r}: another producer has its transactional id, or the transaction was open for too long"
    text = f"{text} ({what})" if what else text
    return (
        f"{text}. Run one copy; give each application a name of its own with the option app (of `ottla pipeline run`: --app); "
        "for long batches lower maxOffsetsPerTrigger or raise kafka.transaction.timeout.ms"
    )
