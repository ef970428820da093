"""The laws of the codecs, for every class and each version whose codecs are not those of an earlier one."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.strategies import DISTINCT_CODECS, FIRST_LIKE, messages, name_of, one_in

from ottla.errors import DecodeError
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult
from ottla.wire.compiler import (
    decode,
    decode_from,
    decode_in_steps,
    encode,
    encode_in_steps,
    encode_into,
    source_of_decoder,
    source_of_encoder,
)
from ottla.wire.decoder import DecoderSource
from ottla.wire.encoder import EncoderSource
from ottla.wire.generator import ELEMENTS_AT_ONCE, STEP_ELEMENTS, Form
from ottla.wire.primitives import ManyElements
from ottla.wire.schema import Message


def in_steps(steps: Iterator[None]) -> Any:
    """What a codec that pauses returns."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


every_codec = pytest.mark.parametrize(("cls", "version"), DISTINCT_CODECS, ids=name_of)


def codecs_of(cls: type[Message], version: int) -> list[object]:
    """All that the codecs do: the source of each form, and what its names stand for."""
    sources = [made for form in Form for made in (EncoderSource(cls, version, form=form), DecoderSource(cls, version, form))]
    return [(made.source(), {name: meaning_of(value) for name, value in made.names.items()}) for made in sources]


def meaning_of(value: object) -> object:
    layout = getattr(value, "__self__", None)
    if isinstance(layout, struct.Struct):  # each source makes its own: its format says what it does
        return layout.format, getattr(value, "__name__", None)
    return value if isinstance(value, bytes) else id(value)


def test_a_version_whose_codecs_are_not_tried_has_the_very_ones_of_an_earlier_version() -> None:
    for (cls, version), tried in FIRST_LIKE.items():
        if tried != (cls, version):
            assert codecs_of(cls, version) == codecs_of(*tried), f"{cls.__name__} v{version}"


@every_codec
@one_in(12)
@given(data=st.data())
def test_what_was_encoded_is_decoded_and_nothing_shorter_or_longer_is(cls: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    wire = encode(message, version)
    assert decode(cls, version, wire) == message
    around = memoryview(b"before" + wire + b"after")
    assert decode_from(cls, version, around, 6) == decode_from(cls, version, around, 6, Form.FEW) == (message, 6 + len(wire))
    assert in_steps(decode_in_steps(cls, version, around, 6)) == (message, 6 + len(wire))
    for form in (Form.FEW, Form.STEPS):
        pieces: list[bytes] = []
        if form is Form.FEW:
            encode_into(message, version, pieces.append, form)
        else:
            in_steps(encode_in_steps(message, version, pieces.append))
        assert b"".join(pieces) == wire
    for size in (data.draw(st.integers(0, len(wire) - 1)), len(wire) - 1) if wire else ():
        with pytest.raises(DecodeError):
            decode_from(cls, version, wire[:size])
    with pytest.raises(DecodeError):
        decode(cls, version, wire + b"\0")


@every_codec
def test_a_message_of_defaults_is_decoded(cls: type[Message], version: int) -> None:
    assert decode(cls, version, encode(cls(), version)) == cls()


@every_codec
@one_in(12)
@given(data=st.data())
def test_damaged_messages_and_random_bytes_are_decode_errors_at_worst(cls: type[Message], version: int, data: st.DataObject) -> None:
    wire = bytearray(encode(data.draw(messages(cls, version)), version))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(wire)))
        damage = data.draw(st.binary(max_size=5) | st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff"]))
        wire[at : at + data.draw(st.integers(0, 5))] = damage
    for damaged in (bytes(wire), data.draw(st.binary(max_size=64))):
        found: list[object] = []
        for decoding in (decode_from, partial(decode_from, form=Form.FEW), lambda *given: in_steps(decode_in_steps(*given))):
            try:
                found.append(decoding(cls, version, damaged))
            except DecodeError:
                found.append(None)
            except ManyElements:
                found.append(found[0])
        assert found[0] == found[1] == found[2], "the forms of a decoder judge alike"


@pytest.mark.parametrize(("topics", "partitions"), [(1, 10_000), (10_000, 1), (100, 100)])
def test_a_message_of_many_elements_is_worked_off_in_steps_however_they_are_nested(topics: int, partitions: int) -> None:
    request = OffsetCommitRequest(
        topics=[OffsetCommitRequestTopic(partitions=[OffsetCommitRequestPartition(5)] * partitions) for _ in range(topics)]
    )
    wire = encode(request, 8)
    with pytest.raises(ManyElements):
        decode_from(OffsetCommitRequest, 8, wire, 0, Form.FEW)
    count = topics + topics * partitions
    assert len(list(decode_in_steps(OffsetCommitRequest, 8, wire))) == count // (STEP_ELEMENTS + 1)
    assert in_steps(decode_in_steps(OffsetCommitRequest, 8, wire)) == (request, len(wire))
    with pytest.raises(DecodeError):
        in_steps(decode_in_steps(OffsetCommitRequest, 8, wire[:-1]))
    response = OffsetForLeaderEpochResponse(
        topics=[OffsetForLeaderTopicResult("t", [EpochEndOffset() for _ in range(partitions)]) for _ in range(topics)]
    )
    with pytest.raises(ManyElements):
        encode_into(response, 4, [].append, Form.FEW)
    pieces: list[bytes] = []
    assert len(list(encode_in_steps(response, 4, pieces.append))) == count // (STEP_ELEMENTS + 1)
    assert b"".join(pieces) == encode(response, 4)


def test_a_request_with_few_elements_is_decoded_without_steps() -> None:
    request = OffsetCommitRequest(topics=[OffsetCommitRequestTopic() for _ in range(ELEMENTS_AT_ONCE)])
    assert decode_from(OffsetCommitRequest, 8, encode(request, 8), 0, Form.FEW)[0] == request


def test_the_source_of_a_codec_can_be_read() -> None:
    assert "OffsetCommitRequest.group_id" in source_of_decoder(OffsetCommitRequest, 8)
    assert "m.group_id" in source_of_encoder(OffsetCommitRequest, 8)
