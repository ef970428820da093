"""``make bench-client``: the client beside kafka-python, aiokafka and confluent-kafka, all on one ottla broker in a process of its own.

Values of 100 bytes without a key, one partition, acks=all, idempotent, linger.ms=5, batch.size=16384, no compression. Sending is from the
first record to the acknowledgement of the last one, consuming from the first poll to the last record. Rounds are interleaved, the first
one only warms; a figure is the median of the rounds, and a ratio that of the rounds' ratios to kafka-python.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka

from bench.peers import Ottla
from bench.report import RESULTS, note
from ottla import aio, sync
from ottla.records.kernel import FORM

ROUNDS: Final = 3
COUNT: Final = 100_000
VALUE: Final = bytes(100)
TOPIC: Final = "bench"
BESIDE: Final = "kafka-python"
HERE: Final = sync.TopicPartition(TOPIC, 0)


def send_sync(bootstrap: str) -> None:
    with sync.Producer(bootstrap) as producer:
        for _ in range(COUNT):
            producer.send(TOPIC, VALUE)


def send_many_sync(bootstrap: str) -> None:
    with sync.Producer(bootstrap) as producer:
        producer.send_many((TOPIC, VALUE) for _ in range(COUNT))


def send_aio(bootstrap: str) -> None:
    async def main() -> None:
        async with aio.Producer(bootstrap) as producer:
            for _ in range(COUNT):
                await producer.send(TOPIC, VALUE)

    asyncio.run(main())


def send_kafka_python(bootstrap: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, batch_size=16_384, acks="all", enable_idempotence=True)
    for _ in range(COUNT):
        producer.send(TOPIC, VALUE)
    producer.flush()
    producer.close()


def send_aiokafka(bootstrap: str) -> None:
    async def main() -> None:
        settings: dict[str, Any] = {"linger_ms": 5, "max_batch_size": 16_384, "acks": "all", "enable_idempotence": True}
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **settings) as producer:
            for _ in range(COUNT):
                await producer.send(TOPIC, VALUE)
            await producer.flush()

    asyncio.run(main())


def send_confluent(bootstrap: str) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.size": 16_384, "enable.idempotence": True}
    producer = confluent_kafka.Producer(settings | {"queue.buffering.max.messages": COUNT})
    for _ in range(COUNT):
        producer.produce(TOPIC, VALUE)
    assert producer.flush(60) == 0, "every record was acknowledged"


def poll_sync(bootstrap: str) -> None:
    with sync.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([HERE])
        count = 0
        while count < COUNT:
            count += len(consumer.poll(1000))


def iterate_sync(bootstrap: str) -> None:
    with sync.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([HERE])
        for _, _ in zip(range(COUNT), consumer):
            pass


def poll_aio(bootstrap: str) -> None:
    async def main() -> None:
        async with aio.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([HERE])
            count = 0
            while count < COUNT:
                count += len(await consumer.poll(1000))

    asyncio.run(main())


def poll_kafka_python(bootstrap: str) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    count = 0
    while count < COUNT:
        count += sum(map(len, consumer.poll(1000).values()))
    consumer.close()


def poll_aiokafka(bootstrap: str) -> None:
    async def main() -> None:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(TOPIC, 0)])
        count = 0
        while count < COUNT:
            count += sum(map(len, (await consumer.getmany(timeout_ms=1000, max_records=500)).values()))
        await consumer.stop()

    asyncio.run(main())


def poll_confluent(bootstrap: str) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    count = 0
    while count < COUNT:
        count += len(consumer.consume(500, 1.0))
    consumer.close()


Runs = dict[str, Callable[[str], None]]
SENDING: Final[Runs] = {
    "ottla.sync, send": send_sync,
    "ottla.sync, send_many": send_many_sync,
    "ottla.aio, send": send_aio,
    BESIDE: send_kafka_python,
    "aiokafka": send_aiokafka,
    "confluent-kafka": send_confluent,
}
CONSUMING: Final[Runs] = {
    "ottla.sync, poll": poll_sync,
    "ottla.sync, iteration": iterate_sync,
    "ottla.aio, poll": poll_aio,
    BESIDE: poll_kafka_python,
    "aiokafka": poll_aiokafka,
    "confluent-kafka": poll_confluent,
}


def main() -> None:
    with Ottla() as broker:
        with sync.Admin(broker.bootstrap) as admin:
            assert admin.create_topics([sync.NewTopic(TOPIC, 1)]) == {TOPIC: None}
        sending = _rates(SENDING, broker.bootstrap)
        consuming = _rates(CONSUMING, broker.bootstrap)
    lines = [_about(), *_table("send, records/s", sending), "", *_table("consume, records/s", consuming)]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "client.txt").write_text(text)
    rounds = {"send": sending, "consume": consuming}
    (RESULTS / "client.json").write_text(json.dumps({"about": lines[0], "rounds": rounds}, indent=1) + "\n")


def _rates(runs: Runs, bootstrap: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(ROUNDS + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            run(bootstrap)
            if number:  # the first round warms
                found[name].append(COUNT / (time.perf_counter() - begin))
        note(f"round {number} of {ROUNDS}")
    return found


def _about() -> str:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, CPython {platform.python_version()}"
    return f"{datetime.now(UTC).strftime('%Y-%m-%d')}  {machine}; {FORM} record kernel"


def _table(title: str, rates: dict[str, list[float]]) -> list[str]:
    lines = [f"{title:<24}{'median':>10}  beside {BESIDE} (spread)"]
    for name, rounds in rates.items():
        ratios = sorted(own / other for own, other in zip(rounds, rates[BESIDE], strict=True))
        shown = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
        lines.append(f"{name:<24}{statistics.median(rounds):>10,.0f}  {shown}")
    return lines


if __name__ == "__main__":
    main()
