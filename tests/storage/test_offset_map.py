"""The map of a cleaning's keys."""

from __future__ import annotations

import pytest

from ottla.storage.compaction.offset_map import FIRST_SLOTS, SLOT_BYTES, OffsetMap


@pytest.mark.parametrize("slots", [2, 10, FIRST_SLOTS, FIRST_SLOTS * 3, FIRST_SLOTS * 20])
def test_every_key_has_its_newest_offset_until_the_map_is_full(slots: int) -> None:
    offsets = OffsetMap(slots * SLOT_BYTES, 0.9)
    expected: dict[bytes, int] = {}
    offset = 0
    while not offsets.is_full:
        fresh = b"%d" % len(expected)
        for key in (fresh, b"%d" % (len(expected) // 2)):
            offsets.put(key, offset)
            expected[key] = offset
            offset += 1
    assert offsets.count == len(expected) == max(1, min(int(slots * 0.9), slots - 1))
    assert {key: offsets.get(key) for key in expected} == expected
    assert offsets.get(b"unknown") == -1


def test_a_map_takes_the_memory_of_its_keys_and_not_of_its_bound() -> None:
    offsets = OffsetMap(1 << 40, 0.9)
    offsets.put(b"key", 7)
    assert offsets.get(b"key") == 7
