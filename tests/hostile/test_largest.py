"""No request holds the broker's event loop for more than 50 ms, whichever array of it is as long as the decoder lets it be.

What is counted is steps of Python between two looks of the loop at its sockets, and the broker's clock goes by them: the same on every
machine. Two lengths are tried, and the longest turn is extended to the largest length that there can be, so that work which grows
with the request shows though neither of them is long. ``python -m bench.turns`` measures milliseconds.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.test_bursts import Transport
from tests.broker.test_node import properties
from tests.hostile.acls import acl, wanted
from tests.hostile.largest import GROUP, PARTITIONS, TOPIC, Largest, all_largest
from tests.hostile.wire_bytes import request

from ottla.broker.node import Broker
from ottla.broker.requests.connection import BrokerConnection
from ottla.config import BrokerConfig
from ottla.controller.topics import NewTopic
from ottla.messages.create_acls import CreateAclsRequest
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.runtime.descriptors import raise_limit
from ottla.runtime.world import real_world

LENGTH_BEFORE = 2100
LENGTHS = (2400, 4800)
LONGER = (12_000, 24_000)
STEPS_MAX = 1_000_000
"""In 50 ms: a step takes 30 to 50 ns."""
STEPS_A_US = 5  # by the broker's clock: traced, a step takes five times as long
LARGEST = list(all_largest())


class Steps:
    """Counts lines and calls of Python while it is on; the longest turn of its loop; the broker's clock."""

    def __init__(self) -> None:
        count = 0

        def trace(_frame: FrameType, _event: str, _argument: object) -> Any:  # it is called millions of times: nothing is looked up
            nonlocal count
            count += 1
            return trace

        self.trace = trace
        self._counted: Callable[[], int] = lambda: count
        self.longest = 0

    @property
    def count(self) -> int:
        return self._counted()

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return self.monotonic_us() // 1000

    def monotonic_us(self) -> int:
        return self.count // STEPS_A_US


class CountingSelector(selectors.DefaultSelector):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps
        self._began = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self._steps.longest = max(self._steps.longest, self._steps.count - self._began)
        events = super().select(timeout)
        self._began = self._steps.count
        return events


async def answered(connection: BrokerConnection, transport: Transport, data: bytes) -> None:
    """The request has an answer, or its connection an end."""
    connection.on_data(memoryview(bytearray(data)))
    while transport.sends.empty() and not transport.is_closed:
        await asyncio.sleep(0.001)
    while not transport.sends.empty():
        transport.sends.get_nowait()
    await asyncio.sleep(0)  # the turn ends that answered it


def longest_turns(directory: Path, make: Callable[[Broker, int], bytes], lengths: tuple[int, int]) -> list[int]:
    """The longest turn, in steps, while a request of each length is answered."""
    steps, found = Steps(), []

    async def main() -> None:
        broker = Broker(replace(real_world(), clock=steps), BrokerConfig(properties(directory) | {"auto.create.topics.enable": "false"}))
        await broker.start()
        await broker.controller.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        committed = OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, 5)])
        for first in (request(FindCoordinatorRequest(GROUP), 0), request(OffsetCommitRequest(GROUP, topics=[committed]), 7)):
            transport = Transport()
            await answered(broker.router.accept(transport, "PLAINTEXT"), transport, first)
        for length in (LENGTH_BEFORE, *lengths):
            transport = Transport(may_end=True)
            connection = broker.router.accept(transport, "PLAINTEXT")
            data = make(broker, length)
            await asyncio.sleep(0)
            steps.longest = 0
            if length != LENGTH_BEFORE:  # when the codecs are made
                sys.settrace(steps.trace)
            try:
                await answered(connection, transport, data)
            finally:
                sys.settrace(None)
            found.append(steps.longest)
        await broker.stop()

    loop = asyncio.SelectorEventLoop(CountingSelector(steps))
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    return found[1:]


def extended(lengths: tuple[int, int], turns: list[int], length: int) -> int:
    """What the longest turn comes to at that length, if it goes on to grow as it did."""
    return turns[1] + max(0, turns[1] - turns[0]) * (length - lengths[1]) // (lengths[1] - lengths[0])


@pytest.mark.parametrize("largest", LARGEST, ids=[largest.name for largest in LARGEST])
def test_the_largest_request_of_each_kind_is_worked_off_in_slices(tmp_path: Path, largest: Largest) -> None:
    def make(broker: Broker, length: int) -> bytes:
        return request(largest.request(length, broker.image.topics[TOPIC].topic_id), largest.version)

    turns = longest_turns(tmp_path / "short", make, LENGTHS)
    if extended(LENGTHS, turns, largest.count_worked_on) > STEPS_MAX:  # it may be where slices end, which more elements do not move
        turns = longest_turns(tmp_path / "long", make, LONGER)
        assert extended(LONGER, turns, largest.count_worked_on) <= STEPS_MAX, f"{turns} steps with {LONGER} elements"


def test_a_topic_of_10000_partitions_is_created_in_slices(tmp_path: Path) -> None:
    raise_limit()

    def make(_: Broker, length: int) -> bytes:
        return request(CreateTopicsRequest([CreatableTopic(f"new-{length}", length, 1)], 30_000), 7)

    lengths = (600, 1200)
    turns = longest_turns(tmp_path, make, lengths)
    assert extended(lengths, turns, 10_000) <= STEPS_MAX, f"{turns} steps with {lengths} partitions"


ACLS_STEPS_MAX = 400_000
"""In 20 ms."""


@pytest.mark.parametrize("is_one_resource", [True, False], ids=["of one resource", "of a resource each"])
def test_10000_acls_come_and_go_in_slices(tmp_path: Path, is_one_resource: bool) -> None:
    """All of one request are recorded together, and the tables of ACLs follow in slices."""
    length = 10_000
    acls = [acl(resource_name="t" if is_one_resource else f"t{number}", principal=f"User:{number}") for number in range(length)]
    all_of_them = DeleteAclsFilter(**wanted(resource_name_filter=None, principal_filter=None))
    requests = {
        "created": CreateAclsRequest(acls),
        "there already": CreateAclsRequest(acls),
        "deleted": DeleteAclsRequest([all_of_them]),
    }
    turns = {}
    steps = Steps()

    async def main() -> None:
        rights = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS"}
        broker = Broker(replace(real_world(), clock=steps), BrokerConfig(properties(tmp_path) | rights))
        await broker.start()
        transport = Transport()
        connection = broker.router.accept(transport, "PLAINTEXT")
        for first in (CreateAclsRequest([acl()]), DeleteAclsRequest([all_of_them])):  # when the codecs are made
            await answered(connection, transport, request(first, 3))
        for name, asked in requests.items():
            data = request(asked, 3)
            await asyncio.sleep(0)
            steps.longest = 0
            sys.settrace(steps.trace)
            try:
                await answered(connection, transport, data)
            finally:
                sys.settrace(None)
            turns[name] = steps.longest, len(broker.image.acls)
        await broker.stop()

    loop = asyncio.SelectorEventLoop(CountingSelector(steps))
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert [count for _, count in turns.values()] == [length, length, 0]
    assert max(longest for longest, _ in turns.values()) <= ACLS_STEPS_MAX, turns
