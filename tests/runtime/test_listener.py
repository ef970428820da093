"""A real listener: who may wait in its backlog, and what it does when there are no descriptors left."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
import struct
from pathlib import Path

import pytest
from tests.foreign_clients.wire import RawClient

from ottla.config import BrokerConfig
from ottla.messages.metadata import MetadataRequest
from ottla.ports import BACKLOG, Connection, ConnectionHandler
from ottla.runtime import sockets
from ottla.runtime.connection import RealConnection
from ottla.runtime.serve import BrokerThread
from ottla.runtime.sockets import RealListener, RealNetwork
from ottla.runtime.warming import Warmer

WAIT_SECONDS_MAX = 30


class Mute:
    """Takes a connection, and records when."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[Connection] = asyncio.Queue()

    def accept(self, connection: Connection) -> ConnectionHandler:
        self.came.put_nowait(connection)
        return self

    async def next(self) -> Connection:
        return await asyncio.wait_for(self.came.get(), WAIT_SECONDS_MAX)

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        return False

    def on_drain(self) -> None: ...
    def on_close(self, error: Exception | None) -> None: ...


def backlog_of(listener: RealListener) -> int:
    """What the kernel was given: ``tcpi_sacked`` of a listening socket."""
    info = listener._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
    found: int = struct.unpack_from("=I", info, 28)[0]
    return found


@pytest.mark.parametrize(("given", "expected"), [({}, BACKLOG), ({"socket.listen.backlog.size": "7"}, 7)])
def test_the_backlog_is_what_the_configuration_says(tmp_path: Path, given: dict[str, str], expected: int) -> None:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data"), **given}
    assert BrokerConfig(given)["socket.listen.backlog.size"] == (7 if given else 50), "as Kafka reports it"
    with BrokerThread(properties) as broker:
        assert broker._broker is not None
        listener = broker._broker.gate._listeners["PLAINTEXT"]
        assert isinstance(listener, RealListener)
        assert backlog_of(listener) == min(expected, int(Path("/proc/sys/net/core/somaxconn").read_text()))


def test_new_connections_wait_for_descriptors_and_for_a_listener_that_was_paused_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "OUT_OF_DESCRIPTORS_SECONDS", 0)

    async def main() -> None:
        network, mute = RealNetwork(Warmer(1)), Mute()
        listener = await network.listen("127.0.0.1", 0, mute.accept)
        first = socket.create_connection(listener.address)
        await mute.next()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        newcomer = socket.socket()
        newcomer.setblocking(False)
        assert newcomer.connect_ex(listener.address) in (0, errno.EINPROGRESS)
        resource.setrlimit(resource.RLIMIT_NOFILE, (newcomer.fileno() + 1, limits[1]))  # all below are taken, or will be
        fillers = []
        with contextlib.suppress(OSError):
            while True:
                fillers.append(socket.socket())
        try:
            listener._on_readable()
            assert listener._is_starved, "it has seen that there is none"
            assert mute.came.empty()
            listener.pause()
        finally:
            for filler in fillers:
                filler.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        while listener._is_starved:  # its timer
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert mute.came.empty(), "who is paused stays paused"
        listener.resume()
        assert (await mute.next()).peer[1] == newcomer.getsockname()[1]
        await listener.close()
        for sock in (first, newcomer):
            sock.close()
        for connection in list(network.connections):
            connection.abort()
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS_MAX))


def test_a_peer_that_is_probed_notices_nothing_and_its_connection_goes_on() -> None:
    """That a system which has forgotten the connection ends it, ``tests/torture/test_rebooted_machines.py`` shows."""

    async def main() -> None:
        network, mute = RealNetwork(Warmer(1)), Mute()
        listener = await network.listen("127.0.0.1", 0, mute.accept)
        client = socket.create_connection(listener.address)
        connection = await mute.next()
        assert isinstance(connection, RealConnection)
        for _ in range(2):
            connection.probe()
        assert connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 1
        connection.send([b"data"])
        assert client.recv(10) == b"data"
        await listener.close()
        connection.abort()
        assert client.recv(1) == b""
        connection.probe()
        client.close()

    asyncio.run(asyncio.wait_for(main(), WAIT_SECONDS_MAX))


@pytest.mark.parametrize(("given", "expected"), [({}, 320 << 10), ({"socket_send_buffer_bytes": "65536"}, 65536)])
def test_the_send_buffer_of_a_clients_socket_is_what_was_asked_for(tmp_path: Path, given: dict[str, str], expected: int) -> None:
    """Linux doubles what it is asked for, and allows net.core.wmem_max at most."""
    allowed = int(Path("/proc/sys/net/core/wmem_max").read_text())
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    seen: list[int] = []
    start = RealConnection.start

    def noting(self: RealConnection, handler: ConnectionHandler) -> None:
        seen.append(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
        start(self, handler)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RealConnection, "start", noting)
        properties |= {key.replace("_", "."): value for key, value in given.items()}
        with BrokerThread(properties) as broker, RawClient(broker.addresses["PLAINTEXT"][1]) as client:
            client.ask(MetadataRequest([]), 1)
    assert seen == [2 * min(expected, allowed)]


@pytest.mark.parametrize("size", [-1, 8192])
def test_a_connection_that_is_made_has_the_buffer_that_is_asked_for(size: int) -> None:
    """As ``replica.socket.receive.buffer.bytes``: Linux doubles it, for what it keeps of each packet."""

    async def body() -> int:
        network, mute = RealNetwork(Warmer(1)), Mute()
        listener = await network.listen("127.0.0.1", 0, mute.accept)
        connection = await network.connect(*listener.address, mute.accept, receive_buffer_bytes=size)
        await mute.next()
        found = connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        connection.abort()
        await listener.close()
        return found

    assert (asyncio.run(body()) == 2 * size) == (size > 0)


def test_a_name_that_no_host_can_have_is_a_host_that_there_is_not() -> None:
    """A node may advertise one: who connects to it must not fail in another way than with any other."""

    async def body() -> None:
        network = RealNetwork(Warmer(1))
        for host in ("a" * 70, "a..b", ""):
            with pytest.raises(OSError):
                await network.connect(host, 9, lambda connection: Mute())

    asyncio.run(body())
