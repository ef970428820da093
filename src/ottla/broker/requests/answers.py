"""Answers as the buffers that a connection sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ottla.messages.headers import encode_response_header
from ottla.messages.registry import Api
from ottla.wire.compiler import encode_in_steps, encode_into
from ottla.wire.generator import Form
from ottla.wire.schema import Response

SHARED_BYTES_MIN: Final = 512
"""A piece of so many bytes, of an answer of many, is perhaps in it many times: it is sent from where it is."""


def encode_answer(api: Api, version: int, correlation_id: int, response: Response) -> list[Any]:
    """Returns length, header and body as buffers; file regions stay what they are. ManyElements when that would take long."""
    pieces: list[Any] = [encode_response_header(correlation_id, is_flexible=api.has_flexible_response_header(version))]
    encode_into(response, version, pieces.append, Form.FEW)
    try:
        body = b"".join(pieces)
    except TypeError:  # a fetch that found something: a region is no bytes
        return _with_length(_joined(pieces, [at for at, piece in enumerate(pieces) if type(piece) is not bytes]))
    return [len(body).to_bytes(4, "big") + body]


def encode_answer_in_steps(api: Api, version: int, correlation_id: int, response: Response, out: list[Any]) -> Iterator[None]:
    """Encodes into ``out``, which has the buffers at the end; pauses whenever it has worked for some milliseconds."""
    pieces: list[Any] = [encode_response_header(correlation_id, is_flexible=api.has_flexible_response_header(version))]
    for _ in encode_in_steps(response, version, pieces.append):
        out += _joined(pieces, _large(pieces))
        pieces.clear()
        yield
    out += _joined(pieces, _large(pieces))
    out[:] = _with_length(out)


def _large(pieces: Sequence[Any]) -> list[int]:
    return [at for at, piece in enumerate(pieces) if type(piece) is not bytes or len(piece) >= SHARED_BYTES_MIN]


def _joined(pieces: Sequence[Any], kept: Sequence[int]) -> list[Any]:
    """Runs of ``bytes`` between those that are kept as they are become one each: a vectored send pays for every piece."""
    joined: list[Any] = []
    start = 0
    for at in kept:
        if at > start:
            joined.append(b"".join(pieces[start:at]))
        joined.append(pieces[at])
        start = at + 1
    if start < len(pieces):
        joined.append(b"".join(pieces[start:]))
    return joined


def _with_length(buffers: list[Any]) -> list[Any]:
    return [sum(map(len, buffers)).to_bytes(4, "big"), *buffers]
