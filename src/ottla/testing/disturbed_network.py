"""A node's network, whose clients meet faults.

It sits between the sockets and the broker, and sees each request and each answer as a frame. Answers leave in the order of their requests:
one that is held back holds those after it as well. What the active controller, followers and other nodes send passes as it is.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.errors import DecodeError
from ottla.messages.api_keys import ApiKey
from ottla.messages.error_answers import CHANGING_NOTHING, place, refusal
from ottla.messages.headers import decode_request_header, decode_request_header_start, decode_response_header, encode_response_header
from ottla.messages.registry import APIS, Api
from ottla.net.passing import PassingConnection, PassingNetwork
from ottla.ports import Buffer, Connection, ConnectionHandler, FileRegion, Network
from ottla.testing.faults import Fault, Faults, Kind
from ottla.wire.compiler import decode, decode_from, encode
from ottla.wire.frames import LENGTH_BYTES, FrameCutter
from ottla.wire.schema import Response

FRAME_BYTES_MAX: Final = 2**31 - 1
OF_A_NODE: Final = re.compile(r"node-\d+-")
"""The prefix of nodes' client ids (``ottla.broker.peers.caller_name``)."""


class DisturbedNetwork(PassingNetwork):
    """A network that disturbs connections to the listener at ``port``, that of clients, and no others."""

    def __init__(self, network: Network, faults: Faults, node_id: int, port: int) -> None:
        super().__init__(network)
        self._port = port
        self.faults = faults
        self.node_id = node_id

    def accepting(self, port: int, accept: Callable[[Connection], ConnectionHandler]) -> Callable[[Connection], ConnectionHandler]:
        return partial(_Link, self, accept=accept) if port == self._port else accept


@dataclass(slots=True, eq=False)
class _Exchange:
    """A request that is to be answered."""

    api: Api
    version: int
    correlation_id: int
    fault: Fault | None = None
    answer: bytes = b""  # a frame
    is_due: bool = False
    has_happened: bool = False  # its fault
    is_swallowed: bool = False  # the second answer to one request


class _Link(PassingConnection):
    """One connection: to the socket a ``ConnectionHandler``, to the broker a ``Connection``."""

    def __init__(self, owner: DisturbedNetwork, transport: Connection, accept: Callable[[Connection], ConnectionHandler]) -> None:
        self._owner = owner
        super().__init__(transport)
        self._cutter = FrameCutter(FRAME_BYTES_MAX)
        self._unanswered: deque[_Exchange] = deque()  # in the order of requests
        self._at_broker: deque[_Exchange] = deque()
        self._is_unread = False  # what came was no request: all else passes as it is
        self._broker = accept(self)

    # What the client sends

    def room(self) -> memoryview | None:
        return None

    def on_data(self, data: memoryview) -> bool:
        passed = bytearray()
        for frame, _ in self._cutter.feed(data):
            passed += (len(frame).to_bytes(LENGTH_BYTES, "big") + frame) * self._begin(frame)
        if passed and not self.is_closed:
            self._broker.on_data(memoryview(passed))
        self._leave()
        return False

    def _begin(self, frame: memoryview) -> int:
        """Returns how often the request goes to the broker."""
        try:
            return 1 if self._is_unread else self._begin_request(frame)
        except (DecodeError, KeyError):
            self._is_unread = True
            return 1

    def _begin_request(self, frame: memoryview) -> int:
        api_key, version, correlation_id = decode_request_header_start(frame)
        api = APIS[api_key]
        header, position = decode_request_header(frame, is_flexible=api.is_flexible(version))
        if api_key == ApiKey.PRODUCE:
            request: Any = decode_from(api.request, version, frame, position)[0]
            if request.acks == 0:
                return 1
        client_id = header.client_id
        is_of_node = client_id is not None and OF_A_NODE.match(client_id) is not None
        is_known = api.version_min <= version <= api.version_max  # any other version of ApiVersions is answered in version 0
        fault = self._owner.faults.claim(api_key, client_id, self._owner.node_id) if is_known and not is_of_node else None
        exchange = _Exchange(api, version, correlation_id, fault)
        self._unanswered.append(exchange)
        if fault is not None and fault.kind is Kind.ERROR and api_key not in CHANGING_NOTHING:
            request, _ = decode_from(api.request, version, frame, position)
            exchange.answer = _frame(exchange, refusal(api, version, request, fault.code))
            exchange.is_due = True
            self._happen(exchange, fault)
            return 0
        self._at_broker.append(exchange)
        if fault is not None and fault.kind is Kind.REPEATED:
            self._at_broker.append(_Exchange(api, version, correlation_id, is_swallowed=True))
            self._happen(exchange, fault)
            return 2
        return 1

    def _happen(self, exchange: _Exchange, fault: Fault) -> None:
        exchange.has_happened = True
        self._owner.faults.happen(fault)

    def on_drain(self) -> None:
        self._broker.on_drain()

    def on_close(self, error: Exception | None) -> None:
        self._cutter.close()
        for exchange in self._unanswered:
            if exchange.fault is not None and not exchange.has_happened:
                self._owner.faults.release(exchange.fault)
        self._broker.on_close(error)

    # What the broker answers

    def send(self, buffers: Sequence[Buffer | FileRegion]) -> None:
        if self._is_unread:
            self._transport.send(buffers)
            return
        data = b"".join(item if isinstance(item, bytes | bytearray | memoryview) else item.read() for item in buffers)
        position = 0
        while position < len(data):
            end = position + LENGTH_BYTES + int.from_bytes(data[position : position + LENGTH_BYTES], "big")
            self._on_answer(self._at_broker.popleft(), data[position:end])
            position = end
        self._leave()

    def _on_answer(self, exchange: _Exchange, answer: bytes) -> None:
        if exchange.is_swallowed:
            return
        exchange.answer = answer
        fault = exchange.fault
        if fault is not None and fault.is_withdrawn and not exchange.has_happened:
            fault = exchange.fault = None
        if fault is not None and fault.kind is Kind.ERROR and not _put_code(exchange, fault):
            self._owner.faults.release(fault)  # the answer has no place for it: the next one may
            fault = exchange.fault = None
        if fault is not None and not exchange.has_happened:
            self._happen(exchange, fault)
        if fault is not None and fault.kind is Kind.LATE:
            asyncio.get_running_loop().call_later(fault.delay_ms / 1000, self._due, exchange)
        else:
            exchange.is_due = True

    def _due(self, exchange: _Exchange) -> None:
        exchange.is_due = True
        self._leave()

    def _leave(self) -> None:
        """Answers that are due leave, up to the first that is not."""
        out: list[bytes] = []
        while self._unanswered and self._unanswered[0].is_due and not self.is_closed:
            exchange = self._unanswered.popleft()
            kind = None if exchange.fault is None else exchange.fault.kind
            if kind is Kind.LOST:
                self._transport.send(out)
                self._transport.close()
                return
            out += [exchange.answer] * (2 if kind is Kind.DOUBLED else 1)
        if out:
            self._transport.send(out)


def _put_code(exchange: _Exchange, fault: Fault) -> bool:
    """Puts the fault's code into the broker's answer; False when there is no place for it."""
    api, version = exchange.api, exchange.version
    body = memoryview(exchange.answer)[LENGTH_BYTES:]
    _, position = decode_response_header(body, is_flexible=api.has_flexible_response_header(version))
    response = decode(api.response, version, body[position:])
    if not place(response, version, fault.code):
        return False
    exchange.answer = _frame(exchange, response)
    return True


def _frame(exchange: _Exchange, response: Response) -> bytes:
    header = encode_response_header(exchange.correlation_id, is_flexible=exchange.api.has_flexible_response_header(exchange.version))
    body = header + encode(response, exchange.version)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body
