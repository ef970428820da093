"""A broker that refuses what a member asks its coordinator, once, as one does whose coordinator has moved or loads."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.foreign_clients.group_members import HEARTBEAT_MS, SESSION_MS

from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import CommitOffsets, CommittedOffset, FetchOffsets, FetchResult, Heartbeat, JoinGroup, SyncGroup
from ottla.groups.consumer.commands import ConsumerHeartbeat
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, NewTopic, Producer, TopicPartition

TOPIC: Final = "t"
GROUP: Final = "g"
RECORDS: Final = 10
COMMITTED: Final = 4
PASSING: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
UNSTABLE: Final = ErrorCode.UNSTABLE_OFFSET_COMMIT


QUESTIONS: Final[tuple[type, ...]] = (JoinGroup, SyncGroup, Heartbeat, CommitOffsets, FetchOffsets)
"""What a member of the classic protocol asks its coordinator."""
QUESTIONS_BY_HEARTBEATS: Final[tuple[type, ...]] = (ConsumerHeartbeat, CommitOffsets, FetchOffsets)
"""What one of the consumer protocol asks (KIP-848)."""


class Refusing:
    """The broker's coordinators. ``asked`` are the questions since ``refuse`` that it was about."""

    def __init__(self, thread: BrokerThread) -> None:
        assert thread._loop is not None
        assert thread._broker is not None
        self._loop = thread._loop
        self._groups = thread._broker.groups
        self._ask = self._groups.ask
        self._may_refuse = asyncio.Event()
        self._code = ErrorCode.NONE
        self._kinds: tuple[type, ...] = ()
        self.asked = Counter[type]()

    def refuse(self, code: ErrorCode, *kinds: type, at_once: bool = True) -> None:
        """The next question of each kind is refused: at once, or when ``go_on`` says so. Without kinds: that for offsets."""
        self._code, self._kinds = code, kinds or (FetchOffsets,)
        self.asked.clear()
        self._groups.ask = self._answer  # type: ignore[method-assign]
        self._groups.look_up = lambda key, make_command, _: self._answer(key, make_command)  # type: ignore[method-assign, assignment]
        if at_once:
            self.go_on()

    def go_on(self) -> None:
        self._loop.call_soon_threadsafe(self._may_refuse.set)

    async def _answer(self, key: str, make_command: Callable[[int], Any]) -> Any:
        kind = type(make_command(0))
        if kind not in self._kinds:
            return await self._ask(key, make_command)
        self.asked[kind] += 1
        if self.asked[kind] > 1:
            return await self._ask(key, make_command)
        await self._may_refuse.wait()
        if self._code == UNSTABLE:
            return FetchResult(ErrorCode.NONE, (CommittedOffset(TOPIC, 0, error_code=self._code),))
        raise KafkaError(self._code)


@contextmanager
def refusing_broker(directory: Path) -> Iterator[tuple[BrokerThread, Refusing]]:
    """The topic has so many records, and the group has committed an offset of it."""
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": str(SESSION_MS),
        "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
        "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    }
    with BrokerThread(properties) as thread:
        with Admin(thread.bootstrap) as admin, Producer(thread.bootstrap) as producer:
            assert admin.create_topics([NewTopic(TOPIC, 1)]) == {TOPIC: None}
            for number in range(RECORDS):
                producer.send(TOPIC, b"%d" % number, key=b"%d" % number)
            producer.flush()
            admin.set_offsets(GROUP, {TopicPartition(TOPIC, 0): COMMITTED})
        yield thread, Refusing(thread)
