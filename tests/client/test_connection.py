"""One connection to a broker that breaks while a request is being sent: on real sockets, whose sends fail at once."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import TypeVar

import pytest

from ottla.broker.peers.caller_name import CallerName
from ottla.broker.peers.connection import PeerConnection
from ottla.client.connection import ClientConnection
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.api_keys import ApiKey
from ottla.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.ports import Connection
from ottla.runtime.world import real_world

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: what the peer sends afterwards is answered with a reset
SERVED = {int(ApiKey.DESCRIBE_CLUSTER): (0, 2)}


Handler = TypeVar("Handler", ClientConnection, PeerConnection)


async def connected(make: Callable[[Connection], Handler]) -> tuple[Handler, socket.socket]:
    """A connection, and the other end of it."""
    made: list[Handler] = []

    def keep(transport: Connection) -> Handler:
        made.append(make(transport))
        return made[0]

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        await real_world().network.connect("127.0.0.1", listener.getsockname()[1], keep)
        return made[0], listener.accept()[0]


def reset(end: socket.socket) -> None:
    """As by kill -9 of its process, with records that it has not read."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    end.close()


def test_a_request_that_finds_the_connection_broken_fails_at_once():
    async def run() -> None:
        connection, end = await connected(lambda transport: ClientConnection(real_world(), transport, "test", "127.0.0.1:1"))
        connection._versions = SERVED
        reset(end)
        with pytest.raises(KafkaError, match="the connection broke") as caught:
            await connection.ask(DescribeClusterRequest(), DescribeClusterResponse, timeout_ms=10_000)
        assert caught.value.code == ErrorCode.NETWORK_EXCEPTION
        assert connection.is_closed

    asyncio.run(run())


def test_requests_that_waited_for_a_nodes_versions_all_fail_when_the_first_finds_the_connection_broken():
    async def run() -> None:
        ended: list[bool] = []
        connection, end = await connected(
            lambda transport: PeerConnection(CallerName("test"), lambda: ended.append(True)).on_open(transport, 0)
        )
        answers: list[object] = []
        for _ in range(3):
            connection.send(DescribeClusterRequest(), answers.append, 0)
        reset(end)
        connection._on_versions(ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.DESCRIBE_CLUSTER, 0, 2)]))
        assert answers == [None, None, None]
        assert ended == [True]

    asyncio.run(run())


def test_a_server_that_answers_nothing_is_said_to_have_timed_out():
    async def run() -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            with pytest.raises(KafkaError, match=f"no broker at 127.0.0.1:{port}: timed out$") as caught:
                await ClientConnection.connect(real_world(), "127.0.0.1", port, client_id="test", timeout_ms=20)
            assert caught.value.code == ErrorCode.NETWORK_EXCEPTION

    asyncio.run(run())
