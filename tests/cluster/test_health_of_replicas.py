"""What ``ottla cluster health`` says of replicas that a broker cannot open: what the broker itself knows of them, and once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.cluster.loop_clients import asking
from tests.cluster.one_loop import cluster_on_loop
from tests.cluster.test_damaged_replicas import RECORDS, SEGMENT_BYTES, damage
from tests.cluster.test_health import seen
from tests.waiting import eventually_is

from ottla.aio import NewTopic, Producer
from ottla.broker.upkeep.scrubber import Scrubber
from ottla.errors import ErrorCode, KafkaError


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
