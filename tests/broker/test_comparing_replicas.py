"""A tool that compares replicas, by replica id -2, is shown what each broker has, whoever leads."""

from __future__ import annotations

from tests.broker.leaders import OTHER, add_other, give
from tests.broker.test_leadership import Code, fetch, fetched, partition_of, produce, topic_id_of
from tests.broker.test_log_care import create, play

from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState
from ottla.sim.cluster import SimBroker


async def compare(broker: SimBroker, *, offset: int = 0, epoch: int = -1) -> PartitionData:
    wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch)
    request = FetchRequest(replica_state=ReplicaState(-2), min_bytes=1, topics=[FetchTopic("t", topic_id_of(broker), [wanted])])
    cluster = broker.client("comparing")
    answer = await cluster.ask(None, request, FetchResponse)
    await cluster.close()
    return fetched(answer)


def test_a_follower_is_read_for_the_comparison_of_replicas_only() -> None:
    async def act(broker: SimBroker) -> None:
        await create(broker, "t")
        await add_other(broker)
        await produce(broker)
        before = await compare(broker)
        assert (before.error_code, before.high_watermark, len(before.records)) == (0, 1, partition_of(broker).log.size_bytes)  # type: ignore[arg-type]
        epoch = await give(broker, OTHER)
        assert fetched(await fetch(broker)).error_code == Code.NOT_LEADER_OR_FOLLOWER
        found = await compare(broker, epoch=epoch)
        assert (found.error_code, found.high_watermark, found.records) == (0, 1, before.records)
        assert (await compare(broker, epoch=epoch - 1)).error_code == Code.FENCED_LEADER_EPOCH
        assert (await compare(broker, epoch=epoch + 1)).error_code == Code.UNKNOWN_LEADER_EPOCH
        assert (await compare(broker, offset=2)).error_code == Code.OFFSET_OUT_OF_RANGE
        partition_of(broker).fail()
        assert (await compare(broker)).error_code == Code.KAFKA_STORAGE_ERROR

    play(act)
