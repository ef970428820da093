"""A broker of three that hangs: an Admin is answered by those that have its place, and is told what the others know."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.client.simulated import consumer_of
from tests.cluster.in_simulation import SimNodes, play

from ottla.client.admin import Admin
from ottla.client.late_answers import AGAIN_MS, LATE_MS
from ottla.client.producer import Producer
from ottla.client.producer_settings import ProducerSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimClient
from ottla.types import TopicPartition

ALONE = [TopicPartition("alone", index) for index in range(3)]
KEPT = [TopicPartition("kept", index) for index in range(3)]
SESSION_MS = 9_000
FOUND = (SESSION_MS + LATE_MS + AGAIN_MS) / 1000 + 3
"""Seconds in which another broker has the place of one that hangs, and is asked."""
Call = Callable[[Admin], Awaitable[Any]]


def answers(hung: Callable[[SimNodes], Awaitable[int]], calls: dict[str, Call]) -> dict[str, Any]:
    """What each call of an Admin returned that had made it before, since the broker hangs; it took no longer than another is found."""
    found: dict[str, Any] = {}

    async def body(nodes: SimNodes) -> None:
        await nodes.create("alone", [1], [2], [3])
        await nodes.create("kept", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        for partition in (*ALONE, *KEPT):
            await nodes.send(partition.topic, b"0", b"1", index=partition.partition)
        await nodes.act(_prepare)
        client = SimClient(nodes.simulation, "admin", nodes.bootstrap)
        admins = {name: Admin(client.cluster()) for name in calls}
        for name, call in calls.items():
            await client.machine.run(_all([call(admins[name])]))
        number = await hung(nodes)
        nodes.nodes[number].machine.pause_process()

        async def timed(name: str) -> None:
            started = asyncio.get_running_loop().time()
            found[name] = await calls[name](admins[name])
            took = asyncio.get_running_loop().time() - started
            assert took < FOUND, f"{name} took {took} s"

        await client.machine.run(_all(timed(name) for name in calls))
        found["hung"] = number
        for admin in admins.values():
            await admin.close()

    play(body, offsets_topic_replication_factor="3", offsets_topic_num_partitions="1")
    return found


async def _all(calls: Any) -> None:
    await asyncio.gather(*calls)


async def _prepare(cluster: Any) -> None:
    """The group and the transactional id are there."""
    consumer = consumer_of(cluster, group_id="g")
    consumer.assign(KEPT)
    await consumer.commit({KEPT[0]: 1})
    producer = Producer(cluster, ProducerSettings(transactional_id="x"))
    await producer.init_transactions()


async def coordinator_of_group(nodes: SimNodes) -> int:
    return await nodes.act(lambda cluster: cluster.coordinator("g"))


async def coordinator_of_transactional_id(nodes: SimNodes) -> int:
    return await nodes.act(lambda cluster: cluster.coordinator("x", 1))


async def second(nodes: SimNodes) -> int:
    return 2


def test_the_next_coordinator_answers_for_a_group() -> None:
    calls: dict[str, Call] = {
        "describe": lambda admin: admin.describe_group("g"),
        "offsets": lambda admin: admin.committed_offsets("g"),
        "set": lambda admin: admin.set_offsets("g", {KEPT[1]: 2}),
        "delete": lambda admin: admin.delete_offsets("g", [KEPT[2]]),
        "list": lambda admin: admin.list_groups(),
    }
    found = answers(coordinator_of_group, calls)
    assert found["describe"].state == "Empty"
    assert found["offsets"][KEPT[0]].offset == 1
    assert found["delete"] == {KEPT[2]: None}
    assert [group.group_id for group in found["list"]] == ["g"], "the others are asked again once it has left the cluster"


def test_the_next_coordinator_answers_for_a_transactional_id() -> None:
    calls: dict[str, Call] = {
        "describe": lambda admin: admin.describe_transactions(["x", "unknown"]),
        "fence": lambda admin: admin.fence_producers(["x"]),
        "list": lambda admin: admin.list_transactions(),
    }
    found = answers(coordinator_of_transactional_id, calls)
    assert found["describe"]["x"].coordinator_id != found["hung"]
    assert found["describe"]["unknown"].code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert found["fence"]["x"].producer_epoch > 0
    assert [listed.transactional_id for listed in found["list"]] == ["x"]


def test_a_leader_that_hangs_spoils_no_partition_of_another_and_the_next_one_is_asked() -> None:
    calls: dict[str, Call] = {
        "producers": lambda admin: admin.describe_producers([*ALONE, *KEPT]),
        "delete": lambda admin: admin.delete_records(dict.fromkeys([*ALONE, *KEPT], 1)),
    }
    found = answers(second, calls)
    for call in calls:
        problems = {partition for partition, answer in found[call].items() if isinstance(answer, KafkaError)}
        assert problems == {ALONE[1]}, "no other broker has it"
    assert all(found["delete"][partition] == 1 for partition in KEPT)
