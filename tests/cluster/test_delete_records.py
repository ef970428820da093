"""DeleteRecords with replicas: the answer waits until all that live have deleted the records (KIP-107, DelayedDeleteRecords)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.cluster.in_simulation import SimNodes, play

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.types import TopicPartition

LONG_MS = 50_000
LONG_POLL = "30000"
SOON_SECONDS = 1.0
VALUES = (b"a", b"b", b"c", b"d")
Answer = tuple[int, int]


async def delete(nodes: SimNodes, leader: int, offsets: Sequence[int], *, timeout_ms: int = LONG_MS, topic: str = "t") -> list[Answer]:
    """Error code and low watermark of each partition, as that node answers."""
    partitions = [DeleteRecordsPartition(index, offset) for index, offset in enumerate(offsets)]
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, partitions)], timeout_ms)

    async def body(cluster: Cluster) -> list[Answer]:
        await cluster.refresh([topic])
        answer = await cluster.ask(leader, request, DeleteRecordsResponse, timeout_ms=2 * LONG_MS)
        return [(result.error_code, result.low_watermark) for result in answer.topics[0].partitions]

    return await nodes.act(body)


def starts(nodes: SimNodes, *asked: int, index: int = 0) -> list[int]:
    return [nodes.partition(node, "t", index).log.log_start_offset for node in asked]


def now() -> float:
    return asyncio.get_running_loop().time()


def test_the_answer_comes_when_every_replica_has_deleted_the_records_and_waits_for_no_long_poll() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *VALUES)
        began = now()
        assert await delete(nodes, 1, [3]) == [(0, 3)]
        assert starts(nodes, 1, 2, 3) == [3, 3, 3]
        assert await delete(nodes, 1, [-1]) == [(0, 4)]
        assert starts(nodes, 1, 2, 3) == [4, 4, 4]
        assert now() < began + SOON_SECONDS, "followers fetch once in 30 s when there is nothing for them"
        assert await delete(nodes, 1, [2]) == [(0, 4)], "the records were deleted before"
        assert [nodes.partition(node, "t").follower_waiters == {} for node in (2, 3)] == [True, True]

    play(body, replica_fetch_wait_max_ms=LONG_POLL)


def test_a_follower_that_hangs_holds_the_answer_up_for_as_long_as_the_client_allows() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *VALUES)
        nodes.nodes[3].machine.pause_process()
        began = now()
        assert await delete(nodes, 1, [3], timeout_ms=2000) == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        assert now() >= began + 2
        assert starts(nodes, 1, 2, 3) == [3, 3, 0], "it is deleted where it can be"
        nodes.nodes[3].machine.resume_process()
        assert await delete(nodes, 1, [3]) == [(0, 3)]
        assert starts(nodes, 3) == [3]
        leading = nodes.partition(1, "t").leading
        assert leading is not None
        assert not leading._replication.deleting, "no one waits, and nothing is remembered of those who did"

    play(body, broker_session_timeout_ms="60000")


def test_dozens_of_partitions_in_one_request_are_each_answered_for_once() -> None:
    """All followers delete the records; then one of them hangs."""

    async def body(nodes: SimNodes) -> None:
        count = 48
        await nodes.create("t", *[[1, 2, 3]] * count)
        await asyncio.gather(*[nodes.send("t", *VALUES, index=index) for index in range(count)])
        began = now()
        assert await delete(nodes, 1, [3] * count) == [(0, 3)] * count
        assert now() < began + SOON_SECONDS, "a long poll does not hold them up"
        assert {starts(nodes, 2, 3, index=index) == [3, 3] for index in range(count)} == {True}
        nodes.nodes[3].machine.pause_process()
        answered = await delete(nodes, 1, [4] * count, timeout_ms=2000)
        assert answered == [(ErrorCode.REQUEST_TIMED_OUT, 3)] * count
        nodes.nodes[3].machine.resume_process()
        assert await delete(nodes, 1, [4] * count) == [(0, 4)] * count

    play(body, replica_fetch_wait_max_ms=LONG_POLL, broker_session_timeout_ms="60000")


def test_a_broker_that_is_fenced_meanwhile_is_not_waited_for() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *VALUES)
        nodes.nodes[3].machine.pause_process()
        waiting = asyncio.ensure_future(delete(nodes, 1, [3]))
        await nodes.until(lambda: starts(nodes, 2) == [3])
        assert not waiting.done()
        began = now()
        assert await waiting == [(0, 3)]
        assert now() < began + 20, "its session ends after 9 s"
        assert nodes.in_sync(1, "t") == {1, 2}
        nodes.nodes[3].machine.resume_process()
        await nodes.until(lambda: starts(nodes, 3) == [3])

    play(body)


def test_deleting_records_does_not_wait_for_a_dead_follower_outside_the_isr() -> None:
    """While its session lives it is waited for: it may be catching up. Here no other follower's fetch lets the leader look again."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 3])
        await nodes.send("t", *VALUES)
        nodes.nodes[3].machine.pause_process()
        await nodes.send("t", b"e")
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1})
        waiting = asyncio.ensure_future(delete(nodes, 1, [3]))
        await nodes.until(lambda: starts(nodes, 1) == [3])
        assert not waiting.done()
        began = now()
        assert await waiting == [(0, 3)]
        assert now() < began + 20

    play(body, replica_lag_time_max_ms="1000")


def test_a_follower_that_died_after_it_had_reported_its_start_begins_there_again() -> None:
    """It is on its disk before the leader knows of it: it may be the next leader."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *VALUES)
        assert await delete(nodes, 1, [3]) == [(0, 3)]
        for node in (1, 2, 3):
            nodes.nodes[node].kill(power_cut=True)
        for node in (2, 3):
            nodes.nodes[node].begin()
        await nodes.until(lambda: nodes.has(2, "t") and nodes.has(3, "t"))
        assert starts(nodes, 2, 3) == [3, 3]

    play(body)


def test_a_new_replica_begins_within_a_batch_where_the_leader_does() -> None:
    """Deleted records may be the first of a batch: it is copied entirely, and what was deleted of it is not served."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2])
        await nodes.send("t", *VALUES, together=True)
        await nodes.send("t", b"e")
        assert await delete(nodes, 1, [3]) == [(0, 3)]

        async def move(cluster: Cluster) -> None:
            partition = TopicPartition("t", 0)
            assert await Admin(cluster).alter_partition_reassignments({partition: [1, 3]}) == {partition: None}

        await nodes.act(move)
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 3})
        copied, original = nodes.partition(3, "t").log, nodes.partition(1, "t").log
        assert (copied.log_start_offset, copied.log_end_offset) == (3, 5)
        assert [log.segments[0].base_offset for log in (original, copied)] == [0, 0]
        assert copied.size_bytes == original.size_bytes
        assert await delete(nodes, 1, [4]) == [(0, 4)]

    play(body)


def test_a_leader_that_resigns_says_so_and_a_deleted_topic_is_unknown() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *VALUES)
        nodes.nodes[3].machine.pause_process()
        waiting = asyncio.ensure_future(delete(nodes, 1, [3]))
        await nodes.until(lambda: starts(nodes, 2) == [3])

        async def elect(cluster: Cluster) -> None:
            admin, partition = Admin(cluster), TopicPartition("t", 0)
            assert await admin.alter_partition_reassignments({partition: [2, 1, 3]}) == {partition: None}
            assert await admin.elect_leaders([partition]) == {partition: None}

        await nodes.act(elect)
        assert await waiting == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        await nodes.until(lambda: nodes.partition(2, "t").led_epoch >= 0)
        waiting = asyncio.ensure_future(delete(nodes, 2, [4]))
        await nodes.until(lambda: starts(nodes, 1, 2) == [4, 4])
        assert not waiting.done()

        async def drop(cluster: Cluster) -> None:
            assert await Admin(cluster).delete_topics(["t"]) == {"t": None}

        await nodes.act(drop)
        assert await waiting == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]

    play(body, broker_session_timeout_ms="60000")


def test_many_partitions_of_one_request_are_answered_together_each_with_its_own_low_watermark() -> None:
    count = 60

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", *[[1, 2, 3]] * count)
        for index in (0, 7, count - 1):
            await nodes.send("t", *VALUES, index=index)
        wanted = [-1] * count
        wanted[3], wanted[7] = 1, 2
        began = now()
        found = await delete(nodes, 1, wanted)
        assert now() < began + SOON_SECONDS
        assert found[3] == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert [found[0], found[7], found[count - 1]] == [(0, 4), (0, 2), (0, 4)]
        assert all(answer == (0, 0) for index, answer in enumerate(found) if index not in (0, 3, 7, count - 1))
        assert starts(nodes, 1, 2, 3, index=7) == [2, 2, 2]

    play(body, replica_fetch_wait_max_ms=LONG_POLL)


def test_a_client_that_leaves_is_forgotten() -> None:
    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        await nodes.send("t", *VALUES)
        nodes.nodes[3].machine.pause_process()
        waiting = asyncio.ensure_future(delete(nodes, 1, [3]))
        leading = nodes.partition(1, "t").leading
        assert leading is not None
        await nodes.until(lambda: len(leading._replication.deleting) == 1)
        waiting.cancel()
        await nodes.until(lambda: not leading._replication.deleting)
        nodes.nodes[3].machine.resume_process()
        await nodes.until(lambda: starts(nodes, 3) == [3])

    play(body, broker_session_timeout_ms="600000")


def test_records_are_deleted_while_a_follower_moves_its_replica_to_another_directory() -> None:
    """Retention takes the segments meanwhile. Where the log begins comes along, and is there after a power cut."""

    async def body(nodes: SimNodes) -> None:
        await nodes.create("t", [1, 2, 3])
        for _ in range(30):
            await nodes.send("t", b"x" * 50_000)
        before = nodes.partition(2, "t").log.directory
        target = "/spare" if before.startswith("/data") else "/data"

        async def move(cluster: Cluster) -> None:
            assert await Admin(cluster).alter_replica_log_dirs(2, {TopicPartition("t", 0): target}) == {TopicPartition("t", 0): None}

        await nodes.act(move)
        for offset in (5, 12, 25):
            assert await delete(nodes, 1, [offset]) == [(0, offset)]
            await asyncio.sleep(2)
        assert nodes.partition(2, "t").log.directory == before, "the copy is still on its way"
        await nodes.until(lambda: nodes.partition(2, "t").log.directory != before)
        assert await delete(nodes, 1, [26]) == [(0, 26)]
        assert starts(nodes, 1, 2, 3) == [26, 26, 26]
        await nodes.until(lambda: nodes.partition(2, "t").log.segments[0].base_offset > 0)
        nodes.nodes[2].kill(power_cut=True)
        nodes.nodes[2].begin()
        await nodes.until(lambda: nodes.has(2, "t"))
        assert nodes.partition(2, "t").log.directory.startswith(target)
        assert starts(nodes, 2) == [26]
        await nodes.send("t", b"y")
        await nodes.until(lambda: nodes.in_sync(1, "t") == {1, 2, 3})

    play(
        body,
        log_dirs="/data,/spare",
        log_segment_bytes="120000",
        log_retention_check_interval_ms="1000",
        replica_alter_log_dirs_io_max_bytes_per_second="100000",
    )
