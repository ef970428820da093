"""Quotas in force, on a virtual clock: the pause that a client above its quota gets, and that it is not read for that time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.foreign_clients.wire import RawClient, batch_of, produce_request

from ottla.admin_http.kafka_names import broker_families
from ottla.broker.requests import throttling
from ottla.client.cluster import Cluster
from ottla.errors import ErrorCode
from ottla.messages import alter_client_quotas as altering
from ottla.messages import describe_client_quotas as describing
from ottla.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.messages.produce import ProduceRequest, ProduceResponse
from ottla.quotas import THROTTLE_MS_MAX
from ottla.runtime.serve import BrokerThread
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run

TOPIC = "t"
BATCH = batch_of(bytes(1000))


async def set_quota(cluster: Cluster, entity: dict[str, str | None], **values: float) -> None:
    parts = [altering.EntityData(kind, name) for kind, name in entity.items()]
    entry = altering.EntryData(parts, [altering.OpData(key, value, False) for key, value in values.items()])
    answer = await cluster.ask(None, altering.AlterClientQuotasRequest([entry]), altering.AlterClientQuotasResponse)
    assert [result.error_code for result in answer.entries] == [ErrorCode.NONE]


def batches(count: int, *, acks: int = -1) -> ProduceRequest:
    """So many of them for one partition."""
    request = produce_request(TOPIC, *[BATCH] * count, acks=acks)
    for data in request.topic_data[0].partition_data:
        data.index = 0
    return request


class Client:
    """One connection, which does not wait by itself."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def now_ms(self) -> int:
        return self._cluster.world.clock.monotonic_ms()

    async def ask(self, request: Any, response: Any) -> Any:
        return await (await self._cluster.connection(1)).ask(request, response, timeout_ms=600_000, version_max=12)

    async def produce(self, count: int = 1) -> int:
        """The pause that is returned after so many batches in one request."""
        answer = await self.ask(batches(count), ProduceResponse)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        return int(answer.throttle_time_ms)

    async def fetch(self, **fields: int) -> tuple[int, int]:
        """The pause that is returned, and the bytes that came."""
        wanted = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
        answer = await self.ask(FetchRequest(min_bytes=1, topics=[FetchTopic(TOPIC, partitions=[wanted])], **fields), FetchResponse)  # type: ignore[arg-type]
        return answer.throttle_time_ms, sum(len(part.records or b"") for topic in answer.responses for part in topic.partitions)

    async def round_trip_ms(self) -> int:
        """How long the next answer on the connection takes."""
        began_ms = self.now_ms
        await self.ask(ApiVersionsRequest("probe", "1"), ApiVersionsResponse)
        return self.now_ms - began_ms


async def start(properties: dict[str, str] | None = None) -> tuple[SimBroker, Client]:
    simulation = Simulation(7)
    broker = SimBroker(simulation, properties or {})
    await broker.start()
    cluster = broker.client("greedy")
    await cluster.ask(None, CreateTopicsRequest([CreatableTopic(TOPIC, 1, 1)]), CreateTopicsResponse)
    await cluster.refresh([TOPIC])
    return broker, Client(cluster)


def test_a_producer_above_its_quota_gets_a_pause_and_is_not_read_meanwhile() -> None:
    async def main() -> None:
        broker, client = await start()
        assert await client.produce() == 0
        await set_quota(client._cluster, {"client-id": "greedy"}, producer_byte_rate=200)
        assert await client.produce() == 0, "ten seconds' worth may come at once"
        assert await client.produce(1) in range(500, 1000), "2 x 1,075 bytes are 150 more than 2,000, at 200 bytes a second"
        assert await client.round_trip_ms() > 400
        assert await client.round_trip_ms() < 100
        other = broker.client("modest")
        await other.refresh([TOPIC])
        assert await Client(other).produce(10) == 0, "the quota is another's"

    run(main())


def test_pauses_are_counted_by_quota_and_client_and_those_of_very_many_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators saw no client that was slowed down."""
    name = "ottla_client_throttle_time_ms_total"
    monkeypatch.setattr(throttling, "PAUSED_MAX", 1)

    async def main() -> None:
        broker, client = await start()

        def shown() -> dict[tuple[str, ...], float]:
            assert broker.broker is not None
            [family] = [found for found in broker_families(broker.broker.status, idle_share=0.0) if found.name == name]
            return {tuple(text for _, text in sample.labels): sample.value for sample in family.samples}

        await set_quota(client._cluster, {"client-id": None}, producer_byte_rate=200)
        assert (await client.produce(), shown()) == (0, {})
        pause_ms = await client.produce(2)
        assert shown() == {("producer_byte_rate", "ANONYMOUS", "greedy"): pause_ms}
        total = 0
        for other in (broker.client("second"), broker.client("third")):
            await other.refresh([TOPIC])
            total += await Client(other).produce(3)
        assert shown().pop(("producer_byte_rate", throttling.OTHERS, throttling.OTHERS)) == total
        assert len(shown()) == 2

    run(main())


def test_batches_that_get_no_answer_count_too() -> None:
    async def main() -> None:
        _, client = await start()
        await set_quota(client._cluster, {"user": None}, producer_byte_rate=1000)
        connection = await client._cluster.connection(1)
        before = await client.round_trip_ms()
        request = batches(20, acks=0)
        request.topic_data[0].topic_id = client._cluster.topics[TOPIC].topic_id
        connection.send_unanswered(request)
        assert await client.round_trip_ms() > before + 10_000

    run(main())


def test_a_consumer_above_its_quota_gets_the_pause_instead_of_records_and_the_records_after_it() -> None:
    async def main() -> None:
        _, client = await start()
        assert await client.produce(3) == 0
        await set_quota(client._cluster, {"user": "ANONYMOUS"}, consumer_byte_rate=500)
        began_ms = client.now_ms
        assert await client.fetch() == (0, 3 * len(BATCH))
        told_ms, size_bytes = 0, 0
        while not size_bytes:
            pause_ms, size_bytes = await client.fetch()
            told_ms += pause_ms
            assert size_bytes or pause_ms
            assert told_ms < 60_000
        assert size_bytes == 3 * len(BATCH)
        assert client.now_ms - began_ms >= told_ms > 2000, "the connection was mute for as long as was returned"

    run(main())


def test_a_batch_that_is_larger_than_the_quota_is_given_and_paid_for_afterwards() -> None:
    async def main() -> None:
        _, client = await start()
        assert await client.produce() == 0
        await set_quota(client._cluster, {"client-id": "greedy"}, consumer_byte_rate=50)
        pause_ms, size_bytes = await client.fetch()
        assert size_bytes == len(BATCH)
        assert pause_ms > 10_000
        assert await client.round_trip_ms() > 10_000

    run(main())


def test_an_answer_brings_no_more_than_the_quota_has_in_its_windows() -> None:
    async def main() -> None:
        _, client = await start({"quota.window.num": "2", "quota.window.size.seconds": "2"})
        assert await client.produce(10) == 0
        await set_quota(client._cluster, {"client-id": None}, consumer_byte_rate=1500)
        assert await client.fetch() == (0, 3000), "one full window of two seconds"

    run(main())


def test_topics_come_grow_and_go_as_fast_as_the_quota_allows() -> None:
    async def main() -> None:
        _, client = await start({"controller.quota.window.num": "2"})
        await set_quota(client._cluster, {"client-id": "greedy"}, controller_mutation_rate=1)

        async def create(*names: str, validate_only: bool = False) -> tuple[int, list[int]]:
            request = CreateTopicsRequest([CreatableTopic(name, 3, 1) for name in names], validate_only=validate_only)
            answer = await client.ask(request, CreateTopicsResponse)
            return answer.throttle_time_ms, [result.error_code for result in answer.topics]

        assert await create("a", "b", validate_only=True) == (0, [ErrorCode.NONE] * 2), "asking costs nothing"
        pause_ms, codes = await create("a", "b", "c")
        assert codes == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert pause_ms == 1001, "two tokens, and three partitions"
        assert await client.round_trip_ms() > 800
        assert await create("b") == (0, [ErrorCode.NONE])
        grown = CreatePartitionsRequest([CreatePartitionsTopic("a", 4, None)])
        answer = await client.ask(grown, CreatePartitionsResponse)
        assert [result.error_code for result in answer.results] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert answer.throttle_time_ms > 0
        await client.round_trip_ms()
        assert (await client.ask(grown, CreatePartitionsResponse)).results[0].error_code == ErrorCode.NONE
        names = ["a", "b"]
        deleted = await client.ask(DeleteTopicsRequest([DeleteTopicState(name) for name in names], names), DeleteTopicsResponse)
        assert ErrorCode.THROTTLING_QUOTA_EXCEEDED in [result.error_code for result in deleted.responses]

    run(main())


def test_a_client_whose_quota_is_next_to_nothing_is_answered() -> None:
    """Its pause was no number that the answer can have: there was none, and the connection stood still."""

    async def main() -> None:
        _, client = await start()
        await set_quota(client._cluster, {"client-id": "greedy"}, controller_mutation_rate=1e-12)
        request = CreateTopicsRequest([CreatableTopic("another", 1, 1)])
        answer = await (await client._cluster.connection(1)).ask(request, CreateTopicsResponse, timeout_ms=600_000, version_max=5)
        assert (answer.topics[0].error_code, answer.throttle_time_ms) == (ErrorCode.NONE, THROTTLE_MS_MAX)

    run(main())


@pytest.mark.parametrize("ends", [False, True])
def test_a_connection_that_ends_in_its_pause_is_not_kept_for_it(ends: bool) -> None:
    """A client that connected again and again, and paused for days each time, filled the memory with connections that had ended."""
    now_ms, later, read = [1000], list[tuple[int, Any]](), list[None]()
    clock = SimpleNamespace(monotonic_ms=lambda: now_ms[0])
    timers = SimpleNamespace(call_later_ms=lambda delay_ms, call: later.append((delay_ms, call)))
    config = dict.fromkeys(("quota.window.num", "controller.quota.window.num"), 11)
    config |= dict.fromkeys(("quota.window.size.seconds", "controller.quota.window.size.seconds"), 1)
    made = throttling.Throttling(cast(Any, SimpleNamespace(clock=clock, timers=timers)), cast(Any, config))
    connection = SimpleNamespace(muted_until_ms=0, transport=SimpleNamespace(is_closed=False), update_reading=lambda: read.append(None))
    pause_ms, looks = 2 * throttling.LOOK_MS + 1, 0
    made.pause(cast(Any, SimpleNamespace(connection=connection)), pause_ms)
    while later:
        assert connection.muted_until_ms == 1000 + pause_ms
        [(delay_ms, look)] = later
        later.clear()
        now_ms[0] += delay_ms
        connection.transport.is_closed = ends
        look()
        looks += 1
    assert (looks, len(read)) == ((1, 0) if ends else (3, 1))
    assert ends or (now_ms[0], connection.muted_until_ms) == (1000 + pause_ms, 0)


def test_quotas_are_kept_changed_and_removed_at_once() -> None:
    async def main() -> None:
        broker, client = await start()
        await set_quota(client._cluster, {"client-id": "greedy"}, producer_byte_rate=1)
        broker.kill(power_cut=True)
        await broker.start()
        cluster = broker.client("greedy")
        await cluster.refresh([TOPIC])
        client = Client(cluster)
        assert await client.produce(10) > 0
        remove = altering.EntryData([altering.EntityData("client-id", "greedy")], [altering.OpData("producer_byte_rate", 0.0, True)])
        other = broker.client("operator")
        await other.ask(None, altering.AlterClientQuotasRequest([remove]), altering.AlterClientQuotasResponse)
        again = broker.client("greedy")
        await again.refresh([TOPIC])
        assert await Client(again).produce(10) == 0

    run(main())


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_returned_as_they_were_set_each_entity_for_itself(tmp_path: Path, version: int) -> None:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    with BrokerThread(config) as broker, RawClient(int(broker.bootstrap.rpartition(":")[2])) as client:
        entries = [
            altering.EntryData([altering.EntityData("user", "a")], [altering.OpData("producer_byte_rate", 5.0)]),
            altering.EntryData([altering.EntityData("planet", "a")], [altering.OpData("producer_byte_rate", 5.0)]),
            altering.EntryData([altering.EntityData("ip", "192.0.2.1")], [altering.OpData("connection_creation_rate", 2.0)]),
        ]
        validated = client.ask(altering.AlterClientQuotasRequest(entries, True), version)
        everything = describing.DescribeClientQuotasRequest()
        assert client.ask(everything, version).entries == [], "it was only asked whether that could be"
        answer = client.ask(altering.AlterClientQuotasRequest(entries), version)
        assert answer.entries == validated.entries
        assert [result.error_code for result in answer.entries] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
        assert [result.entity for result in answer.entries] == [entry.entity for entry in entries]
        only_users = [describing.ComponentData("user", 2, None)]
        [found] = client.ask(describing.DescribeClientQuotasRequest(only_users, True), version).entries
        assert [(part.entity_type, part.entity_name) for part in found.entity] == [("user", "a")]
        assert [(value.key, value.value) for value in found.values] == [("producer_byte_rate", 5.0)]
        assert len(client.ask(everything, version).entries) == 2
        wrong = client.ask(describing.DescribeClientQuotasRequest([describing.ComponentData("user", 9, None)]), version)
        assert (wrong.error_code, wrong.entries) == (ErrorCode.INVALID_REQUEST, None)


def test_request_time_is_measured_and_its_quota_enforced(tmp_path: Path) -> None:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    with BrokerThread(config) as broker, RawClient(int(broker.bootstrap.rpartition(":")[2])) as client:
        assert client.ask(ApiVersionsRequest("probe", "1"), 3).throttle_time_ms == 0
        entity = [altering.EntityData("client-id", "raw")]
        tiny = altering.EntryData(entity, [altering.OpData("request_percentage", 1e-6)])  # 100 ns in ten seconds
        client.ask(altering.AlterClientQuotasRequest([tiny]), 1)
        pauses = [client.ask(ApiVersionsRequest("probe", "1"), 3).throttle_time_ms for _ in range(2)]
        assert all(0 < pause_ms <= 1000 for pause_ms in pauses)
        of_nodes = [(AddPartitionsToTxnRequest(), 5), (OffsetForLeaderEpochRequest(replica_id=1), 4), (FetchRequest(replica_id=1), 11)]
        assert [client.ask(request, version).throttle_time_ms for request, version in of_nodes] == [0, 0, 0]
        of_clients = [(OffsetForLeaderEpochRequest(replica_id=-1), 4), (FetchRequest(), 11)]
        assert 0 not in [client.ask(request, version).throttle_time_ms for request, version in of_clients]
