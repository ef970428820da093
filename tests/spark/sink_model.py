"""A model of all that an exactly-once sink meets: a source, an output with a group of offsets, Spark's checkpoints, and drivers that die.

A driver asks for one step after the other. A death may come before a request arrives, after it arrived, or after it was answered; another
driver may run meanwhile, on the same checkpoint or on another one. ``World`` fences as a coordinator does, by epochs.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field

from ottla.client.group_metadata import OffsetAndMetadata
from ottla.client.transaction_errors import CommitOutcomeUnknownError, ProducerFencedError, TransactionAbortableError
from ottla.errors import ErrorCode
from ottla.spark.exactly_once import Ask, Batch, ExactlyOnce, Seal, Step, StopError, TransactionExpiredError
from ottla.spark.marker import Committed, committed_of, hash_of
from ottla.spark.offsets import Offsets
from ottla.types import TopicPartition

PARTITIONS = (TopicPartition("in", 0), TopicPartition("in", 1))
APP = "app"
STOPS = {
    "STOP: fenced": "another producer",
    "STOP: no marker": "has no marker",
    "STOP: other offsets": "from other offsets",
    "STOP: older checkpoint": "older than what was written",
    "STOP: a gap": "are missing",
    "STOP: another checkpoint": "another checkpoint of the application",
    "STOP: does not follow": "does not begin where",
}
Row = tuple[int, TopicPartition, int]  # the source's incarnation, partition, offset


@dataclass
class Open:
    """A transaction that has not ended."""

    rows: list[Row] = field(default_factory=list)
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


class World:
    """The cluster."""

    def __init__(self) -> None:
        self.ends: Offsets = dict.fromkeys(PARTITIONS, 0)
        self.incarnation = 0
        self.output: Counter[Row] = Counter()
        self.group: dict[TopicPartition, OffsetAndMetadata] = {}
        self.epoch = 0
        self.open: Open | None = None

    def fence(self) -> int:
        self.epoch += 1
        self.open = None
        return self.epoch

    def check(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise ProducerFencedError(ErrorCode.PRODUCER_FENCED, "fenced")

    def commit(self) -> None:
        assert self.open is not None, "a commit follows a beginning"
        self.output.update(self.open.rows)
        self.group.update(self.open.offsets)
        self.open = None


class DataLoss(Exception):
    """What the source says of a topic that was recreated."""


@dataclass
class Checkpoint:
    """What Spark keeps of a query: its id, what each batch has, and how many are done."""

    query: str
    start: Offsets
    batches: list[tuple[Offsets, Offsets, int]] = field(default_factory=list)  # where it begins and ends, and in which incarnation
    done: int = 0

    def next(self, world: World, rng: random.Random) -> Batch:
        """The batch that was planned and is not done, or a new one."""
        if self.done == len(self.batches):
            begin = self.batches[-1][1] if self.batches else self.start
            if any(world.ends[partition] < offset for partition, offset in begin.items()):
                raise DataLoss
            end = {partition: rng.randint(begin[partition], last) for partition, last in world.ends.items()}
            self.batches.append((begin, end, world.incarnation))
        begin, end, _ = self.batches[self.done]
        text = str(sorted(end.items())) if self.done else str((sorted(begin.items()), sorted(end.items())))
        return Batch(self.query, self.done, hash_of([text]), begin if self.done == 0 else None, end)

    def rows(self) -> list[Row]:
        begin, end, incarnation = self.batches[self.done]
        return [(incarnation, partition, offset) for partition in end for offset in range(begin[partition], end[partition])]


class Driver:
    """A process of the application, on a checkpoint."""

    def __init__(self, world: World, checkpoint: Checkpoint, rng: random.Random) -> None:
        self.checkpoint = checkpoint
        self._world, self._rng = world, rng
        self._machine = ExactlyOnce(APP)
        self._epoch = -1
        self._asking: Generator[Ask, Committed | None, bool] | None = None
        self._asked: Ask | None = None
        self._failed: BaseException | None = None
        self.number = 0
        self.rows: list[Row] = []
        self.is_over = False
        self.is_lost = False  # the source has not what the checkpoint wants
        self.stopped: StopError | None = None

    @property
    def place(self) -> str:
        """Which request is the next one."""
        if self._asking is None:
            return "planning"
        return "commits" if self._asked is None else "seal" if isinstance(self._asked, Seal) else self._asked.value

    def step(self, fault: str) -> None:
        """The next request, or what Spark writes between two batches. ``fault``: none, sent, received, answered, refused, unknown."""
        if self._asking is None:
            try:
                batch = self.checkpoint.next(self._world, self._rng)
            except DataLoss:
                self.is_over = self.is_lost = True
                return
            self.number, self.rows = batch.number, self.checkpoint.rows()
            self._asking = self._machine.deliver(batch)
            self._go_on(None)
            return
        if self._asked is None:  # it is done, as Spark notes
            is_noted = self.checkpoint.done > self.number  # by another driver: Spark ends this one then
            if fault != "sent" and not is_noted:
                self.checkpoint.done += 1
                missing = [row for row in self.rows if self._world.output[row] != 1]
                assert not missing, f"batch {self.number} is done, and its rows are not there once: {missing}"
            self._asking = None
            self.is_over = is_noted or fault != "none"
            return
        if fault == "sent":
            self.is_over = True
            return
        try:
            answer = self._perform(self._asked, fault)
        except (ProducerFencedError, TransactionAbortableError, TransactionExpiredError, CommitOutcomeUnknownError, DataLoss) as error:
            self._go_on(error)
            return
        if fault in ("received", "answered"):
            self.is_over = True
            return
        self._go_on(answer)

    def _perform(self, asked: Ask, fault: str) -> Committed | None:
        world = self._world
        if asked is Step.FENCE:
            self._epoch = world.fence()
        elif asked is Step.READ:
            return committed_of(world.group)
        elif asked is Step.COLLECT:
            if any(row[0] != world.incarnation for row in self.rows):
                raise DataLoss
        elif asked is not Step.ABORT:
            if fault == "unknown" and asked is Step.COMMIT:
                if self._rng.random() < 0.5 and self._epoch == world.epoch:
                    world.commit()
                raise CommitOutcomeUnknownError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
            if fault == "expired" and asked is not Step.BEGIN:  # whoever has fenced it, another driver or its coordinator
                if self._epoch == world.epoch:
                    world.fence()
                raise TransactionExpiredError(ErrorCode.PRODUCER_FENCED, "its time was over")
            world.check(self._epoch)
            if fault == "refused":
                raise TransactionAbortableError(ErrorCode.TRANSACTION_ABORTABLE, "refused")
            if asked is Step.BEGIN:
                world.open = Open()
            elif asked is Step.WRITE:
                assert world.open is not None
                world.open.rows += self.rows
            elif isinstance(asked, Seal):
                assert world.open is not None
                world.open.offsets |= asked.offsets
            else:
                world.commit()
        elif self._epoch == world.epoch:
            world.open = None
        return None

    def _go_on(self, answer: Committed | BaseException | None) -> None:
        assert self._asking is not None
        try:
            if isinstance(answer, BaseException):
                self._asked = self._asking.throw(answer)
            else:
                self._asked = self._asking.send(answer)
        except StopIteration:
            self._asked = None
        except StopError as stop:
            self.stopped, self.is_over = stop, True
        except (TransactionAbortableError, TransactionExpiredError, CommitOutcomeUnknownError):
            self._asking = None  # the query fails, and is started again in the same process or in another one
            self.is_over = self._rng.random() < 0.5
        except DataLoss:
            self.is_over = self.is_lost = True


class Play:
    """A random course of all of it. ``met`` counts what it came to."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World()
        self.met: Counter[str] = Counter()
        self.checkpoint = self._new_checkpoint()
        self.backups: list[Checkpoint] = []
        self.cluster_backups: list[tuple[Counter[Row], dict[TopicPartition, OffsetAndMetadata]]] = []
        self.drivers: list[Driver] = []
        self._count = 0

    def _new_checkpoint(self) -> Checkpoint:
        """Of a query that begins at the earliest offset, where the group ended, or at the end."""
        committed = committed_of(self.world.group)
        if committed.marker is None and self.world.output:
            start = dict(self.world.ends)  # an operator who has deleted the group begins after what is there
        else:
            starts: list[Offsets] = [dict.fromkeys(self.world.ends, 0), dict(self.world.ends)]
            if committed.marker is not None:
                starts += [committed.offsets] * 4
            start = self.rng.choice(starts)
        self.met["checkpoints"] += 1
        return Checkpoint(f"query-{self.rng.random()}", dict(start))

    def run(self, events: int) -> None:
        for _ in range(events):
            self.event()
            assert max(self.world.output.values(), default=0) <= 1, "a row was written twice"

    def event(self) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.06:
            partition = rng.choice(PARTITIONS)
            self.world.ends[partition] += rng.randint(1, 4)
        elif kind < 0.08:
            self.backups.append(copy.deepcopy(self.checkpoint))
        elif kind < 0.083:
            self.checkpoint = self._new_checkpoint()
        elif kind < 0.088 and self.backups:
            self.met["yesterday"] += 1
            self.checkpoint = copy.deepcopy(rng.choice(self.backups))
        elif kind < 0.090:
            self._lose_group("group deleted")
        elif kind < 0.092:
            self._recreate()
        elif kind < 0.095:
            self.cluster_backups.append((self.world.output.copy(), dict(self.world.group)))
        elif kind < 0.097 and self.cluster_backups:
            self._restore_cluster()
        elif not self.drivers or (len(self.drivers) < 2 and kind < 0.15):
            self.drivers.append(Driver(self.world, self.checkpoint, rng))
            if len(self.drivers) == 2:
                self.met["two drivers"] += 1
        else:
            self._step(rng.choice(self.drivers))

    def _step(self, driver: Driver) -> None:
        fault = self.rng.choice(["sent", "received", "answered", "refused", "unknown", "expired"]) if self.rng.random() < 0.06 else "none"
        place = driver.place
        driver.step(fault)
        if fault != "none":
            self.met[f"{fault} at {place}"] += 1
        if driver.stopped is not None:
            self.met[next(name for name, text in STOPS.items() if text in str(driver.stopped))] += 1
            if driver.checkpoint is self.checkpoint and "another producer" not in str(driver.stopped):
                self.checkpoint = self._new_checkpoint()  # the way out that the error names
        if driver.is_lost and driver.checkpoint is self.checkpoint:
            self.met["data loss"] += 1
            self.checkpoint = self._new_checkpoint()
        if driver.is_over:
            self.drivers.remove(driver)

    def _lose_group(self, why: str) -> None:
        """Not of one that a transaction has offsets of. Who is in a query's first batch then could not know that it was written."""
        if self.world.open is not None and self.world.open.offsets:
            return
        self.met[why] += 1
        self.world.group.clear()
        self.backups = [found for found in self.backups if found.done > 0]
        self.drivers = [driver for driver in self.drivers if driver.checkpoint.done > 0 and driver.number > 0]
        if self.checkpoint.done == 0:
            self.checkpoint = self._new_checkpoint()

    def _recreate(self) -> None:
        if self.rng.random() < 0.5:
            self._lose_group("group deleted with the topic")
        self.met["topic recreated"] += 1
        self.world.incarnation += 1
        self.world.ends = dict.fromkeys(PARTITIONS, self.rng.randint(0, 3))

    def _restore_cluster(self) -> None:
        self.met["cluster restored"] += 1
        output, group = self.rng.choice(self.cluster_backups)
        self.world.output, self.world.group = output.copy(), dict(group)
        self.world.open = None
        self.world.epoch += 1
        self.backups = [found for found in self.backups if found.done > 0]
        self.drivers.clear()
        if self.checkpoint.done == 0:
            self.checkpoint = self._new_checkpoint()
