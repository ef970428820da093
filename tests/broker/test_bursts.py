"""What one receive brings is one burst: its answers leave in one send, whether its records are written at once or by a thread."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.test_node import properties
from tests.foreign_clients.wire import batch_of, produce_request

from ottla.broker.handlers import SERVICES
from ottla.broker.node import Broker
from ottla.broker.replicas.partition import Partition
from ottla.broker.requests import burst_timing
from ottla.broker.requests.connection import BrokerConnection
from ottla.broker.requests.router import UNTIMED_MAX
from ottla.broker.roles import Role
from ottla.config import BrokerConfig
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.headers import RequestHeader, encode_request_header
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.messages.metadata import MetadataRequest
from ottla.records.batch import iterate_batches
from ottla.runtime.io_policy import PATHS
from ottla.runtime.world import real_world
from ottla.wire.compiler import encode
from ottla.wire.frames import FrameCutter
from ottla.wire.schema import Request

WAIT_SECONDS_MAX = 30


class Transport:
    """Notes each send."""

    peer = local = ("127.0.0.1", 0)
    unsent_bytes = 0
    is_closed = False

    def __init__(self, *, may_end: bool = False) -> None:
        self.may_end = may_end
        self.sends: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, buffers: Sequence[Any]) -> None:
        self.sends.put_nowait(b"".join(buffers))

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def turn_away(self) -> None: ...
    def probe(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None:
        assert self.may_end, "the broker refused the request"
        self.is_closed = True

    async def next(self) -> list[int]:
        """The correlation ids of the answers of one send."""
        data = await asyncio.wait_for(self.sends.get(), WAIT_SECONDS_MAX)
        return [int.from_bytes(frame[:4], "big") for frame, _ in FrameCutter(1 << 20).feed(memoryview(data))]


@contextlib.asynccontextmanager
async def served(directory: Path, partition_count: int) -> AsyncIterator[tuple[BrokerConnection, Transport]]:
    """A connection to a broker that has the topic ``t``."""
    broker = Broker(real_world(), BrokerConfig(properties(directory)))
    await broker.start()
    transport = Transport()
    connection = broker.router.accept(transport, "PLAINTEXT")
    connection.on_data(memoryview(bytearray(frame_of(1, CreateTopicsRequest([CreatableTopic("t", partition_count, 1)]), 19, 2))))
    assert await transport.next() == [1]
    yield connection, transport
    await broker.stop()


def frame_of(correlation_id: int, request: Request, api_key: int, version: int) -> bytes:
    frame = encode_request_header(RequestHeader(api_key, version, correlation_id, None), is_flexible=False) + encode(request, version)
    return len(frame).to_bytes(4, "big") + frame


@pytest.mark.parametrize("is_written_at_once", [True, False])
def test_the_answers_of_a_burst_leave_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written_at_once: bool) -> None:
    for limit in ("inline_append_bytes_max", "paced_append_bytes_max"):
        monkeypatch.setattr(PATHS, limit, math.inf if is_written_at_once else 0)

    async def main() -> None:
        async with served(tmp_path, 1) as (connection, transport):
            produce = produce_request("t", batch_of(b"x"))
            ends = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])])
            burst = b"".join(frame_of(number, produce, 0, 7) for number in range(2, 7)) + frame_of(7, ends, 2, 1)
            connection.on_data(memoryview(bytearray(burst)))
            assert transport.sends.qsize() == is_written_at_once
            if is_written_at_once:
                assert await transport.next() == [2, 3, 4, 5, 6, 7]
            else:
                assert await transport.next() == [2, 3, 4, 5, 6]
                assert await transport.next() == [7], "what asked for their end waited for it"
            assert transport.sends.empty()

    asyncio.run(main())


def test_heads_are_learnt_while_they_repeat_and_seldom_looked_at_while_they_do_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path, 2) as (connection, transport):

            def send(*partitions: int) -> bool:
                """Whether the last one's head is known now."""
                for partition in partitions:
                    connection.on_data(memoryview(bytearray(frame_of(2, produce_request("t", batch_of(b"x"), partition=partition), 0, 7))))
                return (
                    connection.repeated is not None and connection.repeated.request.topic_data[0].partition_data[0].index == partitions[-1]
                )

            assert send(0)
            assert send(1), "the newest counts"
            assert not send(*[0, 1] * 20)
            assert not send(0, 0, 0), "none repeated itself for long"
            assert send(*[0] * 200)
            assert send(1)
            while not transport.sends.empty():
                transport.sends.get_nowait()

    asyncio.run(main())


@pytest.mark.parametrize("partitions", [1, 2], ids=["repeated heads", "no repeated heads"])
def test_a_burst_of_many_small_requests_lets_others_have_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:  # fmt: skip
    for limit in ("BURST_US_MIN", "BURST_US_MAX"):
        monkeypatch.setattr(burst_timing, limit, -1)  # at each look the burst has taken too long

    async def main() -> None:
        async with served(tmp_path, 2) as (connection, transport):
            count = 3 * UNTIMED_MAX + 1
            requests = [produce_request("t", batch_of(b"x"), partition=number % partitions) for number in range(count)]
            connection.on_data(memoryview(bytearray(b"".join(frame_of(at, request, 0, 7) for at, request in enumerate(requests)))))
            found = [await transport.next() for _ in range(4)]
            assert [len(answers) for answers in found] == [UNTIMED_MAX, UNTIMED_MAX, UNTIMED_MAX, 1]
            assert [answer for answers in found for answer in answers] == list(range(count)), "in the order of the requests"

    asyncio.run(main())


def mistaken(*_: object, **__: object) -> Any:
    raise OverflowError("a mistake of the broker's")


def produce_frame(number: int, topic: str, *batches: bytes) -> bytes:
    return frame_of(number, produce_request(topic, *batches), 0, 7)


@pytest.mark.parametrize("is_written_at_once", [True, False])
@pytest.mark.parametrize("what", ["batch", "request"])
def test_a_mistake_over_one_request_of_a_burst_touches_no_record_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, is_written_at_once: bool
) -> None:
    """What was staged before lies in memory that the next client's bytes are received into: it is written first, or kept."""
    for limit in ("inline_append_bytes_max", "paced_append_bytes_max"):
        monkeypatch.setattr(PATHS, limit, math.inf if is_written_at_once else 0)

    async def main() -> None:
        broker = Broker(real_world(), BrokerConfig(properties(tmp_path)))
        await broker.start()
        transport = Transport(may_end=True)
        connection = broker.router.accept(transport, "PLAINTEXT")
        for number, name in enumerate(("t", "packed")):
            connection.on_data(memoryview(bytearray(frame_of(number, CreateTopicsRequest([CreatableTopic(name, 2, 1)]), 19, 2))))
            assert await transport.next() == [number]
        packed = broker.partitions.by_name["packed"][1]
        if what == "batch":

            def stage(self: Partition, *rest: Any, **more: Any) -> Any:
                return (mistaken if self is packed else original)(self, *rest, **more)

            monkeypatch.setattr(Partition, "stage", stage)
            bad = produce_frame(11, "packed", batch_of(b"good"), batch_of(b"bad"))
        else:
            served = dict(SERVICES[Role.BROKER])
            served[2] = replace(served[2], handle=mistaken)
            monkeypatch.setitem(broker.router._services, Role.BROKER, served)
            bad = frame_of(11, ListOffsetsRequest(-1, topics=[]), 2, 1)
        received = bytearray(produce_frame(10, "t", batch_of(b"victim")) + bad + produce_frame(12, "t", batch_of(b"later")))
        is_kept = connection.on_data(memoryview(received))
        if not is_kept:
            received[:] = bytes(len(received))  # the next receive
        await asyncio.sleep(0)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while not all(partition.is_settled for partition in broker.partitions.all()):
                await asyncio.sleep(0.01)
        for name in ("t", "packed"):
            for partition in broker.partitions.by_name[name].values():
                end = partition.log.log_end_offset
                part = await partition.log.read(0, max_bytes=1 << 20, end_offset=end) if end else None
                found = [header.last_offset for _, header in iterate_batches(part.region.read(), check_crc=True)] if part else []
                assert found == list(range(end)), "every batch is whole"
        assert broker.partitions.by_name["t"][0].log.log_end_offset >= 1
        await broker.stop()

    original = Partition.stage
    asyncio.run(main())


def test_one_connections_requests_leave_others_their_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a mebibyte of small requests in one receive is worked off in slices, and answered whole and in order."""

    async def main() -> None:
        broker = Broker(real_world(), BrokerConfig(properties(tmp_path)))
        await broker.start()
        transport = Transport()
        connection = broker.router.accept(transport, "PLAINTEXT")
        count = 5000
        burst = b"".join(frame_of(number, MetadataRequest(None), 3, 4) for number in range(count))
        connection.on_data(memoryview(bytearray(burst)))
        assert connection.behind, "the first slice has left most of them"
        seen: list[int] = []
        bursts = []
        begin = broker.router.begin_burst

        def begin_burst() -> int:
            bursts.append(len(connection.behind))
            return begin()

        monkeypatch.setattr(broker.router, "begin_burst", begin_burst)
        while len(seen) < count:
            seen += await transport.next()
        assert seen == list(range(count))
        assert len(bursts) > 3
        assert connection.behind == []
        await broker.stop()

    asyncio.run(main())
