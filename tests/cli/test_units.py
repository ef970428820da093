"""Numbers of configurations and quotas may have a unit."""

from __future__ import annotations

import pytest
from tests.cli.cluster_command import ottla

from ottla.cli.units import without_unit
from ottla.runtime.serve import BrokerThread


@pytest.mark.parametrize(
    ("key", "text", "number"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "90m", "5400000"),
        ("retention.ms", "250ms", "250"),
        ("log.retention.ms", "-1", "-1"),
        ("retention.bytes", "2GB", "2000000000"),
        ("segment.bytes", "64MiB", "67108864"),
        ("leader.replication.throttled.rate", "50MB", "50000000"),
        ("producer_byte_rate", "1KB", "1000"),
        ("retention.ms", "7", "7"),
        ("retention.ms", "7MB", "7MB"),
        ("retention.bytes", "7d", "7d"),
        ("log.retention.hours", "7d", "7d"),
        ("compression.type", "1s", "1s"),
        ("retention.ms", "1.5h", "1.5h"),
    ],
)
def test_a_unit_of_the_keys_kind_counts(key: str, text: str, number: str) -> None:
    assert without_unit(key, text) == number


def test_what_is_stored_is_the_number(tmp_path: object) -> None:
    with BrokerThread({"log.dirs": f"{tmp_path}/data", "listeners": "PLAINTEXT://127.0.0.1:0"}) as broker:
        at = ("-B", broker.bootstrap)
        assert ottla("topic", "create", "t", "-c", "retention.ms=7d", *at).returncode == 0
        assert "604800000" in ottla("config", "get", "--topic", "t", "retention.ms", *at).stdout
        assert ottla("config", "set", "--topic", "t", "segment.bytes=64MiB", *at).returncode == 0
        assert "67108864" in ottla("config", "get", "--topic", "t", "segment.bytes", *at).stdout
        assert ottla("quota", "set", "producer_byte_rate=1MB", "--user", "alice", "--yes", *at).returncode == 0
        assert "1000000" in ottla("quota", "list", *at).stdout
        wrong = ottla("config", "set", "--topic", "t", "retention.ms=7MB", *at)
        assert wrong.returncode == 1
        assert "7MB" in wrong.stderr
