"""Leaders go back to the first replicas where that is safe, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.controller.in_one import begin_shutdown, fence_broker, unfence_broker
from tests.controller.test_brokers import Cluster, refused

from ottla.controller.elections import Elected, ElectionType, elect_leader, elect_uncleanly, elections_in, give_back, is_imbalanced
from ottla.controller.isr_changes import WantedIsr, alter_isr
from ottla.controller.topic_rules import UNCLEAN as UNCLEAN_KEY
from ottla.controller.topic_rules import TopicRules
from ottla.errors import ErrorCode
from ottla.messages.metadata_records import ConfigRecord, PartitionChangeRecord
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, PartitionImage
from ottla.metadata.replay import replay
from ottla.types import NO_LEADER

TOPIC_ID = b"t" * 16
PREFERRED, UNCLEAN = ElectionType


def three(*replicas: list[int], has_elr: bool = True, min_isr: int = 1) -> Cluster:
    """Brokers 1 to 3, and topic t."""
    cluster = Cluster(has_elr=has_elr, min_isr=min_isr)
    for broker in (1, 2, 3):
        cluster.serve(broker)
    cluster.create(*replicas)
    return cluster


def join(cluster: Cluster, *isr: int, index: int = 0) -> Any:
    """What is decided when the leader has found these to be in sync."""
    partition = cluster.partition(index)
    wanted = WantedIsr(
        partition.leader, TOPIC_ID, index, partition.leader_epoch, partition.partition_epoch, [(node, -1) for node in isr]
    )  # fmt: skip
    return cluster.carry_out(alter_isr(cluster.image, wanted, rules=cluster.rules))


def give_all_back(cluster: Cluster, suspected: Any = ()) -> None:
    for index in cluster.image.topics["t"].partitions:
        cluster.carry_out(give_back(cluster.image, "t", index, rules=cluster.rules, suspected=suspected))


def test_leaderships_return_to_the_first_replica_once_it_is_in_sync() -> None:
    cluster = three([1, 2, 3], [2, 3, 1])
    cluster.fence(1)
    give_all_back(cluster)
    assert [cluster.partition(index).leader for index in range(2)] == [2, 2], "the first replica is fenced"
    cluster.carry_out(unfence_broker(cluster.image, 1, rules=cluster.rules))
    give_all_back(cluster)
    assert cluster.partition().leader == 2, "it is not in sync"
    join(cluster, 2, 3, 1)
    before = cluster.partition()
    give_all_back(cluster, suspected={1})
    assert cluster.partition() == before, "its process may be dead"
    give_all_back(cluster)
    after = cluster.partition()
    assert (after.leader, after.isr, after.leader_epoch) == (1, before.isr, before.leader_epoch + 1)
    assert cluster.partition(1).leader_epoch == 0, "what leads where it should goes on"
    give_all_back(cluster)
    assert cluster.partition() == after


def test_a_broker_that_stops_is_given_nothing_back() -> None:
    cluster = three([1, 2, 3])
    cluster.carry_out(begin_shutdown(cluster.image, 1, rules=cluster.rules))
    cluster.carry_out(_Records(PartitionChangeRecord(0, TOPIC_ID, isr=[1, 2, 3])))
    assert not is_imbalanced(cluster.image, cluster.partition())
    code = refused(elect_leader, cluster.image, "t", 0, PREFERRED, rules=cluster.rules)
    assert code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_a_replica_in_an_unavailable_directory_gets_no_leadership_back() -> None:
    """Broker 1 has the directory that ``process`` gives it, and no other one."""
    own = cluster_directory(1)
    for directory, leader in ((own, 1), (b"o" * 16, 2), ((1).to_bytes(16, "big"), 1), ((2).to_bytes(16, "big"), 2)):
        cluster = three([1, 2])
        cluster.carry_out(_Records(PartitionChangeRecord(0, TOPIC_ID, leader=2, directories=[directory, cluster_directory(2)])))
        give_all_back(cluster)
        assert cluster.partition().leader == leader, directory


@pytest.mark.parametrize("has_elr", [True, False])
def test_an_unclean_election_happens_where_it_is_allowed_and_its_leader_recovers(has_elr: bool) -> None:
    """Broker 2 was not in sync when broker 1, the last that was, went down."""
    cluster = three([1, 2], has_elr=has_elr)
    cluster.fence(2)
    cluster.fence(1)
    lost = cluster.partition()
    cluster.carry_out(unfence_broker(cluster.image, 2, rules=cluster.rules))
    assert cluster.partition() == lost
    assert elect_uncleanly(cluster.image, "t", 0, rules=cluster.rules).records == (), "it is not allowed"
    cluster.is_unclean = True
    assert elect_uncleanly(cluster.image, "other", 0, rules=cluster.rules).records == ()
    decided = elect_uncleanly(cluster.image, "t", 0, rules=cluster.rules)
    assert list(elections_in(cluster.image, decided.records)) == [Elected("t", 0, 2, (1,), is_unclean=True)]
    cluster.carry_out(decided)
    found = cluster.partition()
    assert (found.leader, found.isr, found.elr, found.last_known_elr, found.is_recovering) == (2, (2,), (), (), True)
    assert elect_uncleanly(cluster.image, "t", 0, rules=cluster.rules).records == (), "it has a leader"
    cluster.carry_out(unfence_broker(cluster.image, 1, rules=cluster.rules))
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    join(cluster, 2, 1)
    assert (cluster.partition().isr, cluster.partition().is_recovering) == ((2, 1), False)


def test_an_eligible_replica_that_leads_after_the_last_one_in_sync_is_no_unclean_leader() -> None:
    cluster = three([1, 2, 3], min_isr=2)
    for broker in (3, 2):
        cluster.fence(broker)
    assert (cluster.partition().isr, cluster.partition().elr) == ((1,), (2,))
    cluster.carry_out(unfence_broker(cluster.image, 2, rules=cluster.rules))
    decided = fence_broker(cluster.image, 1, rules=cluster.rules)
    assert list(elections_in(cluster.image, decided.records)) == [Elected("t", 0, 2)]
    cluster.carry_out(decided)
    assert (cluster.partition().leader, cluster.partition().elr, cluster.partition().is_recovering) == (2, (1,), False)


def test_where_unclean_election_is_allowed_no_partition_stays_without_a_leader() -> None:
    """The election happens when the last in sync is fenced, when a replica is back, and when it is asked for."""
    cluster = three([1, 2], [1, 3])
    cluster.is_unclean = True
    cluster.fence(2)
    cluster.fence(1)
    assert [cluster.partition(index).leader for index in range(2)] == [NO_LEADER, 3], "3 was in sync"
    cluster.carry_out(unfence_broker(cluster.image, 2, rules=cluster.rules))
    assert (cluster.partition().leader, cluster.partition().is_recovering) == (2, True)
    assert not cluster.partition(1).is_recovering
    other = three([1, 2])
    other.fence(2)
    other.fence(1)
    assert refused(elect_leader, other.image, "t", 0, UNCLEAN, rules=other.rules) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    other.carry_out(unfence_broker(other.image, 2, rules=other.rules))
    assert other.partition().leader == NO_LEADER
    other.carry_out(elect_leader(other.image, "t", 0, UNCLEAN, rules=other.rules))
    assert (other.partition().leader, other.partition().is_recovering) == (2, True)


def test_the_value_of_a_topic_outweighs_that_of_the_brokers() -> None:
    cluster = three([1, 2])

    def allowed(topic: str | None, brokers: str | None, *, static: bool) -> bool:
        named = ((RESOURCE_TOPIC, "t", topic), (RESOURCE_BROKER, "", brokers))
        image = replay(cluster.image, [ConfigRecord(kind, name, UNCLEAN_KEY, value) for kind, name, value in named if value is not None])
        return TopicRules(image, is_static_unclean=static).may_be_unclean("t")

    assert [allowed(None, None, static=static) for static in (False, True)] == [False, True]
    assert [allowed(None, value, static=value == "false") for value in ("false", "true")] == [False, True]
    assert [allowed(value, other, static=True) for value, other in (("false", "true"), ("true", "false"))] == [False, True]


def test_a_partition_that_is_gone_is_no_concern() -> None:
    cluster = three([1, 2])
    assert give_back(cluster.image, "t", 7, rules=cluster.rules).records == ()
    assert give_back(cluster.image, "other", 0, rules=cluster.rules).records == ()


@given(
    st.lists(st.tuples(st.sampled_from(["fence", "serve", "join", "balance"]), st.integers(1, 3)), max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_balancing_never_changes_who_is_in_sync_nor_takes_a_leader_from_elsewhere(
    steps: list[tuple[str, int]], has_elr: bool, is_unclean: bool
) -> None:
    cluster = three([1, 2, 3], [2, 3, 1], [3, 1, 2], has_elr=has_elr, min_isr=2)
    cluster.is_unclean = is_unclean
    for step, broker in steps:
        before = [cluster.partition(index) for index in range(3)]
        if step == "fence":
            cluster.fence(broker)
        elif step == "serve":
            cluster.carry_out(unfence_broker(cluster.image, broker, rules=cluster.rules))
        elif step == "join":
            for index, partition in enumerate(before):
                if partition.leader != NO_LEADER and not cluster.image.brokers[broker].is_fenced:
                    join(cluster, *dict.fromkeys((*partition.isr, broker)), index=index)
        else:
            give_all_back(cluster, suspected={broker})
            for index, then in enumerate(before):
                check_balanced(then, cluster.partition(index), broker)


def check_balanced(then: PartitionImage, now: PartitionImage, suspected: int) -> None:
    assert (now.isr, now.elr, now.last_known_elr, now.is_recovering) == (then.isr, then.elr, then.last_known_elr, then.is_recovering)
    if now != then:
        assert now.leader == now.replicas[0] != suspected
        assert now.leader in then.isr
        assert now.leader_epoch == then.leader_epoch + 1


def cluster_directory(broker: int) -> bytes:
    return bytes([200, broker]) * 8


class _Records:
    def __init__(self, *records: PartitionChangeRecord) -> None:
        self.records = records
