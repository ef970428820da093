"""How a topic that compresses by itself stores what comes."""

from __future__ import annotations

import pytest

from ottla.records.batch import HEADER
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Codec
from ottla.records.iteration import iterate_records
from ottla.storage.config import LogConfig
from ottla.storage.log.batch_rules import BatchRules, apply_rules

VALUES = [b'{"id": %d, "name": "user-%d", "city": "%d"}' % (number, number * 7 % 1000, number % 13) for number in range(2000)]


def stored(**config: object) -> memoryview:
    builder = BatchBuilder()
    for value in VALUES:
        builder.append(None, value, timestamp_ms=1)
    rules = BatchRules.of(LogConfig(**config))  # type: ignore[arg-type]
    batch = memoryview(builder.build())
    return apply_rules(batch, HEADER.unpack_from(batch), rules, 1)[0]


@pytest.mark.parametrize(
    ("codec", "fast", "thorough"), [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, -50, 19)], ids=lambda value: str(value)
)
def test_the_level_decides_how_thoroughly_a_topic_compresses(codec: Codec, fast: int, thorough: int) -> None:
    name = codec.name.lower()
    sizes = []
    for level in (fast, thorough):
        batch = stored(compression_type=name, **{f"compression_{name}_level": level})
        assert [bytes(record.value or b"") for record in iterate_records(batch, 0)] == VALUES
        sizes.append(len(batch))
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd", "snappy"])
def test_the_default_levels_are_the_codecs_usual_ones(name: str) -> None:
    assert len(stored(compression_type=name)) < len(stored()) / 2
