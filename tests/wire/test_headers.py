"""Request and response headers, both ways, and against kafka-python."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_header import RequestHeader as TheirRequestHeader

from ottla.errors import DecodeError, EncodeError
from ottla.messages.headers import (
    RequestHeader,
    decode_request_header,
    decode_request_header_start,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)

HEADERS = st.builds(
    RequestHeader,
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=20) | st.just("c" * 300),
)
CORRELATION_IDS = st.integers(-(2**31), 2**31 - 1)


@given(HEADERS, st.booleans(), st.binary(max_size=5))
def test_a_request_header_is_read_as_it_was_written(header: RequestHeader, is_flexible: bool, body: bytes) -> None:
    frame = memoryview(encode_request_header(header, is_flexible=is_flexible) + body)
    read, position = decode_request_header(frame, is_flexible=is_flexible)
    assert (read, bytes(frame[position:])) == (header, body)
    assert decode_request_header_start(frame) == (header.api_key, header.api_version, header.correlation_id)


@given(CORRELATION_IDS, st.booleans(), st.binary(max_size=5))
def test_a_response_header_is_read_as_it_was_written(correlation_id: int, is_flexible: bool, body: bytes) -> None:
    frame = memoryview(encode_response_header(correlation_id, is_flexible=is_flexible) + body)
    read, position = decode_response_header(frame, is_flexible=is_flexible)
    assert (read, bytes(frame[position:])) == (correlation_id, body)


@given(HEADERS, st.booleans())
def test_kafka_python_reads_our_request_header(header: RequestHeader, is_flexible: bool) -> None:
    theirs = TheirRequestHeader.decode(io.BytesIO(encode_request_header(header, is_flexible=is_flexible)), flexible=is_flexible)
    assert (theirs.request_api_key, theirs.request_api_version) == (header.api_key, header.api_version)
    assert (theirs.correlation_id, theirs.client_id) == (header.correlation_id, header.client_id)
    assert theirs.encode(flexible=is_flexible) == encode_request_header(header, is_flexible=is_flexible)


def test_tagged_fields_of_a_header_are_skipped() -> None:
    header = RequestHeader(3, 12, 7, "c")
    wire = encode_request_header(header, is_flexible=True)[:-1] + b"\2" + b"\0\1x" + b"\5\0" + b"body"
    read, position = decode_request_header(memoryview(wire), is_flexible=True)
    assert (read, wire[position:]) == (header, b"body")
    wire = encode_response_header(7, is_flexible=True)[:-1] + b"\1" + b"\0\1x" + b"body"
    correlation_id, position = decode_response_header(memoryview(wire), is_flexible=True)
    assert (correlation_id, wire[position:]) == (7, b"body")


def test_tagged_fields_that_end_after_the_frame_are_refused() -> None:
    section = b"\1" + b"\0\5abc"
    with pytest.raises(DecodeError):
        decode_request_header(
            memoryview(encode_request_header(RequestHeader(3, 12, 7, "c"), is_flexible=True)[:-1] + section), is_flexible=True
        )
    with pytest.raises(DecodeError):
        decode_response_header(memoryview(encode_response_header(7, is_flexible=True)[:-1] + section), is_flexible=True)


@pytest.mark.parametrize("is_flexible", [False, True])
def test_a_header_that_is_cut_short_is_refused(is_flexible: bool) -> None:
    request = encode_request_header(RequestHeader(3, 12, 7, "client"), is_flexible=is_flexible)
    for size in range(len(request)):
        with pytest.raises(DecodeError):
            decode_request_header(memoryview(request)[:size], is_flexible=is_flexible)
    response = encode_response_header(7, is_flexible=is_flexible)
    for size in range(len(response)):
        with pytest.raises(DecodeError):
            decode_response_header(memoryview(response)[:size], is_flexible=is_flexible)
    for size in range(8):
        with pytest.raises(DecodeError):
            decode_request_header_start(memoryview(request)[:size])


def test_a_client_id_that_is_no_utf_8_is_refused() -> None:
    with pytest.raises(DecodeError):
        decode_request_header(memoryview(bytes(8) + b"\0\2\xc3\x28"), is_flexible=False)


@pytest.mark.parametrize("length", [b"\xff\xfe", b"\x80\x00", b"\x7f\xff"])
def test_a_client_id_of_impossible_length_is_refused(length: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_request_header(memoryview(bytes(8) + length + b"abc"), is_flexible=False)


def test_a_client_id_that_does_not_fit_is_an_encode_error() -> None:
    most = RequestHeader(0, 0, 0, "c" * 32_767)
    assert decode_request_header(memoryview(encode_request_header(most, is_flexible=False)), is_flexible=False)[0] == most
    with pytest.raises(EncodeError):
        encode_request_header(RequestHeader(0, 0, 0, "c" * 32_768), is_flexible=False)


@given(st.binary(max_size=40), st.booleans())
def test_random_bytes_are_a_decode_error_and_nothing_worse(wire: bytes, is_flexible: bool) -> None:
    for decode in (decode_request_header, decode_response_header):
        try:
            _, position = decode(memoryview(wire), is_flexible=is_flexible)
        except DecodeError:
            continue
        assert position <= len(wire)


def test_client_ids_are_distinguished_however_many_there_are() -> None:
    for at in range(3_000):
        header = RequestHeader(0, 0, at, f"client-{at}")
        assert decode_request_header(memoryview(encode_request_header(header, is_flexible=False)), is_flexible=False)[0] == header
