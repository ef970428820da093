"""Runs replicated machines: one for each partition of an internal topic that this broker leads.

A command is decided over the applied state; its records are appended to the partition and applied at once; what may be
told of it waits until the log has them. A parked token (a JoinGroup that waits for others) is answered by a later
decision. When the partition goes away, whatever is parked fails with NOT_COORDINATOR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from ottla.broker import eager
from ottla.broker.partition import Partition
from ottla.errors import DecodeError, ErrorCode, KafkaError
from ottla.machine import Decision, ReplicatedMachine, StoredRecord, Timer
from ottla.ports import TimerHandle, World
from ottla.records.batch import iterate_batches
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import iterate_records

log = structlog.get_logger()

EncodeRecord = Callable[[StoredRecord], tuple[bytes, bytes | None]]
DecodeRecord = Callable[[bytes, bytes | None], StoredRecord | None]
_READ_BYTES = 1 << 20


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
        self._on_lost = on_lost  # the machine has applied what the log did not take: both must be taken up anew
        self._parked: dict[int, asyncio.Future[Any]] = {}
        self._timers: dict[tuple[str, ...], TimerHandle] = {}
        self._last_token = 0
        self._is_loaded = False
        self._is_closed = False

    async def load(self) -> None:
        """Every record of the log is applied; commands are accepted from now on."""
        partition = self._partition
        offset = partition.log.log_start_offset
        while offset < partition.high_watermark:
            part = await partition.log.read(offset, max_bytes=_READ_BYTES, end_offset=partition.high_watermark)
            assert part is not None, "offsets below the high watermark can be read"
            data = part.region.read()
            for position, header in iterate_batches(data):
                if not header.is_control:
                    self._apply_batch(data, position, offset)
                offset = header.last_offset + 1
        self._is_loaded = True
        self._carry_out(self._machine.on_loaded(self._world.clock.now_ms()))

    def _apply_batch(self, data: bytes, position: int, first_offset: int) -> None:
        for record in iterate_records(data, position):
            if record.offset < first_offset or record.key is None:
                continue
            try:
                stored = self._decode(record.key, record.value)
            except DecodeError as error:
                log.warning("stored_record_skipped", topic=self._partition.topic, offset=record.offset, reason=error.message)
                continue
            if stored is not None:
                self._machine.apply(stored)

    async def ask(self, make_command: Callable[[int], Any]) -> Any:
        """The reply to the command that ``make_command`` makes of a fresh token, once it may be told.

        KafkaError COORDINATOR_LOAD_IN_PROGRESS before the log was read, NOT_COORDINATOR when the shard goes away meanwhile.
        """
        if self._is_closed or self._partition.log.is_failed:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if not self._is_loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._last_token += 1
        token = self._last_token
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._parked[token] = future
        self._decide(make_command(token))
        return await future

    def tell(self, command: Any) -> None:
        """The command is decided; nobody waits for it."""
        if self._is_loaded and not self._is_closed and not self._partition.log.is_failed:
            self._decide(command)

    def close(self) -> None:
        """Timers stop; what is parked fails with NOT_COORDINATOR."""
        self._is_closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        parked, self._parked = self._parked, {}
        for future in parked.values():
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))

    def _decide(self, command: Any) -> None:
        self._carry_out(self._machine.decide(command, self._world.clock.now_ms()))

    def _carry_out(self, decision: Decision) -> None:
        assert not decision.effects, "no machine on a shard has effects yet"
        if decision.records:
            self._append(decision.records)
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

    def _append(self, records: tuple[StoredRecord, ...]) -> None:
        builder = BatchBuilder()
        now_ms = self._world.clock.now_ms()
        for record in records:
            key, value = self._encode(record)
            builder.append(key, value, timestamp_ms=now_ms)
        partition = self._partition
        partition.log.stage(memoryview(builder.build()), leader_epoch=partition.leader_epoch, now_ms=now_ms, from_client=False)

    def _reply(self, decision: Decision, error: BaseException | None) -> None:
        self._log_failure(error)
        for token, value in decision.replies:
            future = self._parked.pop(token, None)
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
        self.tell(timer.command)
