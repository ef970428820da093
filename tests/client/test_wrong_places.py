"""Partitions and offsets that no broker knows are refused where they are given, and not by every later poll."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.client.simulated import consumer_of, create, with_broker

from ottla.client.admin import Admin
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker
from ottla.types import TopicPartition

WRONG = [TopicPartition("t", cast("Any", "0")), TopicPartition(cast("Any", b"t"), 0), TopicPartition("t", cast("Any", None))]
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "assign": lambda consumer, wrong: consumer.assign([wrong]),
    "seek": lambda consumer, wrong: consumer.seek(wrong, 0),
    "pause": lambda consumer, wrong: consumer.pause([wrong]),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("wrong", WRONG, ids=["a text for the number", "bytes for the name", "no number"])
def test_a_partition_of_other_types_is_refused_at_the_call(call: str, wrong: TopicPartition) -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer = consumer_of(broker.client("c"), group_id="g")
        consumer.assign([("t", 0)])
        with pytest.raises(TypeError, match="is no partition: give"):
            CALLS[call](consumer, wrong)
        with pytest.raises(TypeError, match="is no partition: give"):
            await consumer.commit({wrong: 5})
        await consumer.close()

    with_broker(body)


def test_an_offset_above_the_largest_is_refused_at_the_call() -> None:
    async def body(broker: SimBroker) -> None:
        await create(broker)
        consumer, admin = consumer_of(broker.client("c"), group_id="g"), Admin(broker.client("a"))
        consumer.assign([("t", 0)])
        for call in (
            lambda: consumer.commit({("t", 0): 2**63}),
            lambda: admin.set_offsets("g", {("t", 0): 10**20}),
        ):
            with pytest.raises(KafkaError, match="larger than an offset can be") as refused:
                await call()
            assert refused.value.code == ErrorCode.INVALID_REQUEST
        with pytest.raises(KafkaError, match="larger than an offset can be"):
            consumer.seek(("t", 0), 2**63)
        consumer.seek(("t", 0), 2**63 - 1)
        await consumer.close()
        await admin.close()

    with_broker(body)
