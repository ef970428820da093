"""What ``ottla cluster health`` says of replicas that a broker cannot open: what the broker itself knows of them, and once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cluster.loop_clients import asking
from tests.cluster.one_loop import cluster_on_loop
from tests.cluster.test_damaged_replicas import RECORDS, SEGMENT_BYTES, damage
from tests.cluster.test_health import WELL, problems, seen
from tests.waiting import eventually_is

from ottla.aio import NewTopic, Producer
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.cli.health_findings import findings
from ottla.cli.health_partitions import PartitionStates
from ottla.cli.log_dirs import lags_of, largest_of, named_only, room_notes, without_room
from ottla.client.admin import DirectoryReplica, LogDir
from ottla.errors import ErrorCode, KafkaError
from ottla.storage.directory.room import Room
from ottla.types import TopicPartition


@pytest.mark.slow
def test_a_damaged_sole_replica_is_named_with_its_file_by_health_also_after_a_start(tmp_path: Path) -> None:
    """Health sent to the broker's log, and to the limit of open files, twice; only /readyz had the file."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path, log_segment_bytes=SEGMENT_BYTES) as cluster:
            async with asking(cluster, 1) as admin:
                assert await admin.create_topics([NewTopic("single", assignments={0: [3]})]) == {"single": None}
            async with Producer(cluster.bootstrap) as producer:
                for _ in range(RECORDS):
                    await (await producer.send("single", b"v" * 100, partition=0))
            directory = tmp_path / "node-3" / "single-0"
            damage(directory)
            await cluster.nodes[3].part(Scrubber)._scrub_all()

            async def reason() -> str:
                async with asking(cluster, 1) as admin:
                    [found] = (await admin.describe_producers([("single", 0)], broker_id=3)).values()
                assert isinstance(found, KafkaError)
                assert found.code == ErrorCode.KAFKA_STORAGE_ERROR
                return found.message

            async def found() -> list[tuple[str, str]]:
                return [(each["problem"], each["remedy"]) for each in (await seen(cluster))[1]["problems"]]

            async def is_offline() -> bool:
                return any("has no leader" in problem for problem, _ in await found())

            for words in ("damaged: ", " is damaged "):
                await eventually_is(is_offline, True)
                assert words in await reason(), "found by the scrubber, then by the start"
                assert str(directory) in await reason()
                cause, effect = await found()
                assert cause[0].startswith("broker 3 cannot open 1 of its replicas: single-0 (")
                assert str(directory) in cause[0]
                assert "docs/operating.md, A damaged log" in cause[1]
                assert effect[0] == "1 partition (single-0) has no leader and cannot be read or written"
                assert effect[1].startswith("broker 3 cannot open replicas there: mend that, as above; 1 partition (single-0) has no other")
                assert "ulimit" not in str([cause, effect])
                await cluster.stop(3)
                await cluster.start(3)

    asyncio.run(body())


@pytest.mark.slow
def test_partitions_that_refuse_records_for_want_of_room_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic with one replica refused all writes, and health said that none is offline, and that none is below min ISR."""

    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            async with asking(cluster, 1) as admin:
                created = [NewTopic("single", assignments={0: [3]}), NewTopic("shared", assignments={0: [3, 1]})]
                assert set((await admin.create_topics(created)).values()) == {None}
            [directory] = cluster.nodes[3].partitions.directories

            async def has_room(room: Room) -> bool:
                return room is not directory.room

            monkeypatch.setattr(Room, "keep_back", has_room)
            directory.room.on_full()

            async def found() -> list[str]:
                return [each["problem"] for each in (await seen(cluster))[1]["problems"]]

            path = tmp_path / "node-3"
            expected = [
                f"log directory {path} of broker 3 is full: nothing is written there",
                "broker 3 is not in sync for 1 partition",
                "1 partition (single-0) is led from a full log directory: what is produced is refused",
                "1 partition (shared-0) has no replica in sync to spare: one more failure stops acks=all there",
            ]
            await eventually_is(found, expected)
            monkeypatch.undo()
            await eventually_is(found, [])

    asyncio.run(body())


def test_room_that_is_almost_used_up_and_what_replicas_lack() -> None:
    replicas = tuple(DirectoryReplica(TopicPartition("t", index), 10, lag, index > 1) for index, lag in ((0, 3), (1, 4), (2, 100)))
    left = [(1, LogDir("/d", None, 100 << 20, 1_531_904, replicas)), (1, LogDir("/e", None, 100 << 20, 50 << 20, replicas[:1]))]
    full = [(2, LogDir("/f", None, 100 << 20, 0, replicas[:2]))]
    assert lags_of([*left, *full]) == {1: 10, 2: 7}, "without what moves there"
    unknown = (3, LogDir("/g", None, 100 << 20, 0, (DirectoryReplica(TopicPartition("t", 0), 10, -1, False),)))
    assert lags_of([*left, unknown, *full]) == {1: 10, 2: 7}, "of broker 3 it is not known"
    assert without_room([*left, *full]) == {TopicPartition("t", 0): {2}, TopicPartition("t", 1): {2}}
    [note] = room_notes([*left, *full])
    assert note.startswith("log directory /d of broker 1 has 1,531,904 bytes left; ")


def test_what_fills_a_full_directory_is_named_and_not_what_is_beside_it() -> None:
    """The largest replica of the broker was another directory's: deleting its topic made no room."""

    def replica(topic: str, size_bytes: int) -> DirectoryReplica:
        return DirectoryReplica(TopicPartition(topic, 0), size_bytes, 0, False)

    sizes = (("small", 5), ("large", 7_000), ("middle", 600), ("least", 1))
    full = LogDir("/full disk", None, 100 << 20, 0, tuple(replica(topic, size) for topic, size in sizes))
    beside = LogDir("/beside", None, 100 << 20, 50 << 20, (replica("largest", 9_000),))
    largest = largest_of([(3, beside), (3, full)])
    [finding] = findings(replace(WELL, full_log_dirs=[(3, "/full disk")], largest=largest))
    lists = "`ottla broker logdirs 3 --replicas --directory '/full disk'` lists what fills it, the largest first "
    assert finding.remedy.startswith(f"{lists}(large-0 has 7,000 bytes, middle-0 has 600 bytes, small-0 has 5 bytes); lower `retention.ms`")
    assert named_only([beside, full], ["/full disk"]) == [full]
    assert named_only([beside, full], []) == [beside, full]


def test_what_a_lagging_broker_lacks_is_said() -> None:
    states = PartitionStates(missing={2: 1, 3: 4})
    assert problems(replace(WELL, partitions=states, lags={2: 0, 3: 12_345})) == [
        "broker 2 is not in sync for 1 partition",
        "broker 3 is not in sync for 4 partitions, and lacks 12,345 records",
    ]


def test_a_sole_replica_that_is_gone_is_put_back_before_a_restart_makes_it_anew() -> None:
    """The advice was to restart the broker, which began the partition again, empty."""
    states = PartitionStates(unopened={3: 1})
    reasons = {3: {"single-0": "its directory was removed: /d/single-0"}}
    [finding] = findings(replace(WELL, partitions=states, unopened_reasons=reasons))
    assert finding.remedy.startswith("put the directory back, from a backup, before you restart broker 3")
    assert finding.remedy.endswith("what has no other replica begins again at a start, empty")
