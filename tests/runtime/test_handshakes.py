"""A server's steps of a TLS handshake run beside the loop, and what happens to their connection meanwhile."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.certificates import Authority
from tests.runtime.test_tls import End, Pair, keys_of, run

from ottla.runtime import handshakes
from ottla.runtime.handshakes import Handshakes
from ottla.runtime.tls_connection import TlsConnection
from ottla.tls import TlsClient, TlsEndedError, TlsError, TlsPeer, TlsServer

WAIT_SECONDS_MAX = 20


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> TlsServer:
    return TlsServer(keys_of(authority.issue("broker")))


class Gate:
    """Each step is done, and held before its result is handed over, until the gate is opened."""

    def __init__(self) -> None:
        self._step = handshakes.try_step
        self._is_open, self._has_step = threading.Event(), threading.Event()
        self.problems: list[Exception | None] = []

    def step(self, side: ssl.SSLObject) -> Exception | None:
        self.problems.append(self._step(side))
        self._has_step.set()
        self._is_open.wait(WAIT_SECONDS_MAX)
        return self.problems[-1]

    async def has_step(self) -> None:
        assert await asyncio.get_running_loop().run_in_executor(None, self._has_step.wait, WAIT_SECONDS_MAX), "a step came to the thread"

    def open(self) -> None:
        self._is_open.set()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(handshakes, "try_step", made.step)
    yield made
    made.open()


class Stranger:
    """A client without a loop: it has sent the first words of a handshake."""

    def __init__(self, authority: Authority, address: tuple[str, int]) -> None:
        self._incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._side = ssl.create_default_context(cadata=authority.pem).wrap_bio(self._incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            self._side.do_handshake()
        self.socket = socket.create_connection(address)
        self.socket.settimeout(WAIT_SECONDS_MAX)
        self.socket.sendall(outgoing.read())


@pytest.fixture
def strangers() -> Iterator[list[Stranger]]:
    made: list[Stranger] = []
    yield made
    for stranger in made:
        stranger.socket.close()


async def closed(end: End) -> Exception | None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await end.closed


def test_others_are_served_while_a_server_signs(authority: Authority, server: TlsServer, gate: Gate) -> None:
    async def body() -> None:
        pair = Pair(is_echo=True)
        secret, plain = await pair.listen(server), await pair.listen(None)
        connecting = asyncio.ensure_future(pair.connect(secret, TlsClient(authority.pem), begin=b"secret"))
        await gate.has_step()
        other = await pair.connect(plain, None, begin=b"plain")
        await other.has(5)
        assert not connecting.done()
        gate.open()
        end = await connecting
        await end.has(6)
        assert (bytes(other.received), bytes(end.received)) == (b"plain", b"secret")

    run(body)


@pytest.mark.parametrize("ends", [lambda end: end.connection.close(), lambda end: end.connection.abort()], ids=["close", "abort"])
def test_a_connection_that_is_closed_during_a_step_says_nothing_further(
    authority: Authority, server: TlsServer, gate: Gate, strangers: list[Stranger], ends: Callable[[End], None]
) -> None:
    """OpenSSL's object and its memory are the thread's then: no goodbye is made with them."""
    unexpected: list[dict[str, Any]] = []

    async def body() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unexpected.append(context))
        pair = Pair()
        strangers.append(Stranger(authority, await pair.listen(server)))
        await gate.has_step()
        [end] = pair.ends
        ends(end)
        assert await closed(end) is None
        gate.open()
        assert await loop.run_in_executor(None, strangers[0].socket.recv, 1) == b""
        await pair.connect(await pair.listen(server), TlsClient(authority.pem), begin=b"x")
        await pair.ends[1].has(1)
        assert [type(peer) for peer in pair.peers] == [TlsPeer], "the later one's, after whose step the first one's is over"

    run(body)
    assert not unexpected


def test_a_step_is_left_out_whose_connection_ended_while_it_waited(
    authority: Authority, server: TlsServer, gate: Gate, strangers: list[Stranger]
) -> None:
    """Those who come after connections that came too fast would wait until each of these is signed for."""

    async def body() -> None:
        pair = Pair()
        address = await pair.listen(server)
        strangers.append(Stranger(authority, address))
        await gate.has_step()
        strangers.append(Stranger(authority, address))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(pair.ends) < 2 or not pair.ends[1].connection._is_shaking:  # type: ignore[attr-defined]
                await asyncio.sleep(0)
        pair.ends[1].connection.abort()
        gate.open()
        end = await pair.connect(address, TlsClient(authority.pem), begin=b"x")
        await pair.ends[2].has(1)
        assert not end.connection.is_closed
        assert len(gate.problems) == 3, "one of the first, none of the second, two of the third"

    run(body)


@pytest.mark.parametrize("ends", [lambda end: end.connection.close(), lambda end: end.connection.abort()], ids=["close", "abort"])
@pytest.mark.parametrize("is_client", [False, True], ids=["server", "client"])
def test_what_openssl_has_of_a_connection_is_free_when_that_ends(
    authority: Authority, server: TlsServer, ends: Callable[[End], None], is_client: bool
) -> None:
    """Whoever ends it, and without a collection of garbage: a connection is in a cycle with those that serve it."""

    async def body() -> None:
        pair = Pair()
        mine = await pair.connect(await pair.listen(server), TlsClient(authority.pem), begin=b"x")
        await pair.ends[0].has(1)
        sides = [mine, pair.ends[0]]
        held = [weakref.ref(side.connection._ssl) for side in sides]  # type: ignore[attr-defined]
        gc.disable()
        try:
            ends(sides[0 if is_client else 1])
            await asyncio.gather(*map(closed, sides))
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while any(each() is not None for each in held):  # the thread may be about to leave its last step
                    await asyncio.sleep(0.001)
        finally:
            gc.enable()

    run(body)


def test_a_peer_that_goes_during_a_step_is_missed_after_it(
    authority: Authority, server: TlsServer, gate: Gate, strangers: list[Stranger]
) -> None:
    async def body() -> None:
        pair = Pair()
        strangers.append(Stranger(authority, await pair.listen(server)))
        await gate.has_step()
        strangers[0].socket.close()
        gate.open()
        await closed(pair.ends[0])
        [peer] = pair.peers
        assert isinstance(peer, TlsEndedError)

    run(body)


def test_a_peer_that_speaks_on_during_a_step_is_heard_after_it_and_does_not_keep_the_loop_busy(
    authority: Authority, server: TlsServer, gate: Gate, strangers: list[Stranger], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    on_readable = TlsConnection._on_readable

    def counted(connection: TlsConnection) -> None:
        calls.append(connection._is_shaking)
        on_readable(connection)

    monkeypatch.setattr(TlsConnection, "_on_readable", counted)

    async def body() -> None:
        pair = Pair()
        strangers.append(Stranger(authority, await pair.listen(server)))
        await gate.has_step()
        strangers[0].socket.sendall(b"these are no words of a handshake")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True not in calls:
                await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert calls == [False, True]
        gate.open()
        await closed(pair.ends[0])
        [peer] = pair.peers
        assert isinstance(peer, TlsError)
        assert not isinstance(peer, TlsEndedError)

    run(body)


def test_the_thread_goes_on_after_a_loop_that_ended_and_after_whatever_a_step_raises(gate: Gate) -> None:
    shared, raised = Handshakes(), MemoryError()

    def fails() -> None:
        raise raised

    side: Any = SimpleNamespace(do_handshake=fails)

    async def leaves() -> None:
        shared.step(side, lambda: False, lambda problem: None)
        await gate.has_step()

    async def stays() -> Exception | None:
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        shared.step(side, lambda: False, done.set_result)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await done

    asyncio.run(leaves())
    gate.open()
    assert asyncio.run(stays()) is raised
