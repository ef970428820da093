"""TLS on real sockets: what was sent arrives as it was, and a handshake fails with its reason."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.certificates import Authority, Certificate

from ottla.ports import Connection, World
from ottla.runtime import tls_connection
from ottla.runtime.tls_connection import HANDSHAKE_BYTES_MAX
from ottla.runtime.world import real_world
from ottla.tls import ClientAuth, TlsClient, TlsEndedError, TlsError, TlsKeys, TlsPeer, TlsServer
from ottla.types import Secret

AUTHORITY: Authority
WAIT_SECONDS_MAX = 30


@pytest.fixture(scope="module", autouse=True)
def authority(tmp_path_factory: pytest.TempPathFactory) -> None:
    global AUTHORITY, SERVER, CLIENT  # noqa: PLW0603
    AUTHORITY = Authority(tmp_path_factory.mktemp("certificates"))
    SERVER, CLIENT = keys_of(AUTHORITY.issue("broker")), keys_of(AUTHORITY.issue("client"))


def keys_of(certificate: Certificate) -> TlsKeys:
    return TlsKeys(certificate.chain, Secret(certificate.key))


SERVER: TlsKeys
CLIENT: TlsKeys


class End:
    """Collects what comes; an echo sends it back."""

    def __init__(self, connection: Connection, *, is_echo: bool = False, keeps: bool = False) -> None:
        self.connection = connection
        self.received = bytearray()
        self.kept: list[memoryview] = []
        self._is_echo = is_echo
        self._keeps = keeps
        self.closed: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()

    def on_data(self, data: memoryview) -> bool:
        self.changed.set()
        if self._keeps:
            self.kept.append(data)
            return True
        self.received += data
        if self._is_echo:
            self.connection.send([bytes(data)])
        return False

    def room(self) -> memoryview | None:
        return None

    def on_drain(self) -> None:
        pass

    def on_close(self, error: Exception | None) -> None:
        self.changed.set()
        self.closed.set_result(error)

    async def has(self, size: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while len(self.received) + sum(map(len, self.kept)) < size:
                self.changed.clear()
                await self.changed.wait()


class Pair:
    """A listener that speaks TLS, and what came to it."""

    def __init__(self, **options: Any) -> None:
        self.world: World = real_world()
        self.ends: list[End] = []
        self.peers: list[TlsPeer | TlsError] = []
        self._options = options

    async def listen(self, tls: TlsServer | None) -> tuple[str, int]:
        def accept(connection: Connection) -> End:
            self.ends.append(End(connection, **self._options))
            return self.ends[-1]

        listener = await self.world.network.listen("127.0.0.1", 0, accept, tls=tls, on_tls=lambda _, peer: self.peers.append(peer))
        return listener.address

    async def connect(self, address: tuple[str, int], tls: TlsClient | None, begin: bytes = b"") -> End:
        made: list[End] = []

        def make(connection: Connection) -> End:
            made.append(End(connection))
            if begin:
                connection.send([begin])
            return made[0]

        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self.world.network.connect(*address, make, tls=tls)
        return made[0]


def run(body: Callable[[], Any]) -> None:
    asyncio.run(body())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_what_is_sent_arrives_whatever_its_size(version: str) -> None:
    async def body() -> None:
        pair = Pair(is_echo=True)
        address = await pair.listen(TlsServer(SERVER, AUTHORITY.pem, ClientAuth.REQUESTED))
        end = await pair.connect(address, TlsClient(AUTHORITY.pem, CLIENT, versions=(version,)), begin=b"first")
        rng, expected = random.Random(1), bytearray(b"first")
        for _ in range(40):
            pieces = [rng.randbytes(rng.choice([0, 1, 100, 16_384, 65_536, 65_537, 300_000])) for _ in range(rng.randrange(5))]
            end.connection.send(pieces)
            expected += b"".join(pieces)
        await end.has(len(expected))
        assert end.received == expected
        [peer] = pair.peers
        assert isinstance(peer, TlsPeer)
        assert (peer.subject, peer.version) == ("CN=client,OU=tests,O=client", version)
        end.connection.close()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert await pair.ends[0].closed is None
            assert await end.closed is None

    run(body)


def test_files_are_sent_as_they_are(tmp_path: Path) -> None:
    async def body() -> None:
        pair = Pair()
        data = random.Random(2).randbytes(3_000_001)
        file = await pair.world.disk.open(str(tmp_path / "data"), create=True)
        await file.append([data])
        address = await pair.listen(TlsServer(SERVER))
        end = await pair.connect(address, TlsClient(AUTHORITY.pem))
        server = pair.ends[0].connection
        server.send([b"head", file.region(0, 3_000_001), b"tail", file.region(17, 100), file.region(1_000_000, 70_000)])
        await end.has(3_000_001 + 8 + 100 + 70_000)
        assert end.received == b"head" + data + b"tail" + data[17:117] + data[1_000_000:1_070_000]
        assert server.unsent_bytes == 0
        await file.close()

    run(body)


def test_a_reader_that_pauses_gets_everything_later() -> None:
    """Most of it is inside OpenSSL then, and makes no event of its own."""

    async def body() -> None:
        pair = Pair()
        address = await pair.listen(TlsServer(SERVER))
        end = await pair.connect(address, TlsClient(AUTHORITY.pem))
        end.connection.pause_reading()
        for number in range(8):
            pair.ends[0].connection.send([bytes([number]) * 200_000])
        await asyncio.sleep(0)
        assert not end.received
        end.connection.resume_reading()
        await end.has(1_600_000)
        assert end.received == b"".join(bytes([number]) * 200_000 for number in range(8))

    run(body)


def test_data_received_during_a_pause_is_delivered_without_a_further_packet() -> None:
    async def body() -> None:
        pair = Pair()
        address = await pair.listen(TlsServer(SERVER))
        end = await pair.connect(address, TlsClient(AUTHORITY.pem))
        end.connection.send([b"x"])
        await pair.ends[0].has(1)
        server = pair.ends[0]
        take = server.on_data

        def take_and_pause(data: memoryview) -> bool:
            server.connection.pause_reading()
            return take(data)

        server.on_data = take_and_pause  # type: ignore[method-assign]
        server.room = lambda: memoryview(bytearray(50_000))  # type: ignore[method-assign]  # less than one read of the socket gives
        size = 4 * 256 * 1024
        end.connection.send([bytes(size)])
        received = -1
        while len(server.received) < 1 + size:
            await server.has(max(received, 0) + 1)
            assert len(server.received) > received
            received = len(server.received)
            server.changed.clear()
            server.connection.resume_reading()
            if len(server.received) < 1 + size:
                async with asyncio.timeout(WAIT_SECONDS_MAX):
                    await server.changed.wait()

    run(body)


def test_what_one_read_of_the_socket_gave_goes_to_the_handler_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_connection, "PIECE_BYTES", 1_000)  # forty records then, and more than forty pieces

    async def body() -> None:
        pair = Pair(keeps=True)
        address = await pair.listen(TlsServer(SERVER))
        end = await pair.connect(address, TlsClient(AUTHORITY.pem), begin=b"x")
        await pair.ends[0].has(1)
        end.connection.send([bytes(40_000)])
        assert not end.connection.unsent_bytes, "the socket has all of it, before the other end's turn"
        await pair.ends[0].has(40_001)
        assert [len(data) for data in pair.ends[0].kept] == [1, 40_000]

    run(body)


def test_memory_that_is_kept_is_not_written_to_again() -> None:
    async def body() -> None:
        pair = Pair(keeps=True)
        address = await pair.listen(TlsServer(SERVER))
        end = await pair.connect(address, TlsClient(AUTHORITY.pem))
        sent = b""
        for number in range(30):
            end.connection.send([piece := bytes([number]) * 50_000])
            sent += piece
            await pair.ends[0].has(len(sent))
        assert b"".join(pair.ends[0].kept) == sent

    run(body)


@pytest.mark.parametrize(
    ("server", "client", "says"),
    [
        ({}, {"trusted": "other"}, "certificate is refused"),
        ({}, {"versions": ("TLSv1.2",)}, None),
        ({"versions": ("TLSv1.3",)}, {"versions": ("TLSv1.2",)}, "handshake has failed"),
        ({"keys": "elsewhere"}, {}, "certificate is refused"),
        ({"keys": "elsewhere"}, {"checks_host": False}, None),
        ({"client_auth": ClientAuth.REQUIRED, "trusted": "own"}, {"keys": "client"}, None),
        ({"client_auth": ClientAuth.REQUIRED, "trusted": "own", "versions": ("TLSv1.2",)}, {}, "handshake"),
        ({"client_auth": ClientAuth.REQUIRED, "trusted": "other", "versions": ("TLSv1.2",)}, {"keys": "client"}, "handshake"),
    ],
    ids=["other authority", "1.2", "no version", "other host", "host unchecked", "certificate", "none", "not trusted"],
)
def test_a_handshake_is_done_or_says_why_not(tmp_path: Path, server: dict[str, Any], client: dict[str, Any], says: str | None) -> None:
    async def body() -> None:
        named = {
            "other": Authority(tmp_path, "other").pem,
            "own": AUTHORITY.pem,
            "client": CLIENT,
            "elsewhere": keys_of(AUTHORITY.issue("elsewhere", ["elsewhere.example"])),
        }

        def values(given: dict[str, Any]) -> dict[str, Any]:
            return {name: named.get(value, value) if isinstance(value, str) else value for name, value in given.items()}

        pair = Pair(is_echo=True)
        address = await pair.listen(replace(TlsServer(SERVER), **values(server)))
        tls = replace(TlsClient(AUTHORITY.pem), **values(client))
        if says is None:
            end = await pair.connect(address, tls, begin=b"x")
            await end.has(1)
            return
        with pytest.raises(TlsError, match=says):
            await pair.connect(address, tls, begin=b"x")
        assert all(isinstance(peer, TlsError) for peer in pair.peers)

    run(body)


def test_a_name_that_ends_in_a_dot_is_the_name_of_the_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a name is written that no search list shall complete; Java's clients take it so."""
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **named: look_up("localhost", *rest, **named))

    async def body() -> None:
        pair = Pair(is_echo=True)
        _, port = await pair.listen(TlsServer(SERVER))
        await (await pair.connect(("localhost.", port), TlsClient(AUTHORITY.pem), begin=b"x")).has(1)
        with pytest.raises(TlsError, match="certificate is refused"):
            await pair.connect(("other.", port), TlsClient(AUTHORITY.pem))

    run(body)


def test_a_client_without_the_certificate_that_is_required_gets_nothing() -> None:
    """In TLS 1.3 it learns of it after its own handshake is done."""

    async def body() -> None:
        pair = Pair(is_echo=True)
        address = await pair.listen(TlsServer(SERVER, AUTHORITY.pem, ClientAuth.REQUIRED))
        end = await pair.connect(address, TlsClient(AUTHORITY.pem), begin=b"x")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            error = await end.closed
        assert isinstance(error, TlsError)
        assert not end.received
        assert not pair.ends[0].received
        [peer] = pair.peers
        assert isinstance(peer, TlsError)

    run(body)


def test_a_plain_port_and_a_closing_port_have_different_errors() -> None:
    async def body() -> None:
        pair, loop = Pair(), asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer(data: bytes) -> None:
                with listener.accept()[0] as accepted:
                    accepted.recv(10_000)
                    accepted.sendall(data)

            for data, error, says in (
                (b"HTTP/1.1 400 Bad Request\r\n\r\n", TlsError, "does not speak TLS"),
                (b"", TlsEndedError, "the connection ended"),
            ):
                answering = loop.run_in_executor(None, answer, data)
                with pytest.raises(error, match=says):
                    await pair.connect(listener.getsockname()[:2], TlsClient(AUTHORITY.pem))
                await answering

    run(body)


LARGE_HELLO = b"\x01\x01\x86\xa0\x03\x03" + bytes(HANDSHAKE_BYTES_MAX + 5_000)
"""The beginning of a hello of 100,000 bytes, which OpenSSL alone would wait for."""


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak TLS"),
        (b"\0\0\0\x10" + bytes(16), "does not speak TLS"),
        (b"\x16\x03\x01\xff\xff" + bytes(200_000), ""),
        (b"".join(b"\x16\x03\x01\x3e\x80" + LARGE_HELLO[at : at + 16_000] for at in range(0, 32_001, 16_000)), "of more than 32768 bytes"),
    ],
    ids=["HTTP", "a request", "a long record", "a long hello"],
)
def test_what_is_no_handshake_ends_the_connection(data: bytes, says: str) -> None:
    async def body() -> None:
        pair = Pair()
        address = await pair.listen(TlsServer(SERVER))

        def send() -> bytes:
            with socket.create_connection(address) as raw:
                try:
                    raw.sendall(data)
                    raw.settimeout(WAIT_SECONDS_MAX)
                    while piece := raw.recv(1000):
                        assert len(piece) < 1000
                except ConnectionError:
                    pass
            return b""

        await asyncio.get_running_loop().run_in_executor(None, send)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await pair.ends[0].closed
        assert isinstance(pair.peers[0], TlsError)
        assert says in str(pair.peers[0])
        assert not pair.ends[0].received

    run(body)


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_stream_that_is_cut_gives_what_was_whole(is_orderly: bool) -> None:
    async def body() -> None:
        pair = Pair()
        address = await pair.listen(TlsServer(SERVER))
        context = ssl.create_default_context(cadata=AUTHORITY.pem)

        def send() -> None:
            with socket.create_connection(address) as raw, context.wrap_socket(raw, server_hostname="localhost") as sock:
                sock.sendall(b"whole")
                if is_orderly:
                    sock.unwrap()

        sending = asyncio.get_running_loop().run_in_executor(None, send)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await sending
            await pair.ends[0].closed
        assert pair.ends[0].received == b"whole"

    run(body)


@pytest.mark.parametrize(
    ("keys", "more", "says"),
    [
        (lambda: TlsKeys("", Secret("")), {}, "cannot be read"),
        (lambda: TlsKeys(SERVER.chain, CLIENT.key), {}, "not that of the certificate"),
        (lambda: SERVER, {"trusted": "nonsense"}, "not a list of certificates"),
        (lambda: SERVER, {"versions": ("SSLv3",)}, "SSLv3"),
        (lambda: SERVER, {"ciphers": ("NONE-OF-THEM",)}, "cipher suites"),
    ],
)
def test_values_that_cannot_be_used_are_refused_before_anything_listens(keys: Callable[[], TlsKeys], more: Any, says: str) -> None:
    async def body() -> None:
        with pytest.raises(ValueError, match=says) as caught:
            real_world().network.check_tls(TlsServer(keys(), **more))
        assert "PRIVATE KEY" not in str(caught.value)

    run(body)
