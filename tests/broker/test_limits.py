"""How many may connect, how fast, and how much the broker takes on at once: each limit holds, and honest clients go on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.broker.test_node import properties
from tests.foreign_clients.wire import RawClient, batch_of, produce_request
from tests.waiting import eventually

from ottla.client.admin import Admin as AsyncAdmin
from ottla.messages.api_versions import ApiVersionsRequest
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.headers import RequestHeader, encode_request_header
from ottla.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.metadata.image import CONNECTION_RATE
from ottla.ports import Connection
from ottla.runtime.files import PIECE_BYTES
from ottla.runtime.serve import BrokerThread
from ottla.sim.cluster import PORT, SimBroker, Simulation
from ottla.sim.loop import run
from ottla.sync import Admin, NewTopic
from ottla.wire.compiler import encode
from ottla.wire.frames import FrameCutter

WAIT_SECONDS_MAX = 30.0
RESOURCE_BROKER = 4
TURNS = 20  # of the broker's loop: one to read, one to answer, and some to be sure


def port_of(broker: BrokerThread, listener: str = "PLAINTEXT") -> int:
    return broker.addresses[listener][1]


def is_served(client: RawClient) -> bool:
    return client.ask(ApiVersionsRequest(), 0).error_code == 0


def hears_nothing(broker: BrokerThread, client: RawClient) -> bool:
    """Though the broker had the time to read and to answer: on loopback what was sent is there at once."""

    async def turns() -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    assert broker._loop is not None
    asyncio.run_coroutine_threadsafe(turns(), broker._loop).result(WAIT_SECONDS_MAX)
    client.socket.setblocking(False)
    try:
        client.socket.recv(1)
    except BlockingIOError:
        return True
    finally:
        client.socket.settimeout(WAIT_SECONDS_MAX)
    return False


def test_above_max_connections_new_ones_wait_until_one_closes(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(properties(tmp_path, **{"max.connections": "3"})))
        first, *others = [stack.enter_context(RawClient(port_of(broker))) for _ in range(3)]
        assert all(map(is_served, [first, *others]))
        late = stack.enter_context(RawClient(port_of(broker)))
        late.send(ApiVersionsRequest(), 0)
        assert all(is_served(client) for client in others for _ in range(20))
        assert hears_nothing(broker, late)
        first.socket.close()
        assert late.receive().error_code == 0


def test_a_listener_has_a_limit_of_its_own_and_the_brokers_listener_is_protected(tmp_path: Path) -> None:
    config = properties(
        tmp_path,
        **{
            "listeners": "CLIENTS://127.0.0.1:0,OTHERS://127.0.0.1:0,BROKERS://127.0.0.1:0",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,OTHERS:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "listener.name.clients.max.connections": "1",
            "max.connections": "2",
        },
    )
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(config))
        other = stack.enter_context(RawClient(port_of(broker, "OTHERS")))
        assert is_served(other)
        client = stack.enter_context(RawClient(port_of(broker, "CLIENTS")))
        assert is_served(client)
        waiting = stack.enter_context(RawClient(port_of(broker, "CLIENTS")))
        waiting.send(ApiVersionsRequest(), 0)
        peer = stack.enter_context(RawClient(port_of(broker, "BROKERS")))
        assert is_served(peer)
        assert other.is_closed_by_broker(), "it was used before the client was, so it had to go"
        assert is_served(client)
        assert hears_nothing(broker, waiting)


@pytest.mark.parametrize(
    "limits",
    [
        {"max.connections.per.ip": "2"},
        {"max.connections.per.ip.overrides": "127.0.0.1:2,10.0.0.1:0"},
        {"max.connections.per.ip.overrides": "localhost:2,no-such-host.invalid:0"},
    ],
)
def test_an_address_with_too_many_connections_is_refused_at_once(tmp_path: Path, limits: dict[str, str]) -> None:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(properties(tmp_path, **limits)))
        first, second = (stack.enter_context(RawClient(port_of(broker))) for _ in range(2))
        assert is_served(first)
        assert is_served(second)
        for _ in range(5):
            with RawClient(port_of(broker)) as third:
                assert third.is_closed_by_broker()
        assert is_served(first)
        second.socket.close()
        assert is_served(first), "so the broker has seen the end before the next one connects"
        with RawClient(port_of(broker)) as again:
            assert is_served(again)
        assert is_served(first)


def test_a_host_that_a_change_names_is_looked_up(tmp_path: Path) -> None:
    """A name had no effect: connections have addresses."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(properties(tmp_path)))
        first = stack.enter_context(RawClient(port_of(broker)))
        edit = AlterableConfig("max.connections.per.ip.overrides", 0, "localhost:1")
        [changed] = first.ask(IncrementalAlterConfigsRequest([AlterConfigsResource(RESOURCE_BROKER, "", [edit])]), 1).responses
        assert changed.error_code == 0

        def is_refused() -> bool:
            with RawClient(port_of(broker)) as second:
                second.send(ApiVersionsRequest(), 0)
                return second.is_closed_by_broker()

        assert eventually(is_refused, lambda refused: refused)
        assert is_served(first)


class Knocking:
    """A client that asks once and notes when it is answered."""

    def __init__(self, answered_ms: list[int], now_ms: Callable[[], int], ended_ms: list[int] | None = None) -> None:
        self._answered_ms = answered_ms
        self._ended_ms = ended_ms
        self._now_ms = now_ms
        self._cutter = FrameCutter(1 << 20)  # an answer may come in pieces
        self.is_closed = False

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        self._answered_ms += [self._now_ms() for _ in self._cutter.feed(data)]
        return False

    def on_drain(self) -> None: ...

    def on_close(self, _error: Exception | None) -> None:
        self.is_closed = True
        if self._ended_ms is not None:
            self._ended_ms.append(self._now_ms())


def ask_api_versions(connection: Connection) -> None:
    frame = encode_request_header(RequestHeader(18, 0, 1, "sim"), is_flexible=False) + encode(ApiVersionsRequest(), 0)
    connection.send([len(frame).to_bytes(4, "big") + frame])


def test_the_creation_rate_spreads_new_connections_over_time() -> None:
    async def main() -> None:
        simulation = Simulation(1)
        broker = SimBroker(simulation, {"max.connection.creation.rate": "5"})
        await broker.start()
        world = simulation.machine("client").boot()
        answered_ms: list[int] = []
        began_ms = world.clock.monotonic_ms()
        for _ in range(10):
            connection = await world.network.connect("broker", PORT, lambda _: Knocking(answered_ms, world.clock.monotonic_ms))
            ask_api_versions(connection)
        await asyncio.sleep(5)
        after_ms = [at - began_ms for at in answered_ms]
        assert len(after_ms) == 10
        assert after_ms[4] < 200
        for place in range(6, 10):  # the rate is met to within one
            assert 0 <= after_ms[place] - 200 * (place - 5) < 100

    run(main())


def test_an_address_that_connects_too_fast_is_not_served_and_closed_after_its_pause() -> None:
    async def main() -> None:
        simulation = Simulation(1, network_delay_ms_max=0)  # those of one moment
        broker = SimBroker(simulation, {"max.connections": "12"})
        await broker.start()
        admin = AsyncAdmin(broker.client("admin"))
        assert list((await admin.alter_client_quotas({(("ip", None),): {CONNECTION_RATE: 5.0}})).values()) == [None]
        await admin.close()
        worlds = {host: simulation.machine(host).boot() for host in ("client", "other")}
        answered: dict[str, list[int]] = {"client": [], "other": []}
        ended: dict[str, list[int]] = {"client": [], "other": []}
        began_ms = worlds["client"].clock.monotonic_ms()

        async def knock(host: str) -> None:
            knocking = Knocking(answered[host], worlds[host].clock.monotonic_ms, ended[host])
            ask_api_versions(await worlds[host].network.connect("broker", PORT, lambda _: knocking))

        await asyncio.gather(*[knock("client") for _ in range(6)], *[knock("other") for _ in range(5)])
        await asyncio.sleep(0.1)
        assert (len(answered["client"]), len(answered["other"])) == (5, 5)
        await asyncio.sleep(5)
        assert (len(answered["client"]), len(answered["other"])) == (5, 5), "it is never served"
        assert len(ended["client"]) == 1
        assert 0 < ended["client"][0] - began_ms < 300
        ask_api_versions(await worlds["client"].network.connect("broker", PORT, lambda _: Knocking(answered["client"], lambda: 0)))
        await asyncio.sleep(0.1)
        assert len(answered["client"]) == 6

    run(main())


def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    async def main() -> None:
        simulation = Simulation(1)
        broker = SimBroker(simulation, {"connections.max.idle.ms": "5000"})
        await broker.start()
        world = simulation.machine("client").boot()
        handlers = [Knocking([], world.clock.monotonic_ms) for _ in range(2)]
        used, _idle = [await world.network.connect("broker", PORT, lambda _, handler=handler: handler) for handler in handlers]  # type: ignore[misc]
        for _ in range(10):
            ask_api_versions(used)
            await asyncio.sleep(1)
        assert [handler.is_closed for handler in handlers] == [False, True]

    run(main())


class HungDisk:
    """fdatasync waits until it is let go."""

    def __init__(self) -> None:
        self.is_let_go = threading.Event()
        self.waiting = threading.Semaphore(0)

    def sync(self, _descriptor: int) -> None:
        self.waiting.release()
        assert self.is_let_go.wait(WAIT_SECONDS_MAX)


def hung_disk(monkeypatch: pytest.MonkeyPatch, stack: contextlib.ExitStack) -> HungDisk:
    """Every fsync waits from now on, and is let go at the end of the stack at the latest."""
    disk = HungDisk()
    monkeypatch.setattr(os, "fdatasync", disk.sync)
    stack.callback(disk.is_let_go.set)
    return disk


def create_synced_topics(broker: BrokerThread, *names: str) -> None:
    with Admin(broker.bootstrap) as admin:
        synced = [NewTopic(name, 1, configs={"flush.messages": "1"}) for name in names]
        assert set(admin.create_topics([*synced, NewTopic("plain", 1)]).values()) == {None}


@pytest.mark.usefixtures("default_paths")
def test_an_io_thread_that_waits_for_the_disk_holds_up_those_alone_that_need_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(properties(tmp_path, **{"num.io.threads": "1"})))
        create_synced_topics(broker, "synced")
        disk = hung_disk(monkeypatch, stack)
        waiting, other = (stack.enter_context(RawClient(port_of(broker))) for _ in range(2))
        waiting.send(produce_request("synced", batch_of(b"x")), 9)
        assert disk.waiting.acquire(timeout=WAIT_SECONDS_MAX)
        for number in range(20):
            answer = other.ask(produce_request("plain", batch_of(b"%d" % number)), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert hears_nothing(broker, waiting)
        disk.is_let_go.set()
        assert waiting.receive().responses[0].partition_responses[0].error_code == 0


def test_above_queued_max_requests_no_socket_is_read_and_no_connection_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(properties(tmp_path, **{"queued.max.requests": "2"})))
        create_synced_topics(broker, "a", "b")
        disk = hung_disk(monkeypatch, stack)
        first, second, third = (stack.enter_context(RawClient(port_of(broker))) for _ in range(3))
        assert is_served(third)
        first.send(produce_request("a", batch_of(b"x")), 9)
        assert disk.waiting.acquire(timeout=WAIT_SECONDS_MAX)
        assert is_served(third), "one request is below the limit"
        second.send(produce_request("b", batch_of(b"x")), 9)
        assert disk.waiting.acquire(timeout=WAIT_SECONDS_MAX)
        third.send(ApiVersionsRequest(), 0)
        late = stack.enter_context(RawClient(port_of(broker)))
        late.send(ApiVersionsRequest(), 0)
        assert hears_nothing(broker, third)
        assert hears_nothing(broker, late)
        disk.is_let_go.set()
        for client in (first, second):
            assert client.receive().responses[0].partition_responses[0].error_code == 0
        assert third.receive().error_code == 0
        assert late.receive().error_code == 0


def test_above_queued_max_request_bytes_no_socket_is_read_until_half_of_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(properties(tmp_path, **{"queued.max.request.bytes": "5000"})))
        create_synced_topics(broker, "a", "b")
        disk = hung_disk(monkeypatch, stack)
        first, second, third = (stack.enter_context(RawClient(port_of(broker))) for _ in range(3))
        first.send(produce_request("a", batch_of(b"x" * 4000)), 9)
        assert disk.waiting.acquire(timeout=WAIT_SECONDS_MAX)
        assert is_served(third), "4,000 bytes are below the limit"
        second.send(produce_request("b", batch_of(b"x" * 4000)), 9)
        assert disk.waiting.acquire(timeout=WAIT_SECONDS_MAX)
        third.send(ApiVersionsRequest(), 0)
        assert hears_nothing(broker, third)
        disk.is_let_go.set()
        for client in (first, second):
            assert client.receive().responses[0].partition_responses[0].error_code == 0
        assert third.receive().error_code == 0
        assert is_served(third)


def test_members_that_wait_for_their_group_and_fetches_that_wait_for_records_are_no_work(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        limits = {"queued.max.requests": "1", "group.initial.rebalance.delay.ms": "600000"}
        broker = stack.enter_context(BrokerThread(properties(tmp_path, **limits)))
        create_synced_topics(broker)
        member = stack.enter_context(RawClient(port_of(broker)))
        assert member.ask(FindCoordinatorRequest("g", 0), 3).error_code == 0
        join = JoinGroupRequest("g", 30_000, 600_000, "", None, "consumer", [JoinGroupRequestProtocol("range", b"")])
        member.send(join, 3)
        waiting = [stack.enter_context(RawClient(port_of(broker))) for _ in range(4)]
        for client in waiting:
            client.send(fetch_that_waits(), 11)
        with RawClient(port_of(broker)) as other:
            assert hears_nothing(broker, member)
            assert is_served(other)
            other.ask(produce_request("plain", batch_of(b"x")), 9)
        for client in waiting:
            assert client.receive().error_code == 0


def fetch_that_waits() -> FetchRequest:
    partition = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=30_000, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic("plain", partitions=[partition])])


def test_a_fetch_whose_client_has_left_leaves_no_state(tmp_path: Path) -> None:
    """However far its deadline: clients choose it."""
    with BrokerThread(properties(tmp_path)) as thread:
        create_synced_topics(thread)
        broker = thread._broker
        assert broker is not None
        for _ in range(1500):
            with RawClient(port_of(thread)) as client:
                client.send(fetch_that_waits(), 11)
        with RawClient(port_of(thread)) as last:
            assert is_served(last), "so all before it were let in"
            while sum(broker.gate.connection_counts.values()) > 1:
                assert is_served(last)
        assert not broker.partitions.by_name["plain"][0].waiters
        assert len(broker.parts.parking._purgatory) <= 1100


def test_a_limit_that_is_changed_while_the_broker_runs_holds_from_then_on(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(properties(tmp_path, **{"max.connections": "2"})))
        first, second = (stack.enter_context(RawClient(port_of(broker))) for _ in range(2))
        assert is_served(first)
        assert is_served(second)
        late = stack.enter_context(RawClient(port_of(broker)))
        late.send(ApiVersionsRequest(), 0)
        assert hears_nothing(broker, late)
        change = AlterConfigsResource(RESOURCE_BROKER, "1", [AlterableConfig("max.connections", 0, "3")])
        assert first.ask(IncrementalAlterConfigsRequest([change]), 1).responses[0].error_code == 0
        assert late.receive().error_code == 0


@pytest.mark.usefixtures("default_paths")
def test_a_request_after_records_that_a_thread_writes_waits_until_they_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And other connections do not wait for either."""
    large = produce_request("plain", batch_of(bytes(600_000)), acks=0)
    asked = ListOffsetsRequest(-1, topics=[ListOffsetsTopic("plain", [ListOffsetsPartition(0, timestamp=-1)])])
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(BrokerThread(properties(tmp_path)))
        create_synced_topics(broker)
        first, other = (stack.enter_context(RawClient(port_of(broker))) for _ in range(2))
        is_let_go, real_write = threading.Event(), os.pwritev

        def write(descriptor: int, buffers: Sequence[bytes], offset: int) -> int:
            if sum(map(len, buffers)) >= PIECE_BYTES:
                assert is_let_go.wait(WAIT_SECONDS_MAX)
            return real_write(descriptor, buffers, offset)

        monkeypatch.setattr(os, "pwritev", write)
        stack.callback(is_let_go.set)
        first.send(large, 9, is_answered=False)
        first.send(asked, 1)
        first.send(ApiVersionsRequest(), 0)
        assert hears_nothing(broker, first)
        assert is_served(other)
        is_let_go.set()
        assert first.receive().topics[0].partitions[0].offset == 1
        assert first.receive().error_code == 0
        assert is_served(first)


def test_what_an_ended_connection_has_received_of_a_frame_is_free_at_once(tmp_path: Path) -> None:
    """Whoever ends it, and without a collection of garbage: a connection is in a cycle with those that serve it."""
    size, count = 4 << 20, 10
    with BrokerThread(properties(tmp_path)) as broker, RawClient(port_of(broker)) as canary:
        gc.disable()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(count):
                with RawClient(port_of(broker)) as client:
                    client.socket.sendall((2 * size).to_bytes(4, "big") + bytes(size))
                    client.socket.shutdown(socket.SHUT_WR)
                    assert client.socket.recv(1) == b"", "all of it was read, and the connection ended"
            assert is_served(canary)
            assert tracemalloc.get_traced_memory()[0] - before < size
        finally:
            tracemalloc.stop()
            gc.enable()
