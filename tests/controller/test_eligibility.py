"""Who is eligible to lead has everything, whatever becomes of min.insync.replicas and of the feature, and no partition is stranded."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.controller.in_one import unfence_broker
from tests.controller.test_brokers import Cluster

from ottla.config import BrokerConfig
from ottla.controller.configs import ConfigChange, Operation, change_configs, replace_configs
from ottla.controller.decided import Recorded
from ottla.controller.features import ELR_VERSION, FEATURES, MIN_ISR, FeatureUpdate, update_features
from ottla.messages.metadata_records import ClearElrRecord, ConfigRecord, PartitionChangeRecord
from ottla.messages.update_features import UpgradeType
from ottla.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC
from ottla.types import NO_LEADER

CONFIG = BrokerConfig()
TOPIC_ID = b"t" * 16


def below_min_isr(*, own_value: bool = False) -> Cluster:
    """Of replicas 1, 2 and 3 only 1 is in sync, 2 is eligible, and two must be in sync: nothing is committed."""
    cluster = Cluster(has_elr=True, min_isr=1 if own_value else 2)
    for broker in (1, 2, 3):
        cluster.serve(broker)
    cluster.create([1, 2, 3])
    if own_value:
        set_min_isr(cluster, "t", "2")
    for broker in (3, 2):
        cluster.fence(broker)
    partition = cluster.partition()
    assert (partition.isr, partition.elr) == ((1,), (2,))
    return cluster


def set_min_isr(cluster: Cluster, topic: str, value: str | None) -> Recorded:
    change = ConfigChange(MIN_ISR, Operation.DELETE if value is None else Operation.SET, value)
    kind = RESOURCE_TOPIC if topic else RESOURCE_BROKER
    decided: Recorded = cluster.carry_out(change_configs(cluster.image, kind, topic, [change], config=CONFIG))
    return decided


def set_elr(cluster: Cluster, level: int) -> None:
    kind = UpgradeType.UPGRADE if level else UpgradeType.SAFE_DOWNGRADE
    update = FeatureUpdate(ELR_VERSION, level, kind)
    cluster.carry_out(update_features(cluster.image, [update], supported=FEATURES, min_isr=2))


def return_of(cluster: Cluster, broker: int) -> None:
    cluster.carry_out(unfence_broker(cluster.image, broker, rules=cluster.rules))


@pytest.mark.parametrize("how", ["set", "removed", "replaced", "for all brokers"])
def test_a_change_of_min_isr_ends_eligibility(how: str) -> None:
    """From then on the leader commits alone: who is eligible lacks that, and led after it (acks=all lost, and no word of it)."""
    cluster = below_min_isr(own_value=how == "removed")
    if how == "replaced":
        decided = cluster.carry_out(replace_configs(cluster.image, RESOURCE_TOPIC, "t", {MIN_ISR: "1"}, config=CONFIG))
    else:
        topic = "" if how == "for all brokers" else "t"
        decided = set_min_isr(cluster, topic, None if how == "removed" else "1")
    assert [type(record) for record in decided.records] == [ConfigRecord, ClearElrRecord], "in one group"
    assert cluster.partition().elr == ()
    cluster.fence(1)
    return_of(cluster, 2)
    assert cluster.partition().leader == NO_LEADER, "it lacks what 1 has committed alone"
    return_of(cluster, 1)
    assert cluster.partition().leader == 1


def test_another_value_ends_nothing() -> None:
    cluster = below_min_isr()
    change = ConfigChange("retention.ms", Operation.SET, "5")
    cluster.carry_out(change_configs(cluster.image, RESOURCE_TOPIC, "t", [change], config=CONFIG))
    assert cluster.partition().elr == (2,)


@pytest.mark.parametrize("topic", ["", "t"])
def test_without_a_replica_in_sync_the_eligible_replicas_stay_eligible(topic: str) -> None:
    """Nothing is committed there, and nobody else can ever lead. The first that leads ends it for the others, if it may commit alone."""
    cluster = below_min_isr()
    cluster.fence(1)
    assert (cluster.partition().isr, cluster.partition().elr) == ((), (1, 2))
    set_min_isr(cluster, topic, "1")
    assert (cluster.partition().elr, cluster.partition().last_known_elr) == ((1, 2), (1,))
    return_of(cluster, 2)
    assert (cluster.partition().leader, cluster.partition().isr, cluster.partition().elr) == (2, (2,), ())


def test_no_partition_is_stranded_when_the_feature_is_switched_off() -> None:
    cluster = below_min_isr()
    cluster.fence(1)
    set_elr(cluster, 0)
    assert cluster.partition().elr == (1, 2)
    return_of(cluster, 3)
    assert cluster.partition().leader == NO_LEADER, "3 lacks what 1 and 2 have"
    return_of(cluster, 2)
    assert (cluster.partition().leader, cluster.partition().isr, cluster.partition().elr) == (2, (2,), ())
    assert not cluster.partition().is_recovering


def test_turning_the_feature_off_and_on_leaves_no_replica_eligible() -> None:
    cluster = below_min_isr()
    set_elr(cluster, 0)
    set_elr(cluster, 1)
    assert cluster.partition().elr == ()


class Model:
    """Which replicas have all that was committed. What a leader commits, all that are in sync have; whoever is not, has not."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.complete = set(cluster.partition().isr)
        self.has_lost = set[int]()  # may have lost what it had, and has not caught up since

    def commit(self) -> None:
        partition = self.cluster.partition()
        has_elr = self.cluster.image.features.get(ELR_VERSION, 0) > 0
        enough = min(self.cluster.rules.min_isr("t"), len(partition.replicas)) if has_elr else 1
        if partition.leader != NO_LEADER and len(partition.isr) >= enough:
            self.complete = set(partition.isr)

    def check(self, before: Sequence[int]) -> None:
        partition = self.cluster.partition()
        if partition.is_recovering and partition.leader != NO_LEADER:  # that was unclean, and is said to be
            self.complete = set(partition.isr)
        has_elr = self.cluster.image.features.get(ELR_VERSION, 0) > 0
        if not has_elr and partition.isr:  # the last one that was heard of stays in sync, whatever it has lost (as with Kafka)
            self.complete |= set(partition.isr)
        assert set(partition.isr) <= self.complete, "who is in sync has everything"
        assert set(partition.elr) <= self.complete, "who is eligible has everything"
        assert partition.leader == NO_LEADER or partition.leader in self.complete
        everyone = all(not broker.is_fenced for broker in self.cluster.image.brokers.values())
        assert partition.leader != NO_LEADER or not everyone or not (set(before) & self.complete), "nobody leads, and all are back"


STEPS = st.one_of(
    st.tuples(st.sampled_from(["fence", "return", "crash", "join"]), st.integers(1, 3)),
    st.tuples(st.sampled_from(["topic", "all"]), st.sampled_from([0, 1, 2, 3])),
    st.tuples(st.just("feature"), st.integers(0, 1)),
)


@given(st.lists(STEPS, max_size=30), st.integers(1, 3))
def test_under_any_settings_the_leader_has_every_committed_record(steps: list[tuple[str, int]], min_isr: int) -> None:
    cluster = Cluster(has_elr=True, min_isr=min_isr)
    incarnations = dict.fromkeys((1, 2, 3), 1)
    for broker in incarnations:
        cluster.serve(broker)
    cluster.create([1, 2, 3])
    model = Model(cluster)
    for step, value in steps:
        before = (*cluster.partition().isr, *cluster.partition().elr)
        partition = cluster.partition()
        if step == "fence":
            cluster.fence(value)
        elif step == "return":
            return_of(cluster, value)
        elif step == "crash":
            incarnations[value] += 1
            model.complete.discard(value)
            cluster.register(value, incarnations[value], previous_epoch=-1)
        elif step == "join":
            if partition.leader not in (NO_LEADER, value) and not cluster.image.brokers[value].is_fenced:
                isr = [node for node in partition.replicas if node in (*partition.isr, value)]
                elr = [node for node in partition.elr if node not in isr]
                if len(isr) >= min(cluster.rules.min_isr("t"), 3):
                    elr = []
                model.complete.add(value)
                cluster.carry_out(Recorded((PartitionChangeRecord(0, TOPIC_ID, isr=isr, eligible_leader_replicas=elr),)))
        elif step == "feature":
            set_elr(cluster, value)
        elif value or step == "topic":
            set_min_isr(cluster, "t" if step == "topic" else "", str(value) if value else None)
        model.check(before)
        model.commit()
