"""What a broker's directory of an earlier version holds: how it is written, and what each later version must find in it.

``python -m tests.broker.older_directories NAME`` writes ``golden/directories/NAME-killed.tar.gz`` and ``NAME-stopped.tar.gz`` with the
version that runs: do so at each release. Archives are never written a second time.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final, Literal

from tests.waiting import eventually

from ottla.runtime.serve import BrokerThread
from ottla.sync import (
    Acl,
    Admin,
    Consumer,
    NewTopic,
    Operation,
    Producer,
    ResourceType,
    TopicPartition,
    UserChange,
)

ARCHIVES: Final = Path(__file__).parent / "golden" / "directories"
KEPT: Final = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1), "message.timestamp.after.max.ms": str(2**63 - 1)}
CODECS: Final[tuple[Literal["none", "gzip", "snappy", "lz4", "zstd"], ...]] = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS, TRIMMED, COMPACTED, MOVED = (TopicPartition(name, 0) for name in ("records", "trimmed", "compacted", "moved"))
ALLOWED: Final = Acl(ResourceType.TOPIC, "records", "User:alice", Operation.READ)
QUOTA: Final = {"producer_byte_rate": 1048576.0}
COUNT: Final = 120
"""Of records of each codec: segments of 4 KiB are begun several times."""


def config_of(directory: Path) -> dict[str, str]:
    """Returns the settings with which a directory is written and opened. Nothing in it grows old."""
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "log.segment.bytes": "4096",
        "metadata.log.max.record.bytes.between.snapshots": "1500",
        "offsets.topic.num.partitions": "2",
        "offsets.retention.minutes": str(2**31 - 1),
        "transaction.state.log.num.partitions": "2",
        "transactional.id.expiration.ms": str(2**31 - 1),
        "group.initial.rebalance.delay.ms": "0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }


def value_of(codec: str, number: int) -> bytes | None:
    """Returns the value of a record of ``records``: each seventh has none."""
    return None if number % 7 == 6 else f"{codec}-{number}".encode() * (number % 5 + 1)


def write(bootstrap: str) -> None:
    """Writes all that a directory of an earlier version holds; one transaction stays open."""
    with Admin(bootstrap) as admin:
        topics = [NewTopic(key.topic, 1, 1, configs=KEPT) for key in (RECORDS, TRIMMED, MOVED)]
        topics.append(NewTopic(COMPACTED.topic, 1, 1, configs=KEPT | {"cleanup.policy": "compact"}))
        assert set(admin.create_topics(topics).values()) == {None}
    for codec in CODECS:
        with Producer(bootstrap, compression_type=codec) as producer:
            for number in range(COUNT):
                producer.send(
                    RECORDS.topic, value_of(codec, number), key=b"%d" % number, headers=[("codec", codec.encode())], timestamp_ms=number
                )
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(TRIMMED.topic, b"%d" % number)
            producer.send(COMPACTED.topic, b"%d" % number, key=b"%d" % (number % 3))
        producer.flush()
    _write_transactions(bootstrap)
    with Consumer(bootstrap, group_id="classic") as consumer:
        consumer.commit({RECORDS: 7})
    next_generation = Consumer(
        bootstrap, group_id="of-the-next-generation", group_protocol="consumer", auto_offset_reset="earliest", enable_auto_commit=False
    )
    with next_generation as consumer:
        consumer.subscribe([TRIMMED.topic])
        eventually(lambda: consumer.poll(500), bool)
        consumer.commit({TRIMMED: 6})
    with Admin(bootstrap) as admin:
        assert admin.delete_records({TRIMMED: 5}) == {TRIMMED: 5}
        assert set(admin.alter_client_quotas({(("user", "alice"),): QUOTA}).values()) == {None}
        assert set(admin.alter_users([UserChange("alice", "SCRAM-SHA-256", "of-alice")]).values()) == {None}
        assert set(admin.create_acls([ALLOWED]).values()) == {None}


def _write_transactions(bootstrap: str) -> None:
    """Writes a transaction that is committed with a group's offset, one that is aborted, and the first record of one that stays open."""
    with Producer(bootstrap, transactional_id="mover") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(MOVED.topic, b"committed")
            with Consumer(bootstrap, group_id="moved") as consumer:
                producer.send_offsets_to_transaction({RECORDS: 11}, consumer.group_metadata())
        producer.begin_transaction()
        producer.send(MOVED.topic, b"aborted").result(30)
        producer.abort_transaction()
    left = Producer(bootstrap, transactional_id="left-open", transaction_timeout_ms=900_000)
    left.init_transactions()
    left.begin_transaction()
    left.send(MOVED.topic, b"open").result(30)


def _pack(directory: Path, name: str) -> None:
    with tarfile.open(ARCHIVES / f"{name}.tar.gz", "x:gz") as archive:
        archive.add(directory, "data")


def unpack(name: str, into: Path) -> Path:
    """Returns the directory that the archive holds."""
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        archive.extractall(into, filter="data")
    return into / "data"


def main(name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "data"
        with BrokerThread(config_of(directory)) as broker:
            write(broker.bootstrap)
            _pack(directory, f"{name}-killed")
        _pack(directory, f"{name}-stopped")


if __name__ == "__main__":
    main(*sys.argv[1:])
