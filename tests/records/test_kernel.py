"""The record kernel in the form that this run has. That both forms are equal is held by tests/kernel."""

import hashlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from ottla.errors import DecodeError
from ottla.records import kernel
from ottla.records.builder import BatchBuilder
from ottla.records.kernel import decode_columns
from ottla.records.plain_kernel import varint

some_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=2).map(tuple)
rows = st.lists(st.tuples(some_bytes, some_bytes, headers), min_size=1, max_size=20)
NAMES = ("offsets", "times", "keys", "values", "headers")


def columns_of(data: bytes, count: int, *, first: int = 0, last: int = 2**31 - 1, position: int = 0, **changed: Any) -> dict[str, Any]:
    """Every column, but for those that are None in ``changed``; and where the records end."""
    columns: dict[str, Any] = {name: [] for name in NAMES} | changed
    numbers = {"base_offset": 0, "base_timestamp": 0, "last_delta": 2**31 - 1, "delta_min": first, "delta_max": last}
    return columns | {"end": decode_columns(data, position, count, **(numbers | columns))}


@given(rows, st.integers(0, 19), st.integers(100, 3_000), st.booleans())
def test_columns_become_the_batch_that_their_rows_become(content: Any, start: int, size_max: int, with_headers: bool) -> None:
    keys, values, all_headers = map(list, zip(*content))
    start = min(start, len(keys) - 1)
    columns, one_by_one = BatchBuilder(), BatchBuilder()
    for builder in (columns, one_by_one):
        builder.append(b"first", None, timestamp_ms=5)
    end = columns.extend(keys, values, all_headers if with_headers else None, start=start, end=len(keys), timestamp_ms=9, size_max=size_max)
    for at in range(start, end):
        assert one_by_one.size_bytes < size_max
        one_by_one.append(keys[at], values[at], all_headers[at] if with_headers else (), timestamp_ms=9)
    assert columns.build() == one_by_one.build()
    assert end >= len(keys) or columns.size_bytes >= size_max
    theirs = list(MemoryRecords(bytes(columns.build())).next_batch())[1:]
    assert [record.value for record in theirs] == values[start:end]


@given(rows, st.integers(0, 20), st.integers(0, 20))
def test_a_walk_can_be_cut_anywhere_and_leaves_out_what_is_not_wanted(content: Any, cut: int, first: int) -> None:
    builder = BatchBuilder()
    for key, value, head in content:
        builder.append(key, value, head, timestamp_ms=7)
    data = bytes(builder.build()[61:])
    whole = columns_of(data, len(content))
    assert (whole["keys"], whole["values"], whole["headers"]) == tuple(map(list, zip(*content)))
    assert whole["end"] == len(data)
    cut = min(cut, len(content))
    one = columns_of(data, cut)
    two = columns_of(data, len(content) - cut, position=one["end"])
    assert {name: one[name] + two[name] for name in NAMES} == {name: whole[name] for name in NAMES}
    late = columns_of(data, len(content), first=first, headers=None, keys=None)
    assert late["values"] == whole["values"][first:]
    assert late["offsets"] == whole["offsets"][first:]
    assert late["end"] == len(data)


def record(*, attributes_to_delta: bytes = b"\0\0\0", rest: bytes = b"\1\1\0", grow: int = 0) -> bytes:
    body = attributes_to_delta + rest
    return varint(len(body) + grow) + body


def test_the_hand_made_record_is_good() -> None:
    assert columns_of(record(), 1)["offsets"] == [0]


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("a length of 33 bits", bytes.fromhex("8080808020") + record()),
        ("a length of 64 bits", b"\xff" * 9 + b"\x01" + record()),
        ("an offset of 40 bits", record(attributes_to_delta=b"\0\0" + varint(2**40))),
        ("a negative offset", record(attributes_to_delta=b"\0\0" + varint(-1))),
        ("a time of 65 bits", record(attributes_to_delta=b"\0" + b"\xff" * 9 + b"\x02\0")),
        ("an offset after the record's end", varint(2) + b"\0\0\0" + b"\1\1\0"),
        ("a record that is longer than its fields", record(grow=1) + b"\0"),
        ("a record that is shorter than its fields", record(grow=-1)),
    ],
)
def test_a_record_with_false_fields_is_a_decode_error_wanted_or_not(what: str, data: bytes) -> None:
    with pytest.raises(DecodeError):
        columns_of(data, 1)
    if "fields" not in what:  # of a record that is not wanted, only its place is looked at
        with pytest.raises(DecodeError):
            columns_of(data, 1, first=5)


def test_times_reach_all_of_64_bits() -> None:
    for delta in (2**63 - 1, -(2**63), 63, 64, -64, -65):
        assert columns_of(record(attributes_to_delta=b"\0" + varint(delta) + b"\0"), 1)["times"] == [delta]


def test_a_compiled_form_that_cannot_be_loaded_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = importlib.import_module

    def refuse(name: str) -> ModuleType:
        if name == kernel.COMPILED:
            raise ImportError("wrong ELF class")
        return imported(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert kernel._chosen("").__name__ == "ottla.records.plain_kernel"
    with pytest.raises(ImportError, match="for another machine"):
        kernel._chosen("compiled")


@pytest.mark.parametrize("changed", ["plain_kernel.py", "c/walk.h"])
def test_a_compiled_form_of_another_source_is_not_current(tmp_path: Path, changed: str) -> None:
    source = Path(kernel.__file__).parent
    (tmp_path / "c").mkdir()
    for name in ("plain_kernel.py", *(f"c/{name}" for name in kernel.C_SOURCES)):
        shutil.copy(source / name, tmp_path / name)

    def digest(*names: str) -> str:
        return hashlib.sha256(b"".join((tmp_path / name).read_bytes() for name in names)).hexdigest()

    compiled = ModuleType("compiled_kernel")
    vars(compiled).update(SOURCE_SHA256=digest("plain_kernel.py"), C_SHA256=digest(*(f"c/{name}" for name in kernel.C_SOURCES)))
    assert kernel._is_current(compiled, tmp_path)
    (tmp_path / changed).write_text("other")
    assert not kernel._is_current(compiled, tmp_path)
    shutil.rmtree(tmp_path / "c")  # as in a wheel
    assert kernel._is_current(compiled, tmp_path) == (changed != "plain_kernel.py")


@pytest.mark.parametrize(("wanted", "said"), [("plain", "plain"), ("Compiled", "neither plain nor compiled")])
def test_the_environment_chooses_the_form(wanted: str, said: str) -> None:
    command = [sys.executable, "-c", "from ottla.records.kernel import FORM; print(FORM)"]
    environment = os.environ | {"OTTLA_KERNEL": wanted}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert said in done.stdout + done.stderr
