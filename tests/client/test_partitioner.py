"""Where records go: mechanisms 12 and 13, the client's half."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from ottla.client.partitioner import StickyPartitioner, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_mechanism_12_murmur2_equals_kafkas_own_vectors(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_mechanism_12_murmur2_equals_kafka_pythons(key: bytes) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF
    assert partition_for_key(key, 7) == (kafka_python_murmur2(key) & 0x7FFFFFFF) % 7


def test_mechanism_13_batches_without_keys_are_spread_evenly() -> None:
    sticky = StickyPartitioner(random.Random(1))
    counts: Counter[int] = Counter()
    for _ in range(6000):
        partition = sticky.partition("t", 6)
        assert sticky.partition("t", 6) == partition, "it sticks until the batch is closed"
        counts[partition] += 1
        sticky.on_batch_closed("t", partition, 6)
    assert set(counts) == set(range(6))
    assert max(counts.values()) < 1.2 * min(counts.values())


def test_a_closed_batch_of_another_partition_moves_nothing() -> None:
    sticky = StickyPartitioner(random.Random(1))
    current = sticky.partition("t", 3)
    sticky.on_batch_closed("t", (current + 1) % 3, 3)
    assert sticky.partition("t", 3) == current
    sticky.on_batch_closed("t", current, 3)
    assert sticky.partition("t", 3) != current
