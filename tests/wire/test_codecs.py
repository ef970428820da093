"""The laws of the codecs, for every class and version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.strategies import CLASSES_AND_VERSIONS, messages, name_of, one_in

from ottla.errors import DecodeError
from ottla.wire.compiler import decode, decode_from, encode
from ottla.wire.schema import Message

every_class_and_version = pytest.mark.parametrize(("cls", "version"), CLASSES_AND_VERSIONS, ids=name_of)


@every_class_and_version
@one_in(12)
@given(data=st.data())
def test_what_was_encoded_is_decoded(cls: type[Message], version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    wire = encode(message, version)
    assert decode(cls, version, wire) == message
    assert decode_from(cls, version, memoryview(b"before" + wire + b"after"), 6) == (message, 6 + len(wire))


@every_class_and_version
def test_a_message_of_defaults_is_decoded(cls: type[Message], version: int) -> None:
    assert decode(cls, version, encode(cls(), version)) == cls()


@every_class_and_version
@one_in(25)
@given(data=st.data())
def test_a_message_that_is_cut_short_or_too_long_is_refused(cls: type[Message], version: int, data: st.DataObject) -> None:
    wire = encode(data.draw(messages(cls, version)), version)
    with pytest.raises(DecodeError):
        decode(cls, version, wire + b"\0")
    if wire:
        size = data.draw(st.integers(0, len(wire) - 1))
        for cut in (size, len(wire) - 1):
            with pytest.raises(DecodeError):
                decode_from(cls, version, wire[:cut])


@every_class_and_version
@one_in(12)
@given(wire=st.binary(max_size=64))
def test_random_bytes_are_a_decode_error_and_nothing_worse(cls: type[Message], version: int, wire: bytes) -> None:
    try:
        decode(cls, version, wire)
    except DecodeError:
        pass


@every_class_and_version
@one_in(12)
@given(data=st.data())
def test_damaged_messages_are_a_decode_error_and_nothing_worse(cls: type[Message], version: int, data: st.DataObject) -> None:
    wire = bytearray(encode(data.draw(messages(cls, version)), version))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(wire)))
        damage = data.draw(st.binary(max_size=5) | st.sampled_from([b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff"]))
        wire[at : at + data.draw(st.integers(0, 5))] = damage
    try:
        decode(cls, version, bytes(wire))
    except DecodeError:
        pass
