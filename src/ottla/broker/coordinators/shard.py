"""Runs replicated machines: one for each partition of an internal topic that this broker leads.

A command is decided over the applied state; its records are appended to the partition and applied at once; what may be
answered to it waits until the log has them. A parked token (a JoinGroup that waits for others) is answered by a later
decision; a parked command is decided again when a decision wakes its key (``parked.py``), in the same turn. What is decided in one turn
is written at once.

A shard belongs to one leader epoch: when that ends it is closed, whatever is parked fails with NOT_COORDINATOR, and what it had is given up
in slices. The next epoch's shard, here or elsewhere, starts with the log.

Loading goes to the log's end, not to the high watermark: what is between them may still be committed, and this epoch answers for it. An
answer waits until the log has committed what it rests on, and not longer than ``commit_ms_max``; with one replica that is when it is
written. Effects wait as long as it takes: what follows from a load is done when all that was loaded is committed, since this broker may
have what no other one has, and be replaced.

Commands are decided one after the other. Large decisions are encoded in slices, and later commands wait for them. When the
log refuses a decision nothing of it is applied: the client gets the error, and a timer comes again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from ottla.broker.coordinators.batches import SLICE_RECORDS, EncodeRecord, encoded, stage, stage_marker
from ottla.broker.coordinators.machine_timers import MachineTimers
from ottla.broker.coordinators.owed import OwedEffects, note_end
from ottla.broker.coordinators.parked import ParkedCommands
from ottla.broker.replicas.partition import Partition
from ottla.broker.tasks import eager
from ottla.broker.tasks.slices import Slices, sliced
from ottla.errors import DecodeError, ErrorCode, KafkaError, OttlaError
from ottla.loggers import get_logger
from ottla.machine import Command, Decision, ReplicatedMachine, StoredRecord, Timer, Token
from ottla.ports import TimerHandle, World
from ottla.records.iteration import Record
from ottla.storage.log.replay import Ended, replayed_between

log = get_logger(__name__)
R = TypeVar("R")
M = TypeVar("M", bound=ReplicatedMachine)

DecodeRecord = Callable[[bytes, bytes | None], StoredRecord | None]
_LOOK_EVERY: Final = 32
"""Records, groups or timers between two looks at the clock: some tenths of a millisecond."""
_FAILED_AT_ONCE: Final = 100
"""Parked requests that fail in one turn of the loop: each of them is answered in the next one."""
_TOGETHER_MAX: Final = 64
"""Decisions of one turn that are written at once."""
_PASSING: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
RETRY_MS: Final = 500
"""When the command of a timer is tried again, as in Kafka's coordinators; and so long a shard lives at least before it is reloaded."""


class _Asked(msgspec.Struct, gc=False):
    """A command that waits to be decided: ``token`` belongs to the client that waits for it, ``timer`` has issued it."""

    command: Any
    token: int | None = None
    timer: Timer | None = None


def no_effect(shard: Any, effect: Any) -> None:
    """Refuses effects, for machines that have nothing done by others."""
    raise AssertionError(f"this coordinator has no one to carry out {type(effect).__name__}")


class Shard(Generic[M]):
    """One machine and its log, in the leader epoch that the partition is in. ``on_effect`` has others do what the shard wants of them."""

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
        on_effect: Callable[[Any, Any], None] = no_effect,
    ) -> None:
        self._world = world
        self.partition = partition
        self.leader_epoch = partition.led_epoch
        self.opened_ms = world.clock.monotonic_ms()
        self._machine = machine
        self._encode = encode
        self._decode = decode
        self._on_lost = on_lost  # the machine has applied what the log did not take: both must be rebuilt
        self._commit_ms_max = commit_ms_max
        self._owed = OwedEffects(world, lambda effect: on_effect(self, effect))
        self._parked: dict[int, asyncio.Future[Any]] = {}
        self._waiting = ParkedCommands(world, self._answer)
        self._decided: list[Decision] = []  # and applied, in this turn; not written yet
        self._timers: Final = MachineTimers(world, lambda timer: self._ask(_Asked(timer.command, timer=timer)))
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
        """Applies every record of the log, and then accepts commands, in slices, unless it is closed meanwhile.

        Without a readable log it never does; where the log does not take what follows from it, ``on_lost`` loads it once more.
        """
        slices = Slices(self._world.clock, is_short=True)
        try:
            await self._read_log(slices)
            decisions = iter(self._machine.on_loaded(self._world.clock.now_ms()))
            while not self._is_closed and (decision := next(decisions, None)) is not None:  # a closed one's state is being given up
                await self._carry_out(decision)
                await slices.next()
            self._write_decided()
        except (OttlaError, OSError) as error:
            if isinstance(error, KafkaError) and error.code in _PASSING and not self._is_closed:
                self._on_lost()
            elif not self._is_closed:
                log.error("shard_not_loaded", topic=self.partition.topic, partition=self.partition.index, error=str(error))
                self.close()
        if not self._is_closed:
            self._is_loaded = True
            self._go_on()  # with what other parts of the broker reported meanwhile

    async def _read_log(self, slices: Slices) -> None:
        opened = self.partition.log
        async for found in replayed_between(opened, opened.log_start_offset, opened.log_end_offset):
            if isinstance(found, Ended):
                self._machine.apply_end(found.producer_id, is_commit=found.is_commit)
                continue
            for count, record in enumerate(found.records):
                if count % _LOOK_EVERY == 0:
                    await slices.next()
                    if self._is_closed:
                        return
                self._apply(found.producer_id, record)

    def _apply(self, producer_id: int | None, record: Record) -> None:
        if record.key is None:
            return
        try:
            stored = self._decode(record.key, record.value)
        except DecodeError as error:
            log.warning("stored_record_skipped", topic=self.partition.topic, offset=record.offset, reason=error.message)
            return
        if stored is None:
            return
        if producer_id is None:
            self._machine.apply(stored)
        else:
            self._machine.apply_pending(producer_id, stored)

    async def ask(self, make_command: Callable[[Token], Command[R]]) -> R:
        """Returns the reply to the command that ``make_command`` makes of a fresh token, once it may be sent.

        KafkaError COORDINATOR_LOAD_IN_PROGRESS before the log was read, NOT_COORDINATOR when the shard goes away meanwhile.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        self._last_token += 1
        token = self._last_token
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._parked[token] = future
        try:
            self._ask(_Asked(make_command(token), token))
            return await future
        finally:
            self._parked.pop(token, None)
            self._waiting.forget(token)

    def look(self, make_command: Callable[[Token], Command[R]]) -> R | KafkaError:
        """Returns the reply to a question that changes nothing, by what is applied, committed or not; else the error of ``ask``."""
        refusal = self._refusal()
        if refusal is not None:
            return refusal
        [(_, reply)] = self._machine.decide(make_command(0), self._world.clock.now_ms()).replies
        return reply  # type: ignore[no-any-return]

    def _refusal(self) -> KafkaError | None:
        if self._is_closed or self.partition.log.is_failed:
            return KafkaError(ErrorCode.NOT_COORDINATOR)
        return None if self._is_loaded else KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def tell(self, command: Command[Any]) -> None:
        """Has the command decided; no caller waits for it."""
        self._ask(_Asked(command))

    def tell_surely(self, command: Command[Any], *name: str) -> None:
        """Has the command decided as ``tell`` does, again if the log refuses the decision. ``name`` distinguishes it from its kind."""
        self._ask(_Asked(command, timer=Timer((type(command).__name__, *name), self._world.clock.now_ms(), command)))

    def ask_again(self, command: Any) -> None:
        """Has a command that waits for its reply decided once more, now that it has what it lacked."""
        self._ask(_Asked(command, command.token))

    def refuse(self, token: Token, error: KafkaError) -> None:
        """Answers the client that waits for the command's reply with the error."""
        future = self._parked.get(token)
        if future is not None and not future.done():
            future.set_exception(error)

    def close(self) -> None:
        """Closes the shard: nothing is decided, timers do nothing, and what is parked soon fails with NOT_COORDINATOR."""
        if not self._is_closed:
            self._is_closed = True
            self._asked.clear()
            self._waiting.close()
            self._owed.close()
            eager.run(self._dismantle(), note_end)

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
        yield from self._timers.end_all()
        yield from self._machine.dismantle()

    def _ask(self, asked: _Asked) -> None:
        if not self._is_closed and not self.partition.log.is_failed:
            self._asked.append(asked)
            self._go_on()

    def _go_on(self) -> None:
        if self._asked and self._is_loaded and not self._is_deciding:
            eager.run(self._decide_all(), note_end)

    async def _decide_all(self) -> None:
        self._is_deciding = True
        try:
            while (self._asked or self._decided) and not self._is_closed:
                if not self._asked:
                    self._write_decided()  # more may be asked by that
                    continue
                asked = self._asked.popleft()
                try:
                    await self._carry_out(self._machine.decide(asked.command, self._world.clock.now_ms()))
                except Exception as error:  # noqa: BLE001 - one command's mistake must not keep the others waiting for ever
                    self._refuse(asked, error)
        finally:
            self._is_deciding = False

    async def _carry_out(self, decision: Decision) -> None:
        """Appends the decision's records and carries it out. KafkaError, and nothing is applied, when the log does not take them."""
        if decision.confirmation is not None and self.partition.leading is not None:
            decision = replace(decision, records=(*decision.records, decision.confirmation))
        if decision.records:
            if len(decision.records) > SLICE_RECORDS:
                self._write_decided()  # others have their turn before this is encoded
            batches = await encoded(decision, self._encode, limit=self.batch_bytes_max, now_ms=self._world.clock.now_ms())
            if self._is_closed:
                raise KafkaError(ErrorCode.NOT_COORDINATOR)
            stage(self.partition, self.leader_epoch, batches, decision.writer, self._world.clock.now_ms())
        self._apply_all(decision)
        for fact in decision.facts:
            self._machine.apply_fact(fact)
        for key in decision.wakes:
            self._asked.extendleft(_Asked(command, command.token) for command in reversed(self._waiting.wake(key)))
        for park in decision.parks:
            self._waiting.park(park)
        for name in decision.ended:
            self._timers.end(name)
        for timer in decision.timers:
            self._timers.set(timer)
        if decision.is_free:
            for token, value in decision.replies:
                self._answer(token, value)
        elif decision.records or decision.replies or decision.effects or decision.marker is not None:
            self._decided.append(decision)
            if len(self._decided) >= _TOGETHER_MAX or len(decision.records) > SLICE_RECORDS:
                self._write_decided()

    def _apply_all(self, decision: Decision) -> None:
        machine, marker, writer = self._machine, decision.marker, decision.writer
        if marker is not None:
            stage_marker(self.partition, self.leader_epoch, marker, self._world.clock.now_ms())
            machine.apply_end(marker.producer_id, is_commit=marker.is_commit)
        for record in decision.records:
            if writer is None:
                machine.apply(record)
            else:
                machine.apply_pending(writer.producer_id, record)

    def _write_decided(self) -> None:
        """Writes what was decided, and answers it when that is committed."""
        decided, self._decided = self._decided, []
        if any(decision.replies or decision.effects for decision in decided):
            if not self.partition.is_settled or self.partition.leading is not None:
                self._reply_when_committed(decided)
            else:
                self._reply(decided, None)
        elif decided:
            eager.run(self.partition.flush(), lambda _, error: self._log_failure(error))

    def _refuse(self, asked: _Asked, error: Exception) -> None:
        """Ends a command that has come to nothing: its client gets the error, its timer comes again."""
        code = error.code if isinstance(error, KafkaError) else None
        may_be = code in _PASSING or (asked.token is not None and code is not None)  # a client may ask for what cannot be
        tell = log.debug if code == ErrorCode.CONCURRENT_TRANSACTIONS else log.info if may_be else log.error  # who asked tries once more
        command, topic, index = type(asked.command).__name__, self.partition.topic, self.partition.index
        tell("shard_command_failed", topic=topic, partition=index, command=command, error=str(error), exc_info=code is None)
        future = None if asked.token is None else self._parked.get(asked.token)
        if future is not None and not future.done():
            future.set_exception(error)
        timer = asked.timer
        if timer is not None and timer.name not in self._timers and not self._is_closed:
            self._timers.set(Timer(timer.name, self._world.clock.now_ms() + RETRY_MS, timer.command))

    def _reply_when_committed(self, decided: list[Decision]) -> None:
        if self._is_closed:
            return
        limit: TimerHandle | None = None

        def ended(_: None, error: BaseException | None) -> None:
            if limit is not None:
                limit.cancel()
            self._reply(decided, error)

        if not eager.run(self.partition.flush_until_committed(), ended):
            limit = self._world.timers.call_later_ms(self._commit_ms_max, lambda: self._refuse_replies(decided, "is not committed in time"))

    def _reply(self, decided: list[Decision], error: BaseException | None) -> None:
        if isinstance(error, KafkaError) and error.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            self._wait_for_replicas(decided)
        else:
            self._log_failure(error)
        if error is not None:
            self._refuse_replies(decided, "has failed")
            return
        effects = [effect for decision in decided for effect in decision.effects]
        replies = [reply for decision in decided for reply in decision.replies]
        for token, value in replies:
            self._answer(token, value)
        if replies and effects:
            loop = asyncio.get_running_loop()  # the answers are sent first, in the next turn but one: nothing in them waits for this
            loop.call_soon(loop.call_soon, self._owed.add, effects)
        else:
            self._owed.add(effects)

    def _wait_for_replicas(self, decided: list[Decision]) -> None:
        """Waits, for too few replicas commit it: waiting clients have to ask again, and effects wait until there are enough."""
        owed = [Decision(effects=decision.effects) for decision in decided if decision.effects]
        if owed:
            self._world.timers.call_later_ms(RETRY_MS, lambda: self._reply_when_committed(owed))

    def _answer(self, token: Token, value: Any) -> None:
        future = self._parked.get(token)
        if future is not None and not future.done():
            future.set_result(value)

    def _refuse_replies(self, decided: list[Decision], what: str) -> None:
        """Refuses the replies of what may still be committed: clients ask again, as they do when a coordinator has gone."""
        for decision in decided:
            for token, _ in decision.replies:
                self.refuse(token, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator's log {what}"))

    def _log_failure(self, error: BaseException | None) -> None:
        if error is not None and not self._is_closed:
            log.error("shard_append_failed", topic=self.partition.topic, partition=self.partition.index, error=str(error))
            self._on_lost()
