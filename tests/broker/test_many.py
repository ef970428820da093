"""Requests about thousands of things: what they cost, counted, and that others are served between their parts."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.foreign_clients.wire import RawClient
from tests.quiet import silence

from ottla.broker.controller.active_controller import SLICE_DECISIONS
from ottla.broker.handlers import describe_configs
from ottla.broker.tasks import slices
from ottla.client.admin import Admin, NewTopic
from ottla.errors import KafkaError
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.metadata.image import RESOURCE_TOPIC
from ottla.runtime.serve import BrokerThread
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.disk import SimDisk
from ottla.sim.loop import run


@pytest.fixture(autouse=True)
def _quiet() -> None:
    silence()


def client_of(broker: BrokerThread) -> RawClient:
    return RawClient(broker.addresses["PLAINTEXT"][1])


def test_topics_created_together_share_their_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata log is synced once for each slice of decisions at most, and so is their directories' file system."""
    counts: Counter[str] = Counter()
    step = SimDisk.step

    async def counting(self: SimDisk, operation: str, path: str, what: Any = "") -> None:
        if operation in ("sync", "sync_dir", "sync_file_system"):
            counts[path if "__cluster_metadata" in path else operation] += 1
        await step(self, operation, path, what)

    async def main() -> None:
        broker = SimBroker(Simulation(1))
        await broker.start()
        monkeypatch.setattr(SimDisk, "step", counting)
        admin = Admin(broker.client("admin"))
        assert set((await admin.create_topics([NewTopic(f"t{number}", 1) for number in range(100)])).values()) == {None}
        await admin.close()

    run(main())
    assert set(counts) == {"/data/__cluster_metadata-0/00000000000000000000.log", "sync_file_system"}
    assert max(counts.values()) <= 100 / SLICE_DECISIONS


def test_a_crash_while_topics_are_created_leaves_none_of_them_without_its_partition() -> None:
    for crash_at in range(20, 60, 4):
        for power_cut in (False, True):
            _crash_while_creating(crash_at, power_cut=power_cut)


def _crash_while_creating(crash_at: int, *, power_cut: bool) -> None:
    async def main() -> None:
        broker = SimBroker(Simulation(crash_at))
        await broker.start(crash_at=None)
        admin = Admin(broker.client("admin", request_timeout_ms=500))
        broker.machine.disk.crash_at = broker.machine.disk.steps + crash_at - 19
        with contextlib.suppress(KafkaError):  # the broker dies of it
            await admin.create_topics([NewTopic(f"t{number}", 2) for number in range(10)], timeout_ms=100)
        broker.kill(power_cut=power_cut)
        await broker.start()
        assert broker.broker is not None
        for name, topic in broker.broker.image.topics.items():
            assert sorted(broker.broker.partitions.by_name[name]) == sorted(topic.partitions)
        assert not broker.broker.partitions.offline
        await broker.stop()

    run(main())


@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_many_topics_are_answered_each_with_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    monkeypatch.setattr(slices, "SLICE_US", 0)
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker, client_of(broker) as client:
        topics = [CreatableTopic(f"t{number}", 1, 1) for number in range(120)]
        answer = client.ask(CreateTopicsRequest(topics, 30_000), version)
        assert [(found.name, found.error_code) for found in answer.topics] == [(topic.name, 0) for topic in topics]
        if version >= 5:
            described = client.ask(DescribeConfigsRequest([DescribeConfigsResource(RESOURCE_TOPIC, "t7", None)], False, False), 4)
            values = {entry.name: entry.value for entry in described.results[0].configs}
            assert all({entry.name: entry.value for entry in found.configs} == values for found in answer.topics)


@pytest.mark.parametrize("version", [1, 4])
def test_a_resource_that_is_asked_for_often_is_described_and_answered_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Kafka describes it each time."""
    described: list[Any] = []
    describe = describe_configs._describe

    def counting(*arguments: Any) -> Any:
        described.append(arguments)
        return describe(*arguments)

    monkeypatch.setattr(describe_configs, "_describe", counting)
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker, client_of(broker) as client:
        client.ask(CreateTopicsRequest([CreatableTopic("t", 1, 1)], 30_000), 7)
        wanted = [
            *[DescribeConfigsResource(RESOURCE_TOPIC, "t", None)] * 3000,
            *[DescribeConfigsResource(RESOURCE_TOPIC, "t", ["retention.ms"])] * 2,
            DescribeConfigsResource(RESOURCE_TOPIC, "unknown", None),
        ]
        results = client.ask(DescribeConfigsRequest(wanted, True, False), version).results
    assert len(described) == 3
    assert [len(result.configs) > 30 for result in results] == [True, False, False]
    assert [entry.name for entry in results[1].configs] == ["retention.ms"]
    assert results[-1].error_code == 3


def test_a_group_of_topics_with_dots_is_checked_for_collisions(tmp_path: Path) -> None:
    """INVALID_TOPIC_EXCEPTION, as from Kafka: '.' and '_' are the same in the names of metrics."""
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}) as broker, client_of(broker) as client:
        names = ["a.b", "a_b", "ab", "a.b.c", "a_b.c"]
        answer = client.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names], 30_000), 7)
        assert [found.error_code for found in answer.topics] == [0, 17, 0, 0, 17]
