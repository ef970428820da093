"""Followers fetch over ``num.replica.fetchers`` connections to each leader, and the number may change while they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.peers.peers import Peers
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_fetcher import EARLIEST, LATEST, ReplicaFetcher
from ottla.broker.replicas.replica_fetchers import ReplicaFetchers
from ottla.client.admin import Admin, Broker
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.messages.fetch import PartitionData
from ottla.messages.list_offsets import ListOffsetsRequest
from ottla.replication.follower import Followed, Step
from ottla.wire.schema import Request

PARTITIONS = 6


def fetchers(nodes: SimNodes, node: int) -> ReplicaFetchers:
    broker = nodes.nodes[node].broker
    assert broker is not None
    return broker.part(ReplicaFetchers)


def partitions_of(nodes: SimNodes, node: int) -> dict[int, int]:
    """How many partitions of the topic each of the node's connections to node 1 fetches."""
    found = {number: fetcher._partitions.values() for (leader, number), fetcher in fetchers(nodes, node)._fetchers.items() if leader == 1}
    return {number: count for number, of in found.items() if (count := sum(partition.topic == "t" for partition in of))}


async def set_number(nodes: SimNodes, number: int) -> None:
    async def body(cluster: Cluster) -> None:
        await Admin(cluster).alter_configs({Broker(): {"num.replica.fetchers": number}})

    await nodes.act(body)
    await nodes.until(lambda: all(fetchers(nodes, node)._count == number for node in nodes.nodes))


async def replicated(nodes: SimNodes, count: int) -> None:
    """Every partition has one record more, ``count`` of them, and each replica has it."""
    for index in range(PARTITIONS):
        await nodes.send("t", b"x", index=index)
        for node in nodes.nodes:
            await nodes.until(lambda n=node, i=index: nodes.partition(n, "t", i).log.log_end_offset == count)  # type: ignore[misc]
            assert nodes.in_sync(node, "t", index) == {1, 2, 3}


def out_of_range_once(monkeypatch: pytest.MonkeyPatch, partition: Partition) -> None:
    """The next answer for the replica is OFFSET_OUT_OF_RANGE, so that it asks its leader for the offsets."""
    on_answer, refused = Followed.on_answer, list[Followed]()

    def refuse(followed: Followed, asked_offset: int, asked_epoch: int, data: PartitionData, *others: Any) -> Step:
        if followed is partition.followed and not refused:
            refused.append(followed)
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return on_answer(followed, asked_offset, asked_epoch, data, *others)

    monkeypatch.setattr(Followed, "on_answer", refuse)


def test_partitions_are_spread_over_so_many_connections_which_may_become_more_and_fewer() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", *[[1, 2, 3]] * PARTITIONS)
        assert partitions_of(nodes, 2) == {0: 3, 1: 3}
        await replicated(nodes, 1)
        await set_number(nodes, 3)
        assert partitions_of(nodes, 2) == partitions_of(nodes, 3) == {0: 2, 1: 2, 2: 2}
        await replicated(nodes, 2)
        await set_number(nodes, 2)
        assert partitions_of(nodes, 2) == {0: 3, 1: 3}
        await replicated(nodes, 3)

    play(body, num_replica_fetchers="2")


def test_a_partition_that_leaves_while_its_answer_is_taken_in_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What leaves is fetched from elsewhere: asked for again it would be answered with an error, again and again, without a pause."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        partition = nodes.partition(2, "t")
        before = fetchers(nodes, 2)._of[partition]
        taking, may_go_on = asyncio.Event(), asyncio.Event()
        take = ReplicaFetcher._take

        async def slow(fetcher: ReplicaFetcher, taken: Partition, *others: Any) -> bool:
            if taken is partition:
                taking.set()
                await may_go_on.wait()
            return await take(fetcher, taken, *others)

        monkeypatch.setattr(ReplicaFetcher, "_take", slow)
        sending = asyncio.ensure_future(nodes.send("t", b"x"))
        await taking.wait()
        before.leave(partition)
        may_go_on.set()
        await nodes.until(lambda: not before._is_taking)
        asked = {**before._session.said, **before._session._due}
        assert (partition.topic_id, partition.index) not in asked.keys() - before._session._forgotten.keys()
        before.join(partition)
        await sending

    play(body)


def test_a_partition_that_changes_its_fetcher_while_the_leader_is_asked_for_its_offsets_is_fetched_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new fetcher may not fetch it when it joins, and the answer comes to the old one: nobody asked for it again."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", *[[1, 2, 3]] * PARTITIONS)
        index = 3
        partition = nodes.partition(2, "t", index)
        before, held, send = fetchers(nodes, 2)._of[partition], list[Callable[[], None]](), Peers.send

        def hold(peers: Peers, address: Any, request: Request, on_answer: Any, *more: Any) -> None:
            if isinstance(request, ListOffsetsRequest):
                held.append(lambda: send(peers, address, request, on_answer))
            else:
                send(peers, address, request, on_answer, *more)

        out_of_range_once(monkeypatch, partition)
        monkeypatch.setattr(Peers, "send", hold)
        sending = asyncio.ensure_future(nodes.send("t", b"x", index=index))
        await nodes.until(lambda: len(held) == 1)
        await set_number(nodes, 3)
        await nodes.until(lambda: fetchers(nodes, 2)._of[partition] is not before)
        monkeypatch.setattr(Peers, "send", send)
        held.pop()()
        await nodes.until(lambda: partition.log.log_end_offset == 1)
        await sending

    play(body, num_replica_fetchers="2")


def test_a_leader_that_does_not_say_where_its_log_ends_is_asked_again_after_the_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked again at once, at the speed of the connection, for as long as it answered with an error."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        partition, asked, send = nodes.partition(2, "t"), list[int](), Peers.send

        def refuse(peers: Peers, address: Any, request: Request, on_answer: Any, *more: Any) -> None:
            if not isinstance(request, ListOffsetsRequest):
                send(peers, address, request, on_answer, *more)
                return
            timestamp = request.topics[0].partitions[0].timestamp
            asked.append(timestamp)

            def answered(response: Any) -> None:
                if timestamp == LATEST and len(asked) < 10:
                    response.topics[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                on_answer(response)

            send(peers, address, request, answered)

        out_of_range_once(monkeypatch, partition)
        monkeypatch.setattr(Peers, "send", refuse)
        await nodes.send("t", b"x")
        assert partition.log.log_end_offset == 1
        assert asked == [EARLIEST, LATEST]
        assert partition.followed is not None
        assert partition.followed.wait_until_ms > 0

    play(body)
