"""Runs replicated machines: one for each partition of an internal topic that this broker leads.

A command is decided over the applied state; its records are appended to the partition and applied at once; what may be
answered to it waits until the log has them. A parked token (a JoinGroup that waits for others) is answered by a later
decision. A shard belongs to one leader epoch: when that ends it is closed, whatever is parked fails with NOT_COORDINATOR, and what it
had is given up in slices. The next epoch's shard, here or elsewhere, begins with the log.

Loading goes to the log's end, not to the high watermark: what lies between them may still be committed, and this epoch answers for it. An
answer waits until the log has committed what it rests on, and not longer than ``commit_ms_max``; with one replica that is when it is
written.

Commands are decided one after the other. Large decisions are encoded in slices, and later commands wait for them. When the
log refuses a decision nothing of it is applied: the client gets the error, and a timer comes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from ottla.broker.replicas.partition import Partition
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices, sliced
from ottla.errors import DecodeError, ErrorCode, KafkaError, OttlaError
from ottla.loggers import get_logger
from ottla.machine import Command, Decision, ReplicatedMachine, StoredRecord, Timer, Token
from ottla.ports import TimerHandle, World
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import Record
from ottla.storage.log.replay import decided_between

log = get_logger(__name__)
R = TypeVar("R")
M = TypeVar("M", bound=ReplicatedMachine)

EncodeRecord = Callable[[StoredRecord], tuple[bytes, bytes | None]]
DecodeRecord = Callable[[bytes, bytes | None], StoredRecord | None]
_SLICE_RECORDS: Final = 1000
"""What is encoded before others have their turn: some milliseconds."""
_LOOK_EVERY: Final = 32
"""Records, groups or timers between two looks at the clock: some tenths of a millisecond."""
_FAILED_AT_ONCE: Final = 100
"""Parked requests that fail in one turn of the loop: each of them is answered in the next one."""
_RECORD_OVERHEAD_MAX: Final = 32  # what a batch adds to a record's key and value
_RETRY_MS: Final = 500
"""When the command of a timer is tried again, as in Kafka's coordinators."""


class _Asked(msgspec.Struct, gc=False):
    """A command that waits to be decided. ``token`` is that of the client that waits for it, ``timer`` the one that it comes from."""

    command: Any
    token: int | None = None
    timer: Timer | None = None


def no_effect(effect: Any) -> None:
    """For machines that have nothing done by others."""
    raise AssertionError(f"this coordinator has no one to carry out {type(effect).__name__}")


class Shard(Generic[M]):
    """One machine and its log, in the leader epoch that the partition is in. ``on_effect`` carries out what others are to do."""

    def __init__(
        self,
        world: World,
        partition: Partition,
        machine: M,
        encode: EncodeRecord,
        decode: DecodeRecord,
        on_lost: Callable[[], None],
        *,
        commit_ms_max: int = 5000,
        on_effect: Callable[[Any], None] = no_effect,
    ) -> None:
        self._world = world
        self.partition = partition
        self.leader_epoch = partition.led_epoch
        self._machine = machine
        self._encode = encode
        self._decode = decode
        self._on_lost = on_lost  # the machine has applied what the log did not take: both must be rebuilt
        self._commit_ms_max = commit_ms_max
        self._on_effect = on_effect
        self._parked: dict[int, asyncio.Future[Any]] = {}
        self._timers: dict[tuple[str, ...], TimerHandle] = {}
        self._asked: deque[_Asked] = deque()
        self._is_deciding = False
        self._last_token = 0
        self._is_loaded = False
        self._is_closed = False

    @property
    def parked_count(self) -> int:
        """Commands that wait for their reply."""
        return len(self._parked)

    @property
    def batch_bytes_max(self) -> int:
        """What one batch of the log may have."""
        return self.partition.log.config.max_message_bytes

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def load(self) -> None:
        """Every record of the log is applied; commands are accepted from now on. Without a readable log they never are.

        It goes on in slices, and ends early when the shard is closed meanwhile.
        """
        slices = Slices(self._world.clock)
        try:
            await self._read_log(slices)
            for count, decision in enumerate(self._machine.on_loaded(self._world.clock.now_ms()), 1):
                if self._is_closed:
                    break
                await self._carry_out(decision)
                if count % _LOOK_EVERY == 0:
                    await slices.next()
        except (OttlaError, OSError) as error:
            if not self._is_closed:
                log.error("shard_not_loaded", topic=self.partition.topic, partition=self.partition.index, error=str(error))
                self.close()
        if not self._is_closed:
            self._is_loaded = True
            self._go_on()  # with what other parts of the broker told it meanwhile

    async def _read_log(self, slices: Slices) -> None:
        opened = self.partition.log
        async for batch in decided_between(opened, opened.log_start_offset, opened.log_end_offset):
            for count, record in enumerate(batch):
                if count % _LOOK_EVERY == 0:
                    await slices.next()
                    if self._is_closed:
                        return
                self._apply(record)

    def _apply(self, record: Record) -> None:
        if record.key is None:
            return
        try:
            stored = self._decode(record.key, record.value)
        except DecodeError as error:
            log.warning("stored_record_skipped", topic=self.partition.topic, offset=record.offset, reason=error.message)
            return
        if stored is not None:
            self._machine.apply(stored)

    async def ask(self, make_command: Callable[[Token], Command[R]]) -> R:
        """The reply to the command that ``make_command`` makes of a fresh token, once it may be sent.

        KafkaError COORDINATOR_LOAD_IN_PROGRESS before the log was read, NOT_COORDINATOR when the shard goes away meanwhile.
        """
        if self._is_closed or self.partition.log.is_failed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not self._is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._last_token += 1
        token = self._last_token
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._parked[token] = future
        try:
            self._ask(_Asked(make_command(token), token))
            return await future
        finally:
            self._parked.pop(token, None)

    def tell(self, command: Command[Any]) -> None:
        """The command is decided; no caller waits for it."""
        self._ask(_Asked(command))

    def close(self) -> None:
        """Nothing is decided, timers do nothing, and what is parked fails with NOT_COORDINATOR: soon, where that is much."""
        if not self._is_closed:
            self._is_closed = True
            self._asked.clear()
            eager.run(self._dismantle(), _note_end)

    async def _dismantle(self) -> None:
        parked, self._parked = self._parked, {}
        async for future in sliced(parked.values(), _FAILED_AT_ONCE):
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        slices = Slices(self._world.clock)
        for count, _ in enumerate(self._given_up(), 1):
            if count % _LOOK_EVERY == 0:
                await slices.next()

    def _given_up(self) -> Iterator[None]:
        while self._timers:
            self._timers.popitem()[1].cancel()
            yield
        yield from self._machine.dismantle()

    def _ask(self, asked: _Asked) -> None:
        if not self._is_closed and not self.partition.log.is_failed:
            self._asked.append(asked)
            self._go_on()

    def _go_on(self) -> None:
        if self._asked and self._is_loaded and not self._is_deciding:
            eager.run(self._decide_all(), _note_end)

    async def _decide_all(self) -> None:
        self._is_deciding = True
        try:
            while self._asked and not self._is_closed:
                asked = self._asked.popleft()
                try:
                    await self._carry_out(self._machine.decide(asked.command, self._world.clock.now_ms()))
                except Exception as error:  # noqa: BLE001 - one command's mistake must not keep the others waiting for ever
                    self._refuse(asked, error)
        finally:
            self._is_deciding = False

    async def _carry_out(self, decision: Decision) -> None:
        """KafkaError with the code that clients get when the log does not take the records; nothing is applied then."""
        assert not decision.parks, "no machine on a shard has others wait yet"
        if decision.records:
            batches = await self._encoded(decision)
            if self._is_closed:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            self._stage(batches)
        for record in decision.records:
            self._machine.apply(record)
        for fact in decision.facts:
            self._machine.apply_fact(fact)
        for timer in decision.timers:
            self._set_timer(timer)
        if decision.replies or decision.effects:
            if not self.partition.is_settled or self.partition.leading is not None:
                self._reply_when_committed(decision)
            else:
                self._reply(decision, None)
        elif decision.records:
            eager.run(self.partition.flush(), lambda _, error: self._log_failure(error))

    async def _encoded(self, decision: Decision) -> list[bytearray]:
        """The batches of the decision's records: one, unless it may be split."""
        limit = self.batch_bytes_max
        now_ms = self._world.clock.now_ms()
        batches: list[bytearray] = []
        builder = BatchBuilder()
        for count, record in enumerate(decision.records, 1):
            key, value = self._encode(record)
            size = len(key) + len(value or b"") + _RECORD_OVERHEAD_MAX
            if not decision.is_atomic and builder.count and builder.size_bytes + size > limit:
                batches.append(builder.build())
                builder = BatchBuilder()
            builder.append(key, value, timestamp_ms=now_ms)
            if builder.size_bytes > limit:
                text = f"{len(decision.records)} records do not fit into a batch of {limit} bytes"
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text)
            if count % _SLICE_RECORDS == 0:
                await asyncio.sleep(0)
        return [*batches, builder.build()]

    def _stage(self, batches: list[bytearray]) -> None:
        partition = self.partition
        now_ms = self._world.clock.now_ms()
        try:
            for batch in batches:
                partition.stage_own(memoryview(batch), leader_epoch=self.leader_epoch, now_ms=now_ms)
        except KafkaError as error:
            if error.code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error
            raise

    def _refuse(self, asked: _Asked, error: Exception) -> None:
        """The command has come to nothing: its client gets the error, its timer comes again."""
        is_ours = not isinstance(error, KafkaError)
        tell = log.info if asked.token is not None and not is_ours else log.error  # a client may ask for what cannot be
        command = type(asked.command).__name__
        tell(
            "shard_command_failed",
            topic=self.partition.topic,
            partition=self.partition.index,
            command=command,
            error=str(error),
            exc_info=is_ours,
        )
        future = self._parked.get(asked.token) if asked.token is not None else None
        if future is not None and not future.done():
            future.set_exception(error)
        timer = asked.timer
        if timer is not None and timer.name not in self._timers and not self._is_closed:
            self._set_timer(Timer(timer.name, self._world.clock.now_ms() + _RETRY_MS, timer.command))

    def _reply_when_committed(self, decision: Decision) -> None:
        timers, late = self._world.timers, "is not committed in time"
        limit = timers.call_later_ms(self._commit_ms_max, lambda: self._refuse_replies(decision, late))

        def ended(_: None, error: BaseException | None) -> None:
            limit.cancel()
            self._reply(decision, error)

        eager.run(self.partition.flush_until_committed(), ended)

    def _reply(self, decision: Decision, error: BaseException | None) -> None:
        self._log_failure(error)
        if error is not None:
            self._refuse_replies(decision, "has failed")
            return
        for token, value in decision.replies:
            future = self._parked.get(token)
            if future is not None and not future.done():
                future.set_result(value)
        if not self._is_closed:
            for effect in decision.effects:
                self._on_effect(effect)

    def _refuse_replies(self, decision: Decision, what: str) -> None:
        """What was decided may still be committed: clients ask again, as they do when a coordinator has gone."""
        for token, _ in decision.replies:
            future = self._parked.get(token)
            if future is not None and not future.done():
                future.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator's log {what}"))

    def _log_failure(self, error: BaseException | None) -> None:
        if error is not None and not self._is_closed:
            log.error("shard_append_failed", topic=self.partition.topic, partition=self.partition.index, error=str(error))
            self._on_lost()

    def _set_timer(self, timer: Timer) -> None:
        old = self._timers.pop(timer.name, None)
        if old is not None:
            old.cancel()
        delay_ms = timer.deadline_ms - self._world.clock.now_ms()
        self._timers[timer.name] = self._world.timers.call_later_ms(max(0, delay_ms), lambda: self._on_timer(timer))

    def _on_timer(self, timer: Timer) -> None:
        self._timers.pop(timer.name, None)
        self._ask(_Asked(timer.command, timer=timer))


def _note_end(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("shard_failed", exc_info=error)
