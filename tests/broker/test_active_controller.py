"""What the active controller answers, and when."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.simulated import with_broker

from ottla.controller.decided import Recorded
from ottla.controller.topics import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage
from ottla.sim.cluster import SimBroker


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_is_reported_to_exist_once_it_would_survive_a_power_cut(validate_only: bool) -> None:
    """Kafka's controller, too, defers what was read of its uncommitted state (QuorumController)."""

    async def body(broker: SimBroker) -> None:
        assert broker.broker is not None
        controller, disk = broker.broker.controller, broker.machine.disk
        step, syncs, may_sync = disk.step, asyncio.Event(), asyncio.Event()

        async def held(operation: str, path: str, *arguments: Any) -> None:
            if operation == "sync" and "__cluster_metadata" in path:
                syncs.set()
                await may_sync.wait()
            await step(operation, path, *arguments)

        disk.step = held  # type: ignore[method-assign]
        first = asyncio.create_task(controller.create_topics([NewTopic("t", 1, 1)]))
        await syncs.wait()
        decisions = [controller.creation(NewTopic("t", 1, 1))]
        second = asyncio.create_task(controller.decide(decisions, validate_only=validate_only))
        await asyncio.sleep(10)
        assert not second.done()
        may_sync.set()
        [answer] = await second
        assert isinstance(answer, KafkaError)
        assert answer.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await first

    with_broker(body)


def test_a_controller_that_is_not_active_takes_no_decision() -> None:
    """One that has just been elected may have an image of long ago, and a decision notes what it has seen beside what it records."""

    async def body(broker: SimBroker) -> None:
        assert broker.broker is not None
        replica: Any = broker.broker.controller.replica
        taken: list[ClusterImage] = []

        def decide(image: ClusterImage) -> Recorded:
            taken.append(image)
            return Recorded(())

        replica._is_active = False
        with pytest.raises(KafkaError) as caught:
            await broker.broker.controller.decide([decide])
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        assert taken == []
        replica._is_active = True
        await broker.broker.controller.decide([decide])
        assert len(taken) == 1

    with_broker(body)
