"""Batches that were changed at random: both forms say the same of each, and the compiled one keeps no reference.

``OTTLA_FUZZ_INPUTS=2000000 pytest tests/kernel/test_hostile.py`` tries so many. ``CFLAGS="-O1 -g -fsanitize=address,undefined
-fno-sanitize-recover=all" make kernel``, with libasan in LD_PRELOAD and ASAN_OPTIONS=detect_leaks=0, has each read checked.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from tests.kernel.test_forms import decoded, outcome

from ottla.errors import DecodeError
from ottla.records import plain_kernel

INPUTS = int(os.environ.get("OTTLA_FUZZ_INPUTS", "20000"))
ODD = [0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF]
NUMBERS = {"base_offset": 5, "base_timestamp": 1_700_000_000_000, "last_delta": 8, "delta_min": 0, "delta_max": 6}
ALL = {"keys", "values", "headers"}


def batch(chance: random.Random) -> bytes:
    """Some good records."""
    pieces = []
    for delta in range(chance.randrange(1, 6)):
        key, value = (chance.choice([None, b"", chance.randbytes(chance.choice([1, 60, 130]))]) for _ in range(2))
        headers = tuple(("h" * chance.randrange(3), chance.choice([None, b"xyz"])) for _ in range(chance.choice([0, 0, 1, 3])))
        pieces.append(plain_kernel.encode_record(chance.choice([0, -1, 77, 2**40, -(2**63)]), delta, key, value, headers))
    return b"".join(pieces)


def changed(chance: random.Random, data: bytes) -> bytes:
    """The records with some bytes changed, left out, put in or copied."""
    out = bytearray(data)
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(out) + 1)
        match chance.randrange(5):
            case 0 if at < len(out):
                out[at] = chance.choice(ODD)
            case 1 if at < len(out):
                out[at] ^= 1 << chance.randrange(8)
            case 2:
                del out[at : at + chance.randrange(1, 4)]
            case 3:
                out[at:at] = bytes(chance.choice(ODD) for _ in range(chance.randrange(1, 11)))
            case _:
                out[at:] = out[: chance.randrange(len(out) + 1)]
    return bytes(out)


def test_both_forms_say_the_same_of_batches_that_were_changed(compiled: ModuleType) -> None:
    chance = random.Random("batches")
    good = 0
    for number in range(INPUTS):
        data = changed(chance, batch(chance))
        count, position = chance.choice([1, 3, 5, 2**31 - 1]), chance.choice([0, 0, 0, 1, len(data), len(data) + 3])
        wanted = ALL if number % 3 else set(chance.sample(sorted(ALL), chance.randrange(3)))
        expected = decoded(plain_kernel, data, count, NUMBERS, wanted)
        assert decoded(compiled, data, count, NUMBERS, wanted) == expected, data.hex()
        checked = plain_kernel.check_records(data, position, count, 0)
        assert compiled.check_records(data, position, count, 0) == checked, data.hex()
        for view in (memoryview(data), memoryview(bytearray(data))):
            assert plain_kernel.check_records(view, position, count, 0) == compiled.check_records(view, position, count, 0) == checked
        good += type(expected[0]) is int
    assert INPUTS // 20 < good < INPUTS  # some stay good


def test_both_kernels_encode_numbers_of_any_size_alike(compiled: ModuleType) -> None:
    for number in (2**63, -(2**63) - 1, 2**70):
        assert outcome(lambda: compiled.varint(number)) == outcome(lambda: plain_kernel.varint(number))  # noqa: B023 - called at once
        record = (number, 0, b"k", None, (("h", b""),))
        assert compiled.encode_record(*record) == plain_kernel.encode_record(*record)
        data = plain_kernel.encode_record(3, 1, b"k", b"v", ())
        numbers = NUMBERS | {"base_offset": number, "base_timestamp": -number, "last_delta": number, "delta_max": abs(number)}
        assert decoded(compiled, data, 1, numbers, ALL) == decoded(plain_kernel, data, 1, numbers, ALL)
        assert compiled.check_records(data, 0, 1, number) == plain_kernel.check_records(data, 0, 1, number)
    for base in (2**63 - 1, -(2**63)):
        data = plain_kernel.encode_record(-(2**63) if base < 0 else 2**63 - 1, 1, None, None, ())
        numbers = NUMBERS | {"base_offset": base, "base_timestamp": base}
        assert decoded(compiled, data, 1, numbers, ALL) == decoded(plain_kernel, data, 1, numbers, ALL)


class Changing(list[Any]):
    """Headers that empty the columns while they are looked at."""

    columns: tuple[list[Any], ...] = ()

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: Any) -> Any:
        for column in self.columns:
            column.clear()
        return ("h", b"x")


def test_columns_that_change_meanwhile_are_an_error(compiled: ModuleType) -> None:
    keys: list[Any] = [bytes([65 + number]) * 100 for number in range(3)]
    values, headers = list(keys), Changing()
    column: list[Any] = [headers] * 3
    headers.columns = (keys, values, column)
    bounds = {"start": 0, "end": 3, "time_delta": 0, "offset_delta": 0, "size_max": 1 << 20}
    with pytest.raises(IndexError):
        compiled.encode_columns(keys, values, column, **bounds)


@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        ("check_records", (b"", 0, 0), {}),
        ("check_records", (b"", 0, 0, 0, 0), {}),
        ("check_records", (b"", 0, 0, 0), {"data": b""}),
        ("check_records", (b"", 0, 0), {"data": b""}),
        ("check_records", (b"", 0, 0), {"delta": 0}),
        ("check_records", ("", 0, 0, 0), {}),
        ("encode_record", (0, 0, "k", None, ()), {}),
        ("encode_record", (0, 0, None, bytearray(b"v"), ()), {}),
        ("encode_record", (0, 0, None, None, 7), {}),
        ("encode_record", (0, 0, None, None, [["h", None]]), {}),
        ("encode_record", (0, 0, None, None, [(b"h", None)]), {}),
        ("encode_record", (0, 0, None, None, [("h", "v")]), {}),
        ("encode_record", (0, 0, None, None, [("h",)]), {}),
        ("varint", (0.5,), {}),
    ],
)
def test_what_is_no_value_of_its_types_is_refused(compiled: ModuleType, function: str, arguments: Any, named: Any) -> None:
    with pytest.raises(TypeError):
        getattr(compiled, function)(*arguments, **named)


def test_a_name_that_cannot_be_encoded_is_the_same_error(compiled: ModuleType) -> None:
    record = (0, 0, None, None, (("\ud800", b""),))
    assert outcome(lambda: compiled.encode_record(*record)) == outcome(lambda: plain_kernel.encode_record(*record))


def is_refused(action: Callable[[], Any]) -> bool:
    """Whether it raises; unlike pytest.raises it keeps nothing of the error."""
    try:
        action()
    except (TypeError, IndexError, ValueError):
        return True
    return False


def reference_counts(objects: list[Any]) -> list[int]:
    return [sys.getrefcount(each) for each in objects]


def test_no_reference_is_kept_or_lost(compiled: ModuleType) -> None:
    chance = random.Random("references")
    batches = [changed(chance, batch(chance)) for _ in range(300)]
    keys = [b"key", None, b"k" * 200]
    headers: list[Any] = [(("name", b"value"),), (), (("n", None), ("m", b""))]
    bounds = {"start": 0, "end": 3, "time_delta": 2**40, "offset_delta": 0, "size_max": 1 << 20}

    def all_of_it() -> None:
        for data in batches:
            decoded(compiled, data, 5, NUMBERS, ALL)
            decoded(compiled, data, 5, NUMBERS | {"base_offset": 2**70, "base_timestamp": 2**70}, ALL)
            compiled.check_records(data, 0, 5, 0)
        for column in (headers, None) * 10:
            compiled.encode_columns(keys, list(reversed(keys)), column, **bounds)
            compiled.encode_columns(keys, keys, column, **bounds | {"time_delta": 2**70})
            compiled.encode_record(2**70, 0, b"k", b"v", headers[0])
            compiled.encode_record(7, 0, b"k", b"v", headers[0])
            compiled.check_records(b"", 0, 2**70, 0)
            compiled.varint(2**70)
        refused: list[Callable[[], Any]] = [
            lambda: compiled.encode_record(0, 0, b"k", b"v", (("name", 7),)),
            lambda: compiled.encode_columns(keys, keys[:1], headers, **bounds),
            lambda: compiled.encode_columns(keys, keys, [(("\ud800", b""),)] * 3, **bounds),
            lambda: compiled.check_records(b"", 0, "x", 0),
            lambda: compiled.encode_record(0.5, 0, None, None, ()),
        ]
        for action in refused * 10:
            assert is_refused(action)

    all_of_it()
    functions = [plain_kernel.varint, plain_kernel.encode_record, plain_kernel.encode_columns, plain_kernel.check_records]
    rows = [keys, headers, keys[0], keys[2], *headers, *headers[0], *headers[2]]
    shared = [DecodeError, sys.modules["ottla.errors"], plain_kernel, *functions, *rows, *batches]
    counts = reference_counts(shared)
    grown = []
    for _ in range(5):  # of which one is without what pytest and other threads have made meanwhile
        before = sys.getallocatedblocks()
        for _ in range(5):
            all_of_it()
        grown.append(sys.getallocatedblocks() - before)
    assert min(grown) < 20
    assert reference_counts(shared) == counts
