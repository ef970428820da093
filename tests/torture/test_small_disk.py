"""A broker whose second log directory is a real file system of eight megabytes, of which two are its reserve."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.errors import KafkaError
from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, Consumer, NewTopic, Producer, TopicPartition

BALLAST_BYTES = 1 << 22


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(directory)]
    mounted = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert mounted.returncode == 0, f"a small file system is needed, and cannot be mounted here: {mounted.stderr.strip()}"
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], timeout=30, check=True)


def test_a_full_disk_refuses_writes_serves_reads_and_takes_writes_again_when_there_is_room(tmp_path: Path, small: Path) -> None:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": f"{tmp_path / 'data'},{small}"}
    with BrokerThread(properties) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 2)])
        full = next(index for index in range(2) if (small / f"t-{index}").is_dir())
        (small / "ballast").write_bytes(bytes(BALLAST_BYTES))
        sent = fill(broker.bootstrap, full)
        assert sent > 5
        with Producer(broker.bootstrap, acks="1", enable_idempotence=False) as producer:
            producer.send("t", b"other", partition=1 - full).result(10)
        assert read(broker.bootstrap, full, sent) == sent
        (small / "ballast").unlink()
        more = fill(broker.bootstrap, full)
        assert more > 5, "there was room again, without a restart"
        assert read(broker.bootstrap, full, sent + more) == sent + more


def fill(bootstrap: str, partition: int) -> int:
    """Sends until it is refused; how many records were acknowledged."""
    count = 0
    with Producer(bootstrap, acks="1", enable_idempotence=False, delivery_timeout_ms=1500) as producer:
        while count < 100:
            try:
                producer.send("t", bytes(50_000), partition=partition).result(20)
            except KafkaError:
                return count
            count += 1
    raise AssertionError("eight megabytes are never full")


def read(bootstrap: str, partition: int, count: int) -> int:
    """How many records there are up to the end, at least ``count``."""
    found = 0
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", partition)])
        for _ in range(200):
            found += len(consumer.poll(100))
            if found >= count:
                break
    return found
