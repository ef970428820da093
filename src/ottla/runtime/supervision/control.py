"""How other commands reach a supervisor: a Unix socket beside its state file, one JSON line each way.

An answer there proves that the supervisor lives: a process id in a file may be another program's by now. The path of a
Unix socket may have about 100 bytes, which a directory easily exceeds; so both sides reach it from within the directory, except
where Linux gives an open directory a short name: a process with other threads does not leave its directory then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import msgspec

from ottla.errors import ErrorCode, KafkaError, OttlaError

SOCKET_NAME: Final = "control.sock"
LINE_BYTES_MAX: Final = 1 << 20
CONNECT_SECONDS_MAX: Final = 10.0
WAYS_OUT = "`ottla cluster start` starts one; `ottla cluster health -B HOST:PORT` asks another"


class Order(msgspec.Struct, frozen=True):
    """An order: ``status``, ``stop``, ``kill``, ``restart``, ``add`` or ``remove``, of one node where that makes sense."""

    command: str
    node_id: int | None = None


class Answer(msgspec.Struct, frozen=True):
    """``error`` is why it was not done. ``state`` is what the supervisor knows afterwards."""

    error: str | None = None
    state: msgspec.Raw = msgspec.Raw(b"null")


Carry = Callable[[Order], Awaitable[Answer]]


class NoSupervisor(OttlaError):
    """The error of a directory without a supervisor: none answers."""


async def serve_control(directory: str, carry_out: Carry) -> asyncio.Server:
    """Carries out orders until the server is closed. The caller holds the directory's lock: an older socket is a dead one's."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _within(directory), contextlib.suppress(FileNotFoundError):
        os.unlink(SOCKET_NAME)
    with _within(directory):
        mask = os.umask(0o177)
        try:
            listener.bind(SOCKET_NAME)
        finally:
            os.umask(mask)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.LimitOverrunError, ValueError):
            line = await reader.readline()
            if line:
                writer.write(msgspec.json.encode(await _answer(line, carry_out)) + b"\n")
                await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(serve, sock=listener, limit=LINE_BYTES_MAX)


async def _answer(line: bytes, carry_out: Carry) -> Answer:
    try:
        return await carry_out(msgspec.json.decode(line, type=Order))
    except (OttlaError, OSError) as error:
        return Answer(error.message if isinstance(error, KafkaError) else str(error))
    except msgspec.MsgspecError as error:
        return Answer(f"not an order: {error}")


def ask_supervisor(directory: str, order: Order, *, seconds_max: float | None = None) -> Answer:
    """Returns what the supervisor answers, however long it takes to carry the order out. NoSupervisor when there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(CONNECT_SECONDS_MAX)
        try:
            _connect(channel, directory)
            channel.settimeout(seconds_max)
            channel.sendall(msgspec.json.encode(order) + b"\n")
            received = bytearray()
            while chunk := channel.recv(1 << 16):
                received += chunk
        except (FileNotFoundError, NotADirectoryError, ConnectionError):
            raise NoSupervisor(f"no cluster runs in {directory}: {WAYS_OUT}") from None
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the supervisor of {directory} does not answer") from None
    if not received.endswith(b"\n"):
        raise NoSupervisor(f"the supervisor of {directory} ended before it answered")
    return msgspec.json.decode(bytes(received), type=Answer)


def _connect(channel: socket.socket, directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)  # a FIFO of that name would wait for its writer
    try:
        short = f"/proc/self/fd/{descriptor}"
        if os.path.isdir(short):
            channel.connect(os.path.join(short, SOCKET_NAME))
        else:
            with _within(directory):
                channel.connect(SOCKET_NAME)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _within(directory: str) -> Iterator[None]:
    """Changes the working directory for a call or two; nothing else of this process runs meanwhile."""
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(directory)
        yield
    finally:
        os.fchdir(before)
        os.close(before)
