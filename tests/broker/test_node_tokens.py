"""Nodes that make themselves known to others by tokens: where these come from, and what it means where there is none."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ottla.broker.peers.introduction import Introduced, Introduction, IntroductionError
from ottla.broker.requests.node_tokens import CLIENT_ID, CLIENT_SECRET, SCOPE, URL, read_token_source
from ottla.config import BrokerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Connection, ConnectionHandler, Download
from ottla.runtime.world import real_world
from ottla.security.client_exchange import OAuthCredentials

HTTPS = "https://issuer.example/token"
SECRET = {CLIENT_ID: "node-1", CLIENT_SECRET: "marked-secret"}


def source_of(directory: Path, given: Mapping[str, str], world: Any = None) -> Any:
    return asyncio.run(read_token_source(world or real_world(), BrokerConfig({"log.dirs": str(directory), **given}), "INTERNAL"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, f"{URL} of listener INTERNAL is not set"),
        ({URL: HTTPS}, f"needs {CLIENT_ID} and {CLIENT_SECRET}"),
        ({URL: HTTPS, CLIENT_ID: "node-1"}, f"needs {CLIENT_ID} and {CLIENT_SECRET}"),
        ({URL: "http://issuer.example", **SECRET}, "https://HOST/PATH is expected: a secret is sent there, or file:/PATH"),
        ({URL: "file:/nowhere/token"}, "/nowhere/token cannot be read"),
        ({URL: "file:/nowhere/token", **SECRET}, "is a file, which has the token itself"),
        ({URL: "file:/nowhere/token", SCOPE: "nodes"}, "is a file, which has the token itself"),
    ],
)
def test_a_source_that_would_give_no_token_is_refused_by_its_key(tmp_path: Path, given: dict[str, str], says: str) -> None:
    with pytest.raises(KafkaError) as caught:
        source_of(tmp_path, given)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert says in caught.value.message
    assert "marked-secret" not in caught.value.message


def test_a_file_is_read_for_each_token_and_a_listeners_own_keys_come_first(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    newest = source_of(tmp_path, {URL: HTTPS, f"listener.name.internal.oauthbearer.{URL}": f"file:{file}"})
    assert asyncio.run(newest()) == "first"
    file.write_text("second")
    assert asyncio.run(newest()) == "second"


def test_an_issuer_is_asked_by_id_and_secret_until_its_token_is_old(tmp_path: Path) -> None:
    asked: list[Download] = []

    async def fetch(wanted: Download) -> bytes:
        asked.append(wanted)
        return b'{"access_token": "t%d", "expires_in": 3600}' % len(asked)

    world = replace(real_world(), fetch=fetch)
    own = {f"listener.name.internal.oauthbearer.{name}": value for name, value in SECRET.items()}
    newest = source_of(tmp_path, {URL: HTTPS, SCOPE: "nodes", **own}, world)
    assert [asyncio.run(newest()) for _ in range(3)] == ["t1"] * 3
    [one] = asked
    assert (one.url, one.form) == (HTTPS, b"grant_type=client_credentials&scope=nodes")
    assert one.authorization is not None
    assert one.authorization.reveal() == "Basic bm9kZS0xOm1hcmtlZC1zZWNyZXQ="


def test_a_thousand_connections_ask_once_and_a_dead_issuer_is_left_alone_for_a_second(tmp_path: Path) -> None:
    asked = 0
    is_dead = True

    async def fetch(wanted: Download) -> bytes:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if is_dead:
            raise OSError("unreachable")
        return b'{"access_token": "t", "expires_in": 3600}'

    class Clock:
        now = 0

        def monotonic_ms(self) -> int:
            return self.now

    clock = Clock()
    newest = source_of(tmp_path, {URL: HTTPS, **SECRET}, replace(real_world(), fetch=fetch, clock=clock))

    async def main() -> None:
        nonlocal is_dead
        failures = await asyncio.gather(*(newest() for _ in range(1000)), return_exceptions=True)
        assert {str(failure) for failure in failures} == {"NETWORK_EXCEPTION: no token from issuer.example: unreachable"}
        assert asked == 1
        is_dead = False
        with pytest.raises(KafkaError):
            await newest()
        given_up = asyncio.ensure_future(newest())
        given_up.cancel()
        clock.now = 1000
        assert await asyncio.gather(*(newest() for _ in range(1000))) == ["t"] * 1000
        assert asked == 2

    asyncio.run(main())


class Ignored(ConnectionHandler):
    """A handler that is never reached."""

    def __init__(self, connection: Connection) -> None:
        self.errors: list[Exception | None] = []

    def on_data(self, data: memoryview) -> bool:
        raise AssertionError("nothing was introduced")

    def room(self) -> memoryview | None:
        return None

    def on_drain(self) -> None: ...

    def on_close(self, error: Exception | None) -> None:
        self.errors.append(error)


def test_a_refusing_port_is_evidence_whatever_the_issuer_does_and_a_missing_token_is_not() -> None:
    async def main() -> None:
        asked = 0

        async def never() -> str:
            nonlocal asked
            asked += 1
            await asyncio.Event().wait()
            return ""

        def fails() -> str:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no token from issuer.example: unreachable")

        world = real_world()
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            network = Introduced(world, Introduction(credentials=OAuthCredentials(fails)))
            with pytest.raises(IntroductionError, match="no token from issuer") as caught:
                await network.connect("127.0.0.1", port, Ignored)
            assert not isinstance(caught.value, ConnectionRefusedError)
            peer, _ = server.accept()
            with peer:
                peer.settimeout(20)
                assert not await asyncio.to_thread(peer.recv, 1)  # nothing was sent, and it is closed
        network = Introduced(world, Introduction(credentials=OAuthCredentials(never)))
        with pytest.raises(ConnectionRefusedError):
            await network.connect("127.0.0.1", port, Ignored)
        assert asked == 0

    asyncio.run(main())
