"""Partitions that join a fetcher while its fetch is on its way, one after the other: as at a start with thousands of them."""

from __future__ import annotations

import asyncio

import pytest
from tests.cluster.in_simulation import SimNodes, play

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_fetcher import JOIN_MS, JOIN_MS_MAX, ReplicaFetcher
from ottla.broker.replicas.replica_fetchers import ReplicaFetchers

ANSWER_MS = [40, 700]
"""What the way to the leader and back takes: more than a fetch may wait the first time, and more than it ever waits there."""


@pytest.mark.parametrize("answer_ms", ANSWER_MS)
def test_what_a_leader_answers_is_taken_in_though_partitions_join_all_the_time(answer_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up: list[ReplicaFetcher] = []
    give_up = ReplicaFetcher._give_up

    def counted(fetcher: ReplicaFetcher) -> None:
        given_up.append(fetcher)
        give_up(fetcher)

    async def body(nodes: SimNodes) -> None:
        assert JOIN_MS < ANSWER_MS[0] < JOIN_MS_MAX < ANSWER_MS[1]
        await nodes.create("t", [1, 2, 3])
        await nodes.create("joining", [1, 2, 3])
        broker, fabric = nodes.nodes[3].broker, nodes.simulation.fabric
        assert broker is not None
        partition = nodes.partition(3, "joining")
        fetcher = broker.part(ReplicaFetchers)._of[partition]
        leader, follower = nodes.nodes[1].machine.name, nodes.nodes[3].machine.name
        fabric.slow_link(leader, follower, answer_ms / 2)
        fabric.slow_link(follower, leader, answer_ms / 2)
        monkeypatch.setattr(ReplicaFetcher, "_give_up", counted)

        async def join() -> None:
            while True:
                fetcher.leave(partition)
                fetcher.join(partition)
                await asyncio.sleep(0.006)

        joining = asyncio.get_running_loop().create_task(join())
        for number in range(20):
            await nodes.send("t", b"%d" % number)
        await nodes.until(lambda: nodes.partition(3, "t").log.log_end_offset == 20)
        joining.cancel()
        assert given_up, "what joins does not wait for records of others"

    play(body)


def test_a_partition_that_joins_waits_neither_for_records_nor_for_others_to_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A throttled partition, or one that has failed, may be due before the fetch on its way is to be given up for another one."""
    join = ReplicaFetcher.join

    def join_beside_one_that_waits(fetcher: ReplicaFetcher, partition: Partition) -> None:
        join(fetcher, partition)
        fetcher._wake_in(JOIN_MS - 1)

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", b"x")  # so that the followers' fetches wait at the leader
        monkeypatch.setattr(ReplicaFetcher, "join", join_beside_one_that_waits)
        await nodes.create("joining", [1, 2, 3])
        began = asyncio.get_running_loop().time()
        await nodes.send("joining", b"x")
        assert asyncio.get_running_loop().time() < began + 1, "of the simulated clock"

    play(body, replica_fetch_wait_max_ms="15000")
