"""Frames come out whole however the bytes came in."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.errors import DecodeError
from ottla.wire.frame_memory import (
    ANSWER_BYTES_MAX,
    ANSWER_SPARES_MAX,
    SPARE_BYTES_MAX,
    SPARE_BYTES_MIN,
    SPARES_MAX,
    STEP_BYTES,
    AnswerMemory,
    FrameMemory,
)
from ottla.wire.frames import ROOM_BYTES_MIN, FrameCutter

LIMIT = 1 << 20


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def cut(cutter: FrameCutter, pieces: list[bytes]) -> list[bytes]:
    """What comes out; each piece's memory is spoiled as soon as the next one arrives, as a pooled buffer's is."""
    frames: list[bytes] = []
    kept: list[memoryview] = []
    for piece in pieces:
        buffer = bytearray(piece)
        for view, is_shared in cutter.feed(memoryview(buffer)):
            frames.append(bytes(view))
            if not is_shared:
                kept.append(view)
        buffer[:] = b"\xee" * len(buffer)
    assert all(bytes(view) in frames for view in kept), "a frame that has memory of its own keeps it"
    return frames


@given(st.lists(st.binary(max_size=30), max_size=6), st.data())
def test_any_chunking_gives_the_same_frames(contents: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(frame, contents))
    ends = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)])]
    cutter = FrameCutter(LIMIT)
    assert cut(cutter, pieces) == contents
    assert not cutter.is_inside_frame


@given(st.lists(st.sampled_from([0, 1, 40_000, ROOM_BYTES_MIN, ROOM_BYTES_MIN + 5000, 300_000]), max_size=5), st.integers(0, 1 << 32))
def test_what_is_received_in_its_place_gives_the_same_frames(sizes: list[int], seed: int) -> None:
    random = Random(seed)
    contents = [random.randbytes(size) for size in sizes]
    stream = b"".join(map(frame, contents))
    cutter, frames, position = FrameCutter(LIMIT, AnswerMemory()), list[bytes](), 0
    while position < len(stream):
        size = random.choice([1, 1000, 65_536, 262_144])
        room = cutter.room() if random.random() < 0.7 else None
        data = (memoryview(bytearray(size)) if room is None else room)[:size][: len(stream) - position]
        data[:] = stream[position : position + len(data)]
        frames += [bytes(view) for view, _ in cutter.feed(data)]
        position += len(data)
    assert frames == contents
    assert cutter.room() is None


def test_there_is_no_room_for_little_or_for_what_was_only_declared() -> None:
    cutter = FrameCutter(LIMIT, AnswerMemory())
    list(cutter.feed(memoryview(bytearray(frame(bytes(ROOM_BYTES_MIN))[:-1]))))
    assert cutter.room() is None
    cutter = FrameCutter(LIMIT)
    list(cutter.feed(memoryview(bytearray(frame(bytes(LIMIT))[:10]))))
    assert cutter.room() is None


def test_byte_by_byte() -> None:
    contents = [b"", b"a", b"two", bytes(300)]
    stream = b"".join(map(frame, contents))
    assert cut(FrameCutter(LIMIT), [stream[at : at + 1] for at in range(len(stream))]) == contents


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 200_000, LIMIT])
def test_large_frames_in_pieces(size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    stream = frame(content[:size]) + frame(b"next")
    pieces = [stream[at : at + 10_007] for at in range(0, len(stream), 10_007)]
    assert cut(FrameCutter(LIMIT), pieces) == [content[:size], b"next"]


def test_frames_that_arrive_complete_are_not_copied() -> None:
    data = memoryview(frame(b"one") + frame(b"two") + frame(b"cut")[:5])
    frames = list(FrameCutter(LIMIT).feed(data))
    assert [(bytes(view), is_shared) for view, is_shared in frames] == [(b"one", True), (b"two", True)]
    assert all(view.obj is data.obj for view, _ in frames)


def test_a_frame_that_was_cut_has_memory_of_its_own() -> None:
    cutter = FrameCutter(LIMIT)
    stream = frame(b"in two pieces") + frame(b"whole")
    assert list(cutter.feed(memoryview(stream)[:9])) == []
    second = memoryview(stream)[9:]
    (first_view, is_first_shared), (view, is_shared) = cutter.feed(second)
    assert (bytes(first_view), is_first_shared) == (b"in two pieces", False)
    assert (bytes(view), is_shared) == (b"whole", True)
    assert first_view.obj is not second.obj


@pytest.mark.parametrize("length", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_negative_and_oversized_lengths_are_refused_as_soon_as_they_are_known(length: int, size: int) -> None:
    cutter = FrameCutter(LIMIT)
    stream = struct.pack(">i", length) + bytes(96)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert cut(cutter, pieces[: 3 // size]) == []
    with pytest.raises(DecodeError, match=f"a frame of {length} bytes"):
        cut(cutter, pieces[3 // size : 3 // size + 2])


def test_frames_before_a_bad_one_still_come_out() -> None:
    cutter = FrameCutter(LIMIT)
    frames = cutter.feed(memoryview(frame(b"good") + struct.pack(">i", -1)))
    assert bytes(next(frames)[0]) == b"good"
    with pytest.raises(DecodeError):
        next(frames)


def test_the_limit_is_inclusive_and_may_be_raised_between_frames() -> None:
    cutter = FrameCutter(3)
    assert cut(cutter, [frame(b"abc")]) == [b"abc"]
    cutter.limit_bytes = 4
    assert cut(cutter, [frame(b"abcd")]) == [b"abcd"]
    with pytest.raises(DecodeError):
        cut(cutter, [frame(b"abcde")])


def test_a_declared_length_costs_memory_only_as_bytes_arrive() -> None:
    cutter = FrameCutter(2**31 - 1)
    tracemalloc.start()
    try:
        assert list(cutter.feed(memoryview(struct.pack(">i", 2**31 - 1) + bytes(10)))) == []
        _, peak_bytes = tracemalloc.get_traced_memory()
        assert peak_bytes < 300_000
        tracemalloc.reset_peak()
        assert list(cutter.feed(memoryview(bytes(200_000)))) == []
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000
    assert cutter.is_inside_frame


def collected(memory: FrameMemory, content: bytes) -> memoryview:
    """A frame that came in two pieces."""
    cutter, stream = FrameCutter(8 << 20, memory), frame(content)
    assert list(cutter.feed(memoryview(stream)[: len(stream) // 2])) == []
    [(view, is_shared)] = cutter.feed(memoryview(stream)[len(stream) // 2 :])
    assert not is_shared
    return view


def test_the_memory_of_a_large_frame_is_used_again_when_nothing_looks_at_it() -> None:
    memory = FrameMemory()
    first = collected(memory, b"1" * (SPARE_BYTES_MIN + 1000))
    part = first[100:200]
    owner = first.obj
    del first
    second = collected(memory, b"2" * SPARE_BYTES_MIN)
    assert second.obj is not owner, "a part of it is still looked at"
    del part
    third = collected(memory, b"3" * SPARE_BYTES_MIN)
    assert third.obj is owner
    assert bytes(third) == b"3" * SPARE_BYTES_MIN
    assert bytes(second) == b"2" * SPARE_BYTES_MIN


def test_frames_that_are_kept_stay_as_they_were_however_many_come_after_them() -> None:
    memory = FrameMemory()
    sizes = [SPARE_BYTES_MIN + 1000 * (index % 5) for index in range(4 * SPARES_MAX)]
    kept = [(collected(memory, bytes([index]) * size), index) for index, size in enumerate(sizes)]
    assert all(bytes(view) == bytes([index]) * size for (view, index), size in zip(kept, sizes))


def test_spares_are_few_and_none_is_very_large() -> None:
    memory = FrameMemory()
    for size in [SPARE_BYTES_MAX] * 2 * SPARES_MAX + [3 * SPARE_BYTES_MAX]:
        memory.take_back(bytearray(size))
    lent = [memory.lend(SPARE_BYTES_MIN) for _ in range(2 * SPARES_MAX)]
    assert [len(spare) for spare in lent] == [SPARE_BYTES_MAX] * SPARES_MAX + [0] * SPARES_MAX


def test_answers_of_nearly_one_size_share_their_memory() -> None:
    """A follower's answers are a few bytes longer than twice a mebibyte, one after the other."""
    memory = AnswerMemory()
    first = collected(memory, b"1" * (2 * STEP_BYTES + 100))
    place = id(first.obj)
    assert bytes(first) == b"1" * (2 * STEP_BYTES + 100)
    first.release()
    for size in (2 * STEP_BYTES + 200, 3 * STEP_BYTES, SPARE_BYTES_MIN):
        found = collected(memory, b"2" * size)
        assert bytes(found) == b"2" * size
        assert id(found.obj) == place
        found.release()


def test_the_memory_of_answers_is_bounded() -> None:
    memory = AnswerMemory()
    assert memory.lend(ANSWER_BYTES_MAX + 1) == b"", "it grows with what arrives"
    assert memory.lend(SPARE_BYTES_MIN - 1) == b""
    for _ in range(2 * ANSWER_SPARES_MAX):
        memory.take_back(bytearray(ANSWER_BYTES_MAX))
    memory.take_back(bytearray(ANSWER_BYTES_MAX + 1))
    assert [len(spare) for spare in memory._spares] == [ANSWER_BYTES_MAX] * ANSWER_SPARES_MAX
