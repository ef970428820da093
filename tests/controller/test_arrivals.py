"""Who has come only just now leads what others cannot, and gets its partitions back later: clients may still back off from it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.controller.in_one import fence_broker
from tests.controller.test_topics import cluster, create

from ottla.controller.arrivals import TOGETHER_MS, YOUNG_MS, Arrivals
from ottla.controller.elections import ElectionType, elect_leader, give_back
from ottla.controller.topic_rules import TopicRules
from ottla.controller.topics import NewTopic
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.replay import replay


def broker(node: int, epoch: int, *, is_fenced: bool = False) -> BrokerImage:
    return BrokerImage(node, epoch, {}, None, is_fenced)


def led(image: ClusterImage, fenced: int, young: dict[int, int]) -> int:
    """Who leads the partition when the broker is fenced."""
    rules = TopicRules(image, young=young)
    after = replay(image, fence_broker(image, fenced, rules=rules).records)
    return after.topics["t"].partitions[0].leader


@pytest.fixture
def image() -> ClusterImage:
    image = cluster(1, 2, 3)
    return replay(image, create(image, NewTopic("t", assignments={0: [1, 2, 3]})).records)


def test_among_replicas_in_sync_the_broker_that_is_up_longest_leads(image: ClusterImage) -> None:
    assert led(image, 1, {}) == 2, "who has been up for long is elected in the order of the replicas"
    assert led(image, 1, {2: 70}) == 3
    assert led(image, 1, {2: 70, 3: 50}) == 3, "a lower epoch has been up longer"
    assert led(image, 1, {2: 40, 3: 50}) == 2


def test_a_broker_that_has_just_started_leads_where_no_other_can(image: ClusterImage) -> None:
    image = replay(image, fence_broker(image, 3, rules=TopicRules(image)).records)
    assert led(image, 1, {2: 70}) == 2


def test_one_that_is_suspected_to_be_dead_comes_after_the_young(image: ClusterImage) -> None:
    rules = TopicRules(image, young={3: 70})
    after = replay(image, fence_broker(image, 1, rules=rules, suspected={2}).records)
    assert after.topics["t"].partitions[0].leader == 3


def test_a_preferred_leader_gets_its_partitions_back_when_it_is_no_longer_young(image: ClusterImage) -> None:
    topic_id = image.topics["t"].topic_id
    image = replay(image, [PartitionChangeRecord(0, topic_id, leader=2)])
    assert give_back(image, "t", 0, rules=TopicRules(image, young={1: 70})).records == ()
    assert give_back(image, "t", 0, rules=TopicRules(image, young={2: 70})).records != ()
    asked = elect_leader(image, "t", 0, ElectionType.PREFERRED, rules=TopicRules(image, young={1: 70}))
    assert asked.records != (), "who asks for it gets it"


def test_a_broker_is_young_for_a_while_after_it_began_to_serve() -> None:
    arrivals = Arrivals()
    first = {1: broker(1, 10), 2: broker(2, 11, is_fenced=True), 3: broker(3, 12, is_fenced=True)}
    arrivals.note(first, 0)
    served = first | {2: replace(first[2], is_fenced=False)}
    arrivals.note(served, TOGETHER_MS - 1)
    assert arrivals.young(TOGETHER_MS) == {}, "brokers of a cluster that starts are equals"
    served = served | {3: replace(first[3], is_fenced=False)}
    arrivals.note(served, YOUNG_MS)
    assert arrivals.young(YOUNG_MS) == {3: 12}, "it is fenced until it can be reached"
    assert arrivals.young(2 * YOUNG_MS) == {}
    arrivals.note(served | {1: broker(1, 20)}, 3 * YOUNG_MS)
    assert arrivals.young(3 * YOUNG_MS) == {1: 20}, "another process"
    again = served | {1: broker(1, 20)}
    arrivals.note({}, 5 * YOUNG_MS)
    arrivals.note(again | {1: replace(again[1], is_fenced=True)}, 5 * YOUNG_MS)
    assert arrivals.young(5 * YOUNG_MS) == {}
    arrivals.note(again, 5 * YOUNG_MS)
    assert arrivals.young(5 * YOUNG_MS) == {}, "another controller in ZooKeeper mode begins with no broker at all"


def test_brokers_that_a_node_finds_at_work_are_told_apart_by_their_epochs() -> None:
    arrivals = Arrivals()
    arrivals.note({1: broker(1, 90), 2: broker(2, 50)}, 7)
    assert arrivals.young(7) == {1: 90, 2: 50}
    assert arrivals.young(7 + YOUNG_MS) == {}
