"""A real broker whose system calls fail: strace injects the errors. A missing strace is a failure here, not a skip."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.foreign_clients.broker_process import BrokerProcess

from ottla.errors import ErrorCode, KafkaError
from ottla.sync import Admin, NewTopic, Producer


def failing(path: Path, call: str) -> list[str]:
    """Runs a program in which every such call on the path fails with EIO. It stays the direct child, and gets its signals (-D)."""
    strace = shutil.which("strace")
    assert strace is not None, "strace is needed"
    return [strace, "-D", "-f", "-qq", "-o", "/dev/null", "-P", str(path), "-e", f"trace={call}", "-e", f"inject={call}:error=EIO"]


def outcome(bootstrap: str, partition: int) -> int:
    with Producer(bootstrap, acks="1", enable_idempotence=False, delivery_timeout_ms=3000) as producer:
        try:
            producer.send("t", b"x", partition=partition).result(20)
        except KafkaError as error:
            return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize("call", ["fdatasync", "pwritev,pwritev2"])
def test_a_failing_disk_takes_its_log_directory_offline_and_the_broker_continues(tmp_path: Path, call: str) -> None:
    dirs = f"{tmp_path / 'data'},{tmp_path / 'spare'}"
    with BrokerProcess(tmp_path, log_dirs=dirs) as broker, Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 4, configs={"flush.messages": "1"})])
        assert [outcome(broker.bootstrap, index) for index in range(4)] == [ErrorCode.NONE] * 4
    bad = [index for index in range(4) if (tmp_path / "spare" / f"t-{index}").is_dir()]
    path = tmp_path / "spare" / f"t-{bad[0]}" / f"{0:020d}.log"
    with BrokerProcess(tmp_path, log_dirs=dirs, command=failing(path, call)) as broker:
        assert outcome(broker.bootstrap, bad[0]) != ErrorCode.NONE
        assert [outcome(broker.bootstrap, index) == ErrorCode.NONE for index in range(4)] == [index not in bad for index in range(4)]
    assert not (tmp_path / "spare" / ".kafka_cleanshutdown").exists()
    with BrokerProcess(tmp_path, log_dirs=dirs) as broker:
        assert [outcome(broker.bootstrap, index) for index in range(4)] == [ErrorCode.NONE] * 4
