"""A leader that leads the next epoch, too: who waits for its followers need not know of that, as in Kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.handlers.staged_produce import StagedProduce
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition


def test_an_acknowledgement_waits_on_when_replicas_change_and_the_leader_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, a batch that is in the log would come again; librdkafka takes NOT_LEADER_OR_FOLLOWER for one that is nowhere."""
    refused: list[ErrorCode] = []
    refuse = StagedProduce.refuse

    def noted(staged: StagedProduce, topic: str, result: Any, error: KafkaError) -> None:
        refused.append(error.code)
        refuse(staged, topic, result, error)

    monkeypatch.setattr(StagedProduce, "refuse", noted)

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        await nodes.send("t", b"before")
        before = nodes.partition(1, "t").leader_epoch
        nodes.nodes[3].machine.pause_process()
        sending = asyncio.ensure_future(nodes.send("t", b"during"))
        await nodes.until(lambda: nodes.partition(2, "t").log.log_end_offset == 2)
        assert nodes.partition(1, "t").high_watermark == 1
        partition = TopicPartition("t", 0)

        async def without_the_third(cluster: Cluster) -> None:
            assert await Admin(cluster).alter_partition_reassignments({partition: [1, 2]}) == {partition: None}

        await nodes.act(without_the_third)
        await sending
        assert nodes.partition(1, "t").leader_epoch > before
        assert nodes.in_sync(1, "t") == {1, 2}
        assert not refused

    play(body)


def test_waiting_requests_are_answered_when_another_broker_leads() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3], min_insync_replicas="2")
        partition = nodes.partition(1, "t")
        assert partition.leading is not None
        answers: list[KafkaError | None] = []

        class Waiter:
            def on_commit(self, what: Any, error: KafkaError | None) -> None:
                answers.append(error)

        partition.wait_for_commit(1, Waiter(), None)
        nodes.nodes[1].machine.pause_process()
        await nodes.until(lambda: nodes.partition(2, "t").led_epoch >= 0 or nodes.partition(3, "t").led_epoch >= 0)
        nodes.nodes[1].machine.resume_process()
        await nodes.until(lambda: bool(answers))
        [error] = answers
        assert error is not None
        assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(body)
