"""Records become znodes, and znodes the same image again; whatever was written last when a controller died, the next one can go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metadata.znode_home import BYTES_MAX, EPOCH, Home

from ottla.coordination import Create, Delete, MultiFailedError, Set
from ottla.errors import DecodeError, KafkaError
from ottla.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.metadata import znodes
from ottla.metadata.image import CLIENT_ID, EMPTY_IMAGE, IP, RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_TOPIC, USER, ClusterImage
from ottla.metadata.replay import replay
from ottla.metadata.znode_reader import read_cluster
from ottla.metadata.znode_writer import ZnodeWriter
from ottla.wire.schema import Stored


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def creation(number: int, partition_count: int, *configs: tuple[str, str]) -> list[Stored]:
    records: list[Stored] = [TopicRecord(f"t{number}", topic_id(number))]
    records += [ConfigRecord(RESOURCE_TOPIC, f"t{number}", name, value) for name, value in configs]
    return records + [new_partition(number, index) for index in range(partition_count)]


def new_partition(number: int, index: int) -> PartitionRecord:
    return PartitionRecord(index, topic_id(number), [1, 2, 3], [1, 2], leader=1, leader_epoch=0, partition_epoch=0)


def test_a_group_of_records_is_written_into_the_znode_tree() -> None:
    home = Home()
    home.write(creation(1, 1, ("retention.ms", "5")))
    paths = home.tree.paths()
    assert paths["/brokers/topics/t1"] == (
        b'{"partitions":{"0":[1,2,3]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","adding_replicas":{},"removing_replicas":{},"version":3}'
    )
    assert paths["/brokers/topics/t1/partitions/0/state"] == b'{"controller_epoch":5,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2]}'
    assert paths["/config/topics/t1"] == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert paths["/config/changes/config_change_0000000000"] == b'{"version":2,"entity_path":"topics/t1"}'
    home.write([PartitionChangeRecord(0, topic_id(1), isr=[2], leader=2)])
    assert home.tree.version("/brokers/topics/t1/partitions/0/state") == 1
    assert home.tree.version("/brokers/topics/t1") == 0, "the assignment is as it was"
    home.write([PartitionChangeRecord(0, topic_id(1), replicas=[1, 2, 3, 4], adding_replicas=[4])])
    assert home.tree.version("/brokers/topics/t1/partitions/0/state") == 2 == home.image.topics["t1"].partitions[0].partition_epoch
    home.write([RemoveTopicRecord(topic_id(1))])
    assert not [path for path in home.tree.paths() if "t1" in path]


def test_a_partition_that_a_group_changes_twice_is_written_twice() -> None:
    home = Home()
    home.write([*creation(1, 1), PartitionChangeRecord(0, topic_id(1), isr=[1, 2, 3])])
    home.write([PartitionChangeRecord(0, topic_id(1), isr=[1]), PartitionChangeRecord(0, topic_id(1), isr=[1, 2])])
    assert home.tree.version("/brokers/topics/t1/partitions/0/state") == 3
    assert home.read().image == home.image


def test_a_write_over_what_another_wrote_is_refused() -> None:
    """Mechanism 28: the state's version is the partition epoch."""
    home = Home()
    home.write(creation(1, 1))
    home.do([Set("/brokers/topics/t1/partitions/0/state", b"{}", -1)])
    with pytest.raises(MultiFailedError, match="BadVersionError"):
        home.write([PartitionChangeRecord(0, topic_id(1), isr=[1])])


def test_values_that_are_not_ours_stay() -> None:
    home = Home()
    home.do([Create("/config/users/a%20b", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x","consumer_byte_rate":"5"}}')])
    cluster = home.read()
    assert cluster.image.quotas == {((USER, "a b"),): {"consumer_byte_rate": 5.0}}
    home.image, home.writer = cluster.image, ZnodeWriter(cluster.known, controller_epoch=EPOCH, broker_id=1)
    home.write([ClientQuotaRecord([QuotaEntity(USER, "a b")], "request_percentage", 12.5, False)])
    assert znodes.decode_config(home.tree.paths()["/config/users/a%20b"], "") == {
        "SCRAM-SHA-256": "salt=x",
        "consumer_byte_rate": "5",
        "request_percentage": "12.5",
    }


def test_a_new_topic_has_nothing_of_the_configuration_of_one_that_is_not_there() -> None:
    home = Home()
    home.do([Create("/config/topics/t1", b'{"version":1,"config":{"retention.ms":"1"}}')])
    cluster = home.read()
    assert cluster.image.configs == {}
    home.image, home.writer = cluster.image, ZnodeWriter(cluster.known, controller_epoch=EPOCH, broker_id=1)
    home.write(creation(1, 1))
    assert home.read().image == home.image
    assert home.read().image.topic_configs("t1") == {}


@pytest.mark.parametrize("entity", [[(USER, "u"), (CLIENT_ID, None)], [(CLIENT_ID, "c/d")], [(IP, None)], [(USER, None)]])
def test_quotas_of_every_kind_of_entity_are_read_again(entity: list[tuple[str, str | None]]) -> None:
    home = Home()
    parts = [QuotaEntity(kind, name) for kind, name in sorted(entity)]
    home.write([ClientQuotaRecord(parts, "connection_creation_rate", 7.0, False)])
    assert home.read().image == home.image
    home.write([ClientQuotaRecord(parts, "connection_creation_rate", 7.0, True)])
    assert home.read().image == home.image == replay(EMPTY_IMAGE, [FeatureLevelRecord("metadata.version", 21)])


def test_records_that_zookeeper_cannot_hold_are_refused() -> None:
    home = Home()
    for record in (
        ConfigRecord(RESOURCE_GROUP, "g", "consumer.session.timeout.ms", "5"),
        FeatureLevelRecord("metadata.version", 30),
        FeatureLevelRecord("group.version", 1),
    ):
        with pytest.raises(KafkaError):
            home.requests([record])


def test_a_topic_of_an_old_kafka_gets_an_id() -> None:
    home = Home()
    home.do([Create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1]}}')])
    cluster = read_cluster(home.found(), {"t": topic_id(9)})
    assert (cluster.unnamed, cluster.unborn) == (["t"], [("t", 0, (1,))])
    assert cluster.image.topics["t"].topic_id == topic_id(9)


def test_a_znode_that_cannot_be_read_is_named() -> None:
    home = Home()
    home.do([Create("/brokers/topics/t", b"nonsense")])
    found = home.read()
    assert not found.image.topics, "it never had a partition"
    assert ["/brokers/topics/t" in problem for problem in found.known.problems] == [True]
    home.do([Create("/brokers/topics/t/partitions")])
    with pytest.raises(DecodeError, match="/brokers/topics/t"):
        home.read()


def test_two_topics_that_have_partitions_and_one_id_are_named() -> None:
    """Which of them brokers have records of is not known; the partitions of one were those of the other."""
    home = Home()
    home.write(creation(1, 1))
    data = home.tree.paths()["/brokers/topics/t1"]
    home.do([Create("/brokers/topics/copy", data), Create("/brokers/topics/copy/partitions")])
    with pytest.raises(DecodeError, match="/brokers/topics/t1: it has the id of the topic copy"):
        home.read()


def test_a_large_group_is_cut_between_its_partitions() -> None:
    home = Home(bytes_max=2000)
    requests = home.requests(creation(1, 20))
    assert len(requests) > 3
    assert [operation.path for operation in requests[0]][2:4] == ["/brokers/topics/t1", "/brokers/topics/t1/partitions"]
    for request in requests[:2]:
        home.do(request)
    cluster = home.read()
    there = len(cluster.image.topics["t1"].partitions)
    assert 0 < there < 20
    assert [index for _, index, _ in cluster.unborn] == list(range(there, 20)), "whoever reads it makes the others"


def test_a_large_removal_that_is_cut_short_is_found() -> None:
    home = Home(bytes_max=2000)
    home.write(creation(1, 20))
    requests = home.requests([RemoveTopicRecord(topic_id(1))])
    assert len(requests) > 2
    home.do(requests[0])
    assert home.read().deleting == ["t1"]
    for request in requests[1:]:
        home.do(request)
    assert home.read().deleting == []
    assert not [path for path in home.tree.paths() if "t1" in path]


def test_brokers_are_no_business_of_the_writer() -> None:
    home = Home()
    assert home.requests([RegisterBrokerRecord(broker_id=1, log_dirs=[])]) == [[]]


NUMBERS = st.integers(1, 3)
NODES = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True)
CONFIGS = st.one_of(  # a controller decides on no value that its brokers cannot use; of other keys it may be any text
    st.tuples(st.just("retention.ms"), st.one_of(st.none(), st.integers(-1, 1 << 62).map(str))),
    st.tuples(st.just("cleanup.policy"), st.sampled_from([None, "delete", "compact", "compact,delete"])),
    st.tuples(st.sampled_from(["a.b", "ü"]), st.one_of(st.none(), st.text(max_size=5))),
)
Step = Callable[[ClusterImage], list[Stored]]


def _create(number: int, count: int, config: tuple[str, str | None]) -> Step:
    def step(image: ClusterImage) -> list[Stored]:
        if f"t{number}" in image.topics:
            return []
        return creation(number, count, *([(config[0], config[1])] if config[1] is not None else []))

    return step


def _change(number: int, nodes: list[int], isr_size: int, leads: bool, moves: bool) -> Step:
    def step(image: ClusterImage) -> list[Stored]:
        topic = image.topics.get(f"t{number}")
        if topic is None:
            return []
        isr = nodes[: max(1, isr_size % (len(nodes) + 1))]
        record = PartitionChangeRecord(0, topic.topic_id, isr=isr, replicas=nodes, leader=isr[0] if leads else -1)
        if moves:
            record.adding_replicas, record.removing_replicas = nodes[:1], nodes[1:2]
        else:
            record.adding_replicas, record.removing_replicas = [], []
        return [record]

    return step


def _remove(number: int) -> Step:
    return lambda image: [RemoveTopicRecord(image.topics[f"t{number}"].topic_id)] if f"t{number}" in image.topics else []


def _configure(number: int, config: tuple[str, str | None]) -> Step:
    def step(image: ClusterImage) -> list[Stored]:
        topic = [ConfigRecord(RESOURCE_TOPIC, f"t{number}", *config)] if f"t{number}" in image.topics else []
        return [*topic, ConfigRecord(RESOURCE_BROKER, "" if number == 1 else str(number), *config)]

    return step


def _add(number: int) -> Step:
    def step(image: ClusterImage) -> list[Stored]:
        topic = image.topics.get(f"t{number}")
        return [] if topic is None else [new_partition(int.from_bytes(topic.topic_id, "big"), len(topic.partitions))]

    return step


STEPS = st.one_of(
    st.builds(_create, NUMBERS, st.integers(1, 4), CONFIGS),
    st.builds(_change, NUMBERS, NODES, st.integers(1, 3), st.booleans(), st.booleans()),
    st.builds(_remove, NUMBERS),
    st.builds(_configure, NUMBERS, CONFIGS),
    st.builds(_add, NUMBERS),
    st.builds(lambda number: lambda image: [ProducerIdsRecord(1, -1, image.next_producer_id + 1000)], NUMBERS),
)


@given(st.lists(st.lists(STEPS, min_size=1, max_size=3), max_size=12), st.sampled_from([BYTES_MAX, 600]))
def test_the_tree_says_what_the_image_is(groups: list[list[Step]], bytes_max: int) -> None:
    """read(write(records)) == replay(records), in one request or in many, with one group for several decisions or not."""
    home = Home(bytes_max=bytes_max)
    for group in groups:
        for step in group:
            home.write(step(home.image))
        assert home.read().image == home.image
        assert home.read().known.versions == home.writer.known.versions | _untracked(home)


def _untracked(home: Home) -> dict[str, int]:
    """What nobody writes twice."""
    known = home.writer.known.versions
    return {path: version for path, (_, version) in home.found().items() if path not in known and not path.endswith("/state")}


@given(st.lists(STEPS, min_size=1, max_size=10), st.integers(0, 30))
def test_a_controller_that_dies_between_two_requests_leaves_a_tree_that_can_be_read(steps: list[Step], request_count: int) -> None:
    home = Home(bytes_max=600)
    for step in steps:
        for request in home.requests(step(home.image)):
            if request_count:
                home.do(request)
                request_count -= 1
    cluster = home.read()
    for name, index, _ in cluster.unborn:
        assert index not in cluster.image.topics[name].partitions


def test_only_what_is_there_is_deleted() -> None:
    home = Home()
    home.write(creation(1, 1))
    [request] = home.requests([RemoveTopicRecord(topic_id(1))])
    assert all(isinstance(operation, Delete) for operation in request)
