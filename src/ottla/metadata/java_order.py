"""The order in which Java and Scala list the keys of a hash table: Kafka's JSON in ZooKeeper has it, and ours is the same byte for byte.

Source: the layout of ``scala.collection.mutable.HashMap`` (2.13) and of ``java.util.Properties`` (a ConcurrentHashMap), as observed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

SLOTS_MIN = 16


def string_hash(text: str) -> int:
    """Returns ``String.hashCode`` as a hash table uses it: with its upper half mixed into the lower one."""
    data, value = text.encode("utf-16-be", "surrogatepass"), 0
    for place in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[place : place + 2], "big")) & 0xFFFFFFFF
    return value ^ (value >> 16)


def in_scala_order(keys: Iterable[str]) -> list[str]:
    """Sorts the keys as a mutable Scala map does: keys of one slot are chained by their hashes."""
    hashed = [(string_hash(key), key) for key in keys]
    slot_count = SLOTS_MIN
    while len(hashed) >= slot_count * 3 // 4:
        slot_count *= 2
    return [key for _, key in sorted(hashed, key=lambda entry: (entry[0] & (slot_count - 1), _signed(entry[0])))]


def _signed(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


def in_java_order(keys: Iterable[str]) -> list[str]:
    """Sorts the keys as Properties does: keys of one slot are chained in order of arrival, except where a growing table splits a chain."""
    slots: list[list[tuple[int, str]]] = [[] for _ in range(SLOTS_MIN)]
    for count, key in enumerate(keys, 1):
        value = string_hash(key)
        slots[value & (len(slots) - 1)].append((value, key))
        if count >= len(slots) * 3 // 4:
            slots = _grown(slots)
    return [key for _, key in chain.from_iterable(slots)]


def _grown(slots: list[list[tuple[int, str]]]) -> list[list[tuple[int, str]]]:
    """Splits each chain in two. Its last run of keys with one target keeps its order; each earlier key is put in front, one by one."""
    size = len(slots)
    grown: list[list[tuple[int, str]]] = [[] for _ in range(2 * size)]
    for slot, entries in enumerate(slots):
        start = len(entries)
        while start and (entries[start - 1][0] ^ entries[-1][0]) & size == 0:
            start -= 1
        for entry in entries[start:]:
            grown[slot + (entry[0] & size)].append(entry)
        for entry in entries[:start]:
            grown[slot + (entry[0] & size)].insert(0, entry)
    return grown
