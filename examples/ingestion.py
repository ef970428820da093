"""Ingestion: the lines of a growing file go to a topic, and from there to Parquet files.

    python examples/ingestion.py localhost:9092 app.log lake/

The first half ships lines, keyed by their host; the idempotent producer stores each once, also when it has to send again. The
second half writes what has come as one Parquet file for each round, named after the offsets that it holds, and commits only then:
a round that is written again after a crash overwrites the same file.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition

TOPIC = "ingestion.lines"
PARTITIONS = 2


def ship(bootstrap: str, path: Path) -> int:
    """Every line is in the topic; how many there were."""
    with Producer(bootstrap, linger_ms=20, compression_type="zstd") as producer, path.open("rb") as lines:
        count = 0
        for line in lines:
            host, _, text = line.rstrip(b"\n").partition(b" ")
            producer.send(TOPIC, text, key=host)
            count += 1
    return count


def load(bootstrap: str, directory: Path) -> int:
    """What the topic holds and the directory does not, yet, is in it; how many rows came."""
    directory.mkdir(parents=True, exist_ok=True)
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    rows = 0
    with Consumer(bootstrap, group_id="lake", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            by_partition = defaultdict(list)
            for record in consumer.poll(5000):
                by_partition[record.partition].append(record)
            for partition, records in by_partition.items():
                table = pa.table(
                    {
                        "host": pa.array([record.key for record in records], pa.binary()).cast(pa.string()),
                        "line": pa.array([record.value for record in records], pa.binary()).cast(pa.string()),
                        "offset": [record.offset for record in records],
                    }
                )
                pq.write_table(table, directory / f"{partition}-{records[0].offset:020d}.parquet")
                rows += len(records)
            consumer.commit()
    return rows


def main() -> None:
    bootstrap, path, directory = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
    print(f"{ship(bootstrap, path)} lines shipped")
    print(f"{load(bootstrap, directory)} rows written")


if __name__ == "__main__":
    main()
