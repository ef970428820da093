"""Runs replicated machines: one for each partition of an internal topic that this broker leads.

A command is decided over the applied state; its records are appended to the partition and applied at once; what may be
answered to it waits until the log has them. A parked token (a JoinGroup that waits for others) is answered by a later
decision. When the partition goes away, whatever is parked fails with NOT_COORDINATOR.

Commands are decided one after the other. Large decisions are encoded in slices, and later commands wait for them. When the
log refuses a decision nothing of it is applied: the client gets the error, and a timer comes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from ottla.broker.replicas.partition import Partition
from ottla.broker.tasks import eager
from ottla.errors import DecodeError, ErrorCode, KafkaError, OttlaError
from ottla.loggers import get_logger
from ottla.machine import Command, Decision, ReplicatedMachine, StoredRecord, Timer, Token
from ottla.ports import TimerHandle, World
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import Record
from ottla.storage.log.replay import records_between

log = get_logger(__name__)
R = TypeVar("R")

EncodeRecord = Callable[[StoredRecord], tuple[bytes, bytes | None]]
DecodeRecord = Callable[[bytes, bytes | None], StoredRecord | None]
_SLICE_RECORDS: Final = 1000
"""What is encoded or read before others have their turn: some milliseconds."""
_RECORD_OVERHEAD_MAX: Final = 32  # what a batch adds to a record's key and value
_RETRY_MS: Final = 500
"""When the command of a timer is tried again, as in Kafka's coordinators."""


class _Asked(msgspec.Struct, gc=False):
    """A command that waits to be decided. ``token`` is that of the client that waits for it, ``timer`` the one that it comes from."""

    command: Any
    token: int | None = None
    timer: Timer | None = None


class Shard:
    """One machine and its log."""

    def __init__(
        self,
        world: World,
        partition: Partition,
        machine: ReplicatedMachine,
        encode: EncodeRecord,
        decode: DecodeRecord,
        on_lost: Callable[[], None],
    ) -> None:
        self._world = world
        self._partition = partition
        self._machine = machine
        self._encode = encode
        self._decode = decode
        self._on_lost = on_lost  # the machine has applied what the log did not take: both must be rebuilt
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
        return self._partition.log.config.max_message_bytes

    async def load(self) -> None:
        """Every record of the log is applied; commands are accepted from now on. Without a readable log they never are."""
        try:
            await self._read_log()
            await self._carry_out(self._machine.on_loaded(self._world.clock.now_ms()))
        except (OttlaError, OSError) as error:
            log.error("shard_not_loaded", topic=self._partition.topic, partition=self._partition.index, error=str(error))
            self.close()
            return
        self._is_loaded = True

    async def _read_log(self) -> None:
        partition = self._partition
        async for records in records_between(partition.log, partition.log.log_start_offset, partition.high_watermark):
            for record in records:
                self._apply(record)
            await asyncio.sleep(0)

    def _apply(self, record: Record) -> None:
        if record.key is None:
            return
        try:
            stored = self._decode(record.key, record.value)
        except DecodeError as error:
            log.warning("stored_record_skipped", topic=self._partition.topic, offset=record.offset, reason=error.message)
            return
        if stored is not None:
            self._machine.apply(stored)

    async def ask(self, make_command: Callable[[Token], Command[R]]) -> R:
        """The reply to the command that ``make_command`` makes of a fresh token, once it may be sent.

        KafkaError COORDINATOR_LOAD_IN_PROGRESS before the log was read, NOT_COORDINATOR when the shard goes away meanwhile.
        """
        if self._is_closed or self._partition.log.is_failed:
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
        """Timers stop; what is parked fails with NOT_COORDINATOR."""
        self._is_closed = True
        self._asked.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        parked, self._parked = self._parked, {}
        for future in parked.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))

    def _ask(self, asked: _Asked) -> None:
        if not self._is_loaded or self._is_closed or self._partition.log.is_failed:
            return
        self._asked.append(asked)
        if not self._is_deciding:
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
        assert not decision.effects, "no machine on a shard has effects yet"
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
        if decision.replies:
            if not self._partition.is_settled:
                eager.run(self._partition.flush(), lambda _, error: self._reply(decision, error))
            else:
                self._reply(decision, None)
        elif decision.records:
            eager.run(self._partition.flush(), lambda _, error: self._log_failure(error))

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
        partition = self._partition
        now_ms = self._world.clock.now_ms()
        try:
            for batch in batches:
                partition.stage_own(memoryview(batch), leader_epoch=partition.leader_epoch, now_ms=now_ms)
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
            topic=self._partition.topic,
            partition=self._partition.index,
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

    def _reply(self, decision: Decision, error: BaseException | None) -> None:
        self._log_failure(error)
        for token, value in decision.replies:
            future = self._parked.get(token)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's log has failed"))

    def _log_failure(self, error: BaseException | None) -> None:
        if error is not None:
            log.error("shard_append_failed", topic=self._partition.topic, partition=self._partition.index, error=str(error))
            if not self._is_closed:
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
    assert error is None, "commands are refused one by one"
