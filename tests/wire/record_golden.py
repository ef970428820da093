"""Records the golden vectors: what real clients send, and what they are answered.

``python -m tests.wire.record_golden`` lets each client do its round against a broker behind a proxy, and writes of each API and
version the exchange with most in it to ``tests/wire/golden/<client>.txt``. Run by hand when a client is new; the files are kept.
kcat and the Java client take part where they are installed (``make interop`` builds the latter).
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]
from kafka.admin import NewTopic as PythonNewTopic
from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.proxy import Exchange, Proxy

from ottla.messages.registry import APIS

GOLDEN = Path(__file__).parent / "golden"
BYTES_MAX = 3_000  # of one exchange
WAIT_SECONDS_MAX = 30.0
JAVA = Path(__file__).parents[1] / "interop" / "target" / "java"


def confluent(bootstrap: str) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": "golden"}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("golden", 2, 1, config={"segment.bytes": "1048576"})])["golden"].result(WAIT_SECONDS_MAX)
    for future in admin.describe_configs([ConfigResource("topic", "golden")]).values():
        future.result(WAIT_SECONDS_MAX)
    admin.list_topics(timeout=WAIT_SECONDS_MAX)
    producer = confluent_kafka.Producer(settings | {"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 100})
    for number in range(4):
        producer.produce("golden", b"value %d" % number, b"key %d" % number, headers=[("header", b"content")])
    producer.flush(WAIT_SECONDS_MAX)
    group = {"group.id": "golden-group", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 50, "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(settings | group)
    consumer.subscribe(["golden"])
    got = 0
    while got < 4:
        got += len(consumer.consume(4, 0.2))
    consumer.commit(asynchronous=False)
    consumer.poll(0.3)
    consumer.offsets_for_times([confluent_kafka.TopicPartition("golden", 0, 0)], WAIT_SECONDS_MAX)
    admin.list_consumer_groups().result(WAIT_SECONDS_MAX)
    admin.describe_consumer_groups(["golden-group"])["golden-group"].result(WAIT_SECONDS_MAX)
    consumer.close()
    admin.delete_consumer_groups(["golden-group"])["golden-group"].result(WAIT_SECONDS_MAX)
    admin.delete_topics(["golden"])["golden"].result(WAIT_SECONDS_MAX)


def kafka_python(bootstrap: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap, client_id="golden")
    admin.create_topics([PythonNewTopic("golden", 2, 1)])
    admin.describe_topics(["golden"])
    admin.describe_cluster()
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, client_id="golden", compression_type="gzip", linger_ms=50)
    for number in range(4):
        producer.send("golden", b"value %d" % number, b"key %d" % number, headers=[("header", b"content")])
    producer.close(WAIT_SECONDS_MAX)
    consumer = kafka.KafkaConsumer(
        "golden", bootstrap_servers=bootstrap, client_id="golden", group_id="golden-group", auto_offset_reset="earliest",
        heartbeat_interval_ms=50, enable_auto_commit=False,
    )  # fmt: skip
    for _ in range(4):
        next(consumer)
    consumer.commit()
    consumer.poll(300)
    consumer.end_offsets(list(consumer.assignment()))
    admin.list_groups()
    admin.describe_groups(["golden-group"])
    admin.list_group_offsets({"golden-group": None})
    consumer.close()
    admin.delete_groups(["golden-group"])
    admin.delete_topics(["golden"])
    admin.close()


def aiokafka_client(bootstrap: str) -> None:
    asyncio.run(_aiokafka(bootstrap))


async def _aiokafka(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="golden")
    await admin.start()
    await admin.create_topics([AioNewTopic("golden", 2, 1)])
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, client_id="golden", enable_idempotence=True, compression_type="snappy"
    )
    await producer.start()
    for number in range(4):
        await producer.send("golden", b"value %d" % number, b"key %d" % number, headers=[("header", b"content")])
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        "golden", bootstrap_servers=bootstrap, client_id="golden", group_id="golden-group", auto_offset_reset="earliest",
        heartbeat_interval_ms=50, enable_auto_commit=False,
    )  # fmt: skip
    await consumer.start()
    for _ in range(4):
        await consumer.getone()
    await consumer.commit()
    await consumer.getmany(timeout_ms=300)
    await consumer.end_offsets(consumer.assignment())
    await admin.list_consumer_groups()
    await admin.describe_consumer_groups(["golden-group"])
    await admin.list_consumer_group_offsets("golden-group")
    await consumer.stop()
    await admin.delete_topics(["golden"])
    await admin.close()


def kcat(bootstrap: str) -> None:
    command = ["kcat", "-q", "-b", bootstrap, "-X", "client.id=golden"]
    subprocess.run([*command, "-L", "-t", "golden"], check=True, capture_output=True)
    subprocess.run([*command, "-P", "-t", "golden", "-K:", "-z", "snappy"], check=True, input=b"key:value\nkey:other\n")
    subprocess.run(
        [*command, "-X", "auto.offset.reset=earliest", "-c", "2", "-G", "golden-group", "golden"], check=True, capture_output=True
    )


def java(bootstrap: str) -> None:
    command = ["java", "-cp", f"{JAVA}/classes:{JAVA}/lib/*", "interop.Client"]
    subprocess.run([*command, "create", bootstrap, "golden", "2"], check=True, capture_output=True)
    subprocess.run([*command, "produce", bootstrap, "golden", "zstd", "4", "4"], check=True, capture_output=True, input=b"\n")
    subprocess.run([*command, "consume", bootstrap, "golden", "golden-group", "4"], check=True, capture_output=True)


def clients() -> dict[str, tuple[str, Callable[[str], None]]]:
    """By file name: what the file says of the client, and its round."""
    version = importlib.metadata.version
    found: dict[str, tuple[str, Callable[[str], None]]] = {
        "confluent-kafka": (f"librdkafka {confluent_kafka.libversion()[0]} (confluent-kafka {version('confluent-kafka')})", confluent),
        "kafka-python": (f"kafka-python {version('kafka-python')}", kafka_python),
        "aiokafka": (f"aiokafka {version('aiokafka')}", aiokafka_client),
    }
    if shutil.which("kcat"):
        text = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        found["kcat"] = (next(line for line in text.splitlines() if line.startswith("Version")), kcat)
    if shutil.which("java") and (JAVA / "classes").is_dir():
        jar = next((JAVA / "lib").glob("kafka-clients-*.jar"))
        found["java"] = (f"Apache {jar.stem.replace('-', ' ')} (Java)", java)
    return found


def record(life: Callable[[str], None]) -> list[Exchange]:
    with tempfile.TemporaryDirectory(prefix="ottla-golden-") as directory, Proxy() as proxy:
        port = proxy.target_port = lasting_port()
        with BrokerProcess(Path(directory), port=port, num_partitions="2", advertised_listeners=f"PLAINTEXT://{proxy.bootstrap}"):
            life(proxy.bootstrap)
    return proxy.exchanges


def chosen(exchanges: list[Exchange]) -> dict[tuple[int, int], Exchange]:
    """Of each API and version the largest exchange that is answered and not too large."""
    best: dict[tuple[int, int], Exchange] = {}
    for exchange in exchanges:
        key = exchange.api_key, exchange.version
        if exchange.response is not None and size_of(exchange) <= BYTES_MAX and size_of(exchange) > size_of(best.get(key)):
            best[key] = exchange
    return best


def size_of(exchange: Exchange | None) -> int:
    return 0 if exchange is None else len(exchange.request) + len(exchange.response or b"")


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name, (text, life) in clients().items():
        lines = [f"# {text}: API key, version, request, response (header and body, no length), in hex"]
        for (key, version), exchange in sorted(chosen(record(life)).items()):
            assert exchange.response is not None, "only answered exchanges are chosen"
            lines.append(f"# {APIS[key].name}")
            lines.append(f"{key} {version} {exchange.request.hex()} {exchange.response.hex()}")
        (GOLDEN / f"{name}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
