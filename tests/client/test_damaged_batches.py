"""A leader's copy has a damaged batch: its consumers get all but that, and are told where it is."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import iterate_batches
from ottla.sync import Consumer, Producer
from ottla.testing import broker

COUNT = 5


def test_records_before_a_damaged_batch_and_of_other_partitions_come_and_a_seek_goes_past_it() -> None:
    """None of them came: each answer that had the batch was dropped as a whole, and the error named neither partition nor broker."""
    with broker() as served:
        topic = served.topic(partitions=2)
        with Producer(served.bootstrap, linger_ms=0) as producer:
            for number in range(COUNT):
                for partition in (0, 1):
                    producer.send_and_wait(topic, b"%d" % number, partition=partition)
        [path] = served._layout.directory.rglob(f"{topic}-0/*.log")
        data = bytearray(path.read_bytes())
        ends = [at + header.size_bytes for at, header in iterate_batches(memoryview(bytes(data)))]
        data[ends[2] - 1] ^= 1
        path.write_bytes(data)

        came: dict[int, list[int]] = {0: [], 1: []}
        with Consumer(served.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([(topic, 0), (topic, 1)])

            def read_until(partition: int, offsets: list[int]) -> None:
                while came[partition] != offsets:
                    for record in consumer.poll(10_000):
                        came[record.partition].append(record.offset)

            with pytest.raises(KafkaError) as caught:
                read_until(0, list(range(COUNT)))
            assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
            assert f"{topic}-0 at offset 2, from broker 1: the batch at byte 0 (offset 2) fails its CRC" in caught.value.message
            assert came[0] == [0, 1]
            consumer.seek((topic, 0), 3)
            read_until(0, [0, 1, 3, 4])
            read_until(1, list(range(COUNT)))
