"""How far a replica is behind is shown by its broker, under Kafka's names, and by the one that leads the partition."""

from __future__ import annotations

import pytest
from tests.cluster.in_simulation import SimNodes, play
from tests.cluster.test_throttles import RECORD_BYTES, RECORDS, SIDES, filled, move, throttle
from tests.waiting import eventually_is

from ottla.admin_http.replica_names import partition_families, replica_families
from ottla.broker.replicas.replica_role import ReplicaRole
from ottla.broker.tasks.slices import Slices
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster


async def lags(nodes: SimNodes, node: int) -> tuple[int, list[int], dict[str, int]]:
    """The greatest of the broker's followers, that of each, and that of the followers of what it leads by their brokers' ids."""
    broker = nodes.nodes[node].broker
    assert broker is not None
    slices = Slices(broker.parts.world.clock)
    families = await replica_families(broker.status, slices, now_ms=0) + await partition_families(broker.status, slices)
    found = {family.name: family.samples for family in families}
    return (
        int(found["kafka_server_replicafetchermanager_maxlag"][0].value),
        [int(sample.value) for sample in found["kafka_server_fetcherlagmetrics_consumerlag"]],
        {dict(sample.labels)["replica"]: int(sample.value) for sample in found["ottla_replica_lag"]},
    )


async def lag_in_directories(nodes: SimNodes, node: int) -> int:
    found = 0

    async def body(cluster: Cluster) -> None:
        nonlocal found
        [directory] = (await Admin(cluster).describe_log_dirs([node]))[node]
        found = sum(replica.offset_lag for replica in directory.replicas)

    await nodes.act(body)
    return found


@pytest.mark.parametrize("side", SIDES)
def test_a_replica_that_is_held_back_shows_what_it_lacks_until_it_has_it(side: str) -> None:
    async def body(nodes: SimNodes) -> None:
        await filled(nodes)
        await throttle(nodes, side, *SIDES[side], rate=10)
        await move(nodes, "t", 1, 2, 3)
        await nodes.until(lambda: nodes.has(3, "t") and nodes.partition(3, "t").log.log_end_offset > 0)
        lacking = RECORDS - nodes.partition(3, "t").log.log_end_offset
        assert lacking > RECORDS / 2
        await eventually_is(lambda: lags(nodes, 3), (lacking, [lacking], {}))
        greatest, own, of_followers = await lags(nodes, 1)
        assert (greatest, own, of_followers["2"]) == (0, [], 0)
        assert of_followers["3"] in ([lacking] if side == "leader" else [lacking, RECORDS]), "one that waits has not said what it got"
        assert await lags(nodes, 2) == (0, [0], {})
        assert [await lag_in_directories(nodes, node) for node in (1, 2, 3)] == [0, 0, lacking]
        await throttle(nodes, side, "", SIDES[side][1])
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 2, 3})
        await eventually_is(lambda: lags(nodes, 1), (0, [], {"2": 0, "3": 0}))
        await eventually_is(lambda: lags(nodes, 3), (0, [0], {}))

    play(body, replica_fetch_max_bytes=str(RECORD_BYTES), replica_fetch_response_max_bytes=str(2 * RECORD_BYTES))


def test_a_follower_that_has_not_come_lacks_what_the_log_has() -> None:
    async def body(nodes: SimNodes) -> None:
        await filled(nodes)
        partition = nodes.partition(1, "t")
        assert partition.leading is not None
        start, end = partition.log.log_start_offset, partition.log.log_end_offset
        partition.leading.machine.followers[2].end_offset = -1
        assert partition.leading.lags() == {2: end - start}

    play(body)


def test_what_a_follower_does_not_know_is_no_lag_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a full disk nothing is asked for, and a leader that has not answered yet has said nothing."""

    async def body(nodes: SimNodes) -> None:
        await filled(nodes)
        follower = nodes.partition(2, "t")
        assert follower.followed is not None
        assert await lags(nodes, 2) == (0, [0], {})
        room = follower.log.health.room
        assert room is not None
        room.is_full = True
        assert await lags(nodes, 2) == (0, [], {})
        assert await lag_in_directories(nodes, 2) == -1
        room.is_full = False
        follower.followed.leader_committed = -1
        assert follower.lag == 0, "a leader says nothing of what is at rest"
        monkeypatch.setattr(ReplicaRole, "is_in_sync", False)
        assert follower.lag is None

    play(body)
