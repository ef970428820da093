"""The plain and the compiled form of the record kernel give and raise the same, whatever they are given."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.errors import DecodeError
from ottla.records import plain_kernel

MANY = settings(max_examples=1_000, suppress_health_check=[HealthCheck.too_slow])
int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
some_bytes = st.none() | st.binary(max_size=20) | st.sampled_from([63, 64, 4095, 4096, 8192]).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=6), some_bytes), max_size=3).map(tuple)
rows = st.lists(st.tuples(int64 | st.integers(0, 300), int32 | st.integers(0, 300), some_bytes, some_bytes, headers), max_size=6)
# Numbers that a reader may stumble over: of every length, too long, too large, negative.
varints = st.one_of(
    int64.map(plain_kernel.varint),
    st.integers(-3, 70).map(plain_kernel.varint),
    st.sampled_from(
        [b"\xff" * 4 + b"\x0f", b"\xff" * 4 + b"\x1f", b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x02", b"\x80" * 12, b"\x80\x00"]
    ),
)
loose_records = st.lists(varints | st.binary(max_size=6), max_size=30).map(b"".join)
batch_numbers = st.fixed_dictionaries(
    {
        "base_offset": int64 | st.just(0),
        "base_timestamp": int64 | st.just(0),
        "last_delta": int32 | st.just(300),
        "delta_min": st.just(0) | int32,
        "delta_max": st.just(300) | st.just(2**31 - 1) | int32,
    }
)


def outcome(action: Callable[[], Any]) -> Any:
    """What an action gives, or the error that it raises, in a form that can be compared."""
    try:
        return action()
    except (DecodeError, OverflowError, ValueError) as error:
        return type(error), str(error)


def decoded(kernel: ModuleType, data: bytes, count: int, numbers: dict[str, int], wanted: set[str]) -> Any:
    """All columns, those of a batch that ends in an error too, and what the kernel said."""
    columns: dict[str, list[Any] | None] = {name: [] if name in wanted else None for name in ("keys", "values", "headers")}
    columns |= {"offsets": [], "times": []}
    return outcome(lambda: kernel.decode_columns(data, 0, count, **numbers, **columns)), columns


def encoded(kernel: ModuleType, content: list[Any]) -> Any:
    return outcome(lambda: b"".join(kernel.encode_record(*row) for row in content))


written_records = rows.map(lambda content: encoded(plain_kernel, content)).filter(lambda found: type(found) is bytes)


@MANY
@given(loose_records | written_records, st.data())
def test_both_forms_check_alike(compiled: ModuleType, payload: bytes, data: Any) -> None:
    count, first = data.draw(st.integers(0, 7) | int32), data.draw(st.just(0) | st.integers(0, 300))
    assert plain_kernel.check_records(payload, 0, count, first) == compiled.check_records(payload, 0, count, first)


wanted_columns = st.sets(st.sampled_from(["keys", "values", "headers"]))


@MANY
@given(rows, batch_numbers, wanted_columns, st.data())
def test_both_forms_write_and_read_the_same_records(compiled: ModuleType, content: Any, numbers: Any, wanted: Any, data: Any) -> None:
    written = encoded(plain_kernel, content)
    assert written == encoded(compiled, content)
    mutated = bytearray(written)
    for _ in range(data.draw(st.integers(0, 3)) if written else 0):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    for payload in (written, bytes(mutated), written[: data.draw(st.integers(0, len(written)))]):
        count = data.draw(st.just(len(content)) | int32)
        assert decoded(plain_kernel, payload, count, numbers, wanted) == decoded(compiled, payload, count, numbers, wanted)


@MANY
@given(loose_records, st.integers(0, 5) | int32, batch_numbers, wanted_columns)
def test_both_forms_say_the_same_of_loose_bytes(compiled: ModuleType, data: bytes, count: int, numbers: Any, wanted: Any) -> None:
    assert decoded(plain_kernel, data, count, numbers, wanted) == decoded(compiled, data, count, numbers, wanted)


@MANY
@given(st.integers(0, 5), st.lists(varints, min_size=5, max_size=5), st.binary(max_size=12), batch_numbers, wanted_columns)
def test_both_forms_say_the_same_of_a_record_with_one_odd_number(
    compiled: ModuleType, odd: int, numbers_of_record: list[bytes], tail: bytes, numbers: Any, wanted: Any
) -> None:
    good = [b"\x00", plain_kernel.varint(0), plain_kernel.varint(1), plain_kernel.varint(-1), plain_kernel.varint(len(tail)), tail + b"\0"]
    if odd < 5:
        good[odd] = numbers_of_record[odd]
    body = b"".join(good)
    data = plain_kernel.varint(len(body)) + body
    assert decoded(plain_kernel, data, 1, numbers, wanted) == decoded(compiled, data, 1, numbers, wanted)


@MANY
@given(
    st.lists(st.tuples(some_bytes, some_bytes, headers), min_size=1, max_size=8),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(-10, 300) | st.just(1 << 20),
    int64,
    st.integers(0, 2**31 - 100),
    st.booleans(),
)
def test_both_forms_write_the_same_columns(
    compiled: ModuleType, content: Any, start: int, end: int, size_max: int, time_delta: int, offset_delta: int, with_headers: bool
) -> None:
    keys, values, all_headers = map(list, zip(*content))
    end = min(end, len(content))
    bounds = {"start": start, "end": end, "size_max": size_max, "time_delta": time_delta, "offset_delta": offset_delta}
    column = all_headers if with_headers else None
    written, reached = plain_kernel.encode_columns(keys, values, column, **bounds)
    assert compiled.encode_columns(keys, values, column, **bounds) == (written, reached)
    alone = [
        plain_kernel.encode_record(time_delta, offset_delta + index, keys[at], values[at], all_headers[at] if with_headers else ())
        for index, at in enumerate(range(start, reached))
    ]
    assert written == b"".join(alone)
    assert reached >= end or len(written) >= size_max
    assert not alone or len(written) - len(alone[-1]) < size_max


@given(int64)
def test_both_forms_write_the_same_varints(compiled: ModuleType, value: int) -> None:
    assert compiled.varint(value) == plain_kernel.varint(value)


def test_the_compiled_form_is_compiled(compiled: ModuleType) -> None:
    assert compiled.__file__ is not None
    assert not compiled.__file__.endswith(".py")
    assert type(compiled.decode_columns).__name__ == "builtin_function_or_method"


@pytest.mark.parametrize("argument", ["data", "count"])
def test_the_compiled_form_refuses_what_is_no_value_of_its_types(compiled: ModuleType, argument: str) -> None:
    arguments: dict[str, Any] = {"data": b"", "count": 0} | {argument: "text"}
    numbers = dict.fromkeys(["base_offset", "base_timestamp", "last_delta", "delta_min", "delta_max"], 0)
    lists: dict[str, list[Any]] = {name: [] for name in ("offsets", "times", "keys", "values", "headers")}
    with pytest.raises(TypeError):
        compiled.decode_columns(arguments["data"], 0, arguments["count"], **numbers, **lists)
