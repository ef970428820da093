"""``make bench-spark``, first form: rows a second through the Spark source, batch read to the noop sink.

100-byte values, keys of 8 bytes, local[2]; the second and later reads count (the first one warms the JVM and the workers).
"""

from __future__ import annotations

import statistics
import sys
import time

from bench.generator import connect, create_topic, exchange, frame
from bench.peers import Ottla
from ottla.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.builder import BatchBuilder

PARTITIONS = 4
ROWS = 2_000_000
ROWS_A_BATCH = 1000
ROUNDS = 4


def main() -> None:
    from ottla.spark import session

    with Ottla() as broker:
        create_topic(broker.address, "rows", PARTITIONS)
        _fill(broker.address)
        spark = session("bench", master="local[2]")
        host, port = broker.address
        rates = []
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", f"{host}:{port}").option("subscribe", "rows")
        for _ in range(ROUNDS):
            start = time.perf_counter()
            reader.load().write.format("noop").mode("overwrite").save()
            rates.append(ROWS / (time.perf_counter() - start))
        count = reader.load().count()
        spark.stop()
    assert count == ROWS, f"{count} of {ROWS} rows came"
    sys.stdout.write(
        f"Spark source rows/s, warm, median of {ROUNDS - 1}: {statistics.median(rates[1:]):,.0f} (first, cold: {rates[0]:,.0f})\n"
    )


def _fill(address: tuple[str, int]) -> None:
    builder = BatchBuilder()
    for number in range(ROWS_A_BATCH):
        builder.append(b"%08d" % number, bytes(100), timestamp_ms=time.time_ns() // 1_000_000)
    batch = builder.build()
    with connect(address) as sock:
        for number in range(ROWS // ROWS_A_BATCH):
            data = TopicProduceData("rows", partition_data=[PartitionProduceData(number % PARTITIONS, batch)])
            exchange(sock, frame(ProduceRequest(None, 1, 30_000, [data]), 7))


if __name__ == "__main__":
    main()
