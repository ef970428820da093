"""Brokers come, are fenced, stop and go; and what becomes of the partitions that they hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.controller.in_one import begin_shutdown, fence_broker, register_broker, unfence_broker, unregister_broker

from ottla.config import BrokerConfig
from ottla.controller.brokers import check_epoch, has_leaderships
from ottla.controller.features import FEATURES, first_features
from ottla.controller.sessions import Sessions, Standing
from ottla.controller.topic_rules import TopicRules
from ottla.controller.topics import NewTopic, create_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.messages.metadata_records import PartitionChangeRecord
from ottla.metadata.history import ImageHistory
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage, ClusterImage, EndpointImage, PartitionImage
from ottla.types import NO_LEADER


class Cluster:
    """An image, and the decisions that made it; each of them is one group of records."""

    def __init__(self, *, has_elr: bool, min_isr: int = 1) -> None:
        self._history = ImageHistory(EMPTY_IMAGE)
        self._min_isr = min_isr
        self.is_unclean = False
        self.carry_out(first_features(EMPTY_IMAGE, min_isr=min_isr))
        if not has_elr:
            features = {name: level for name, level in self.image.features.items() if name == "metadata.version"}
            self._history = ImageHistory(dataclasses.replace(self.image, features=features))

    @property
    def image(self) -> ClusterImage:
        return self._history.draft

    def carry_out(self, decided: Any) -> Any:
        self._history.append(decided.records, end_offset=self.image.end_offset + len(decided.records), epoch=1)
        self._history.commit(self._history.seal().end_offset)
        return decided

    @property
    def rules(self) -> TopicRules:
        return TopicRules(self.image, self._min_isr, self.is_unclean)

    def register(self, broker: int, incarnation: int = 1, **named: Any) -> int:
        named = {"has_session": False, "previous_epoch": -1} | named
        decided = register_broker(self.image, process(broker, incarnation), rules=self.rules, **named)
        epoch: int = self.carry_out(decided).broker_epoch
        return epoch

    def serve(self, broker: int, incarnation: int = 1, **named: Any) -> int:
        epoch = self.register(broker, incarnation, **named)
        self.carry_out(unfence_broker(self.image, broker, rules=self.rules))
        return epoch

    def fence(self, broker: int) -> None:
        self.carry_out(fence_broker(self.image, broker, rules=self.rules))

    def create(self, *replicas: list[int]) -> None:
        topic = NewTopic("t", assignments=dict(enumerate(replicas)))
        self.carry_out(create_topic(self.image, topic, config=BrokerConfig({}), topic_id=b"t" * 16, start=0, shift=0))

    def partition(self, index: int = 0) -> PartitionImage:
        return self.image.topics["t"].partitions[index]


def process(broker: int, incarnation: int = 1) -> BrokerImage:
    """What a process says of itself."""
    end = EndpointImage("PLAINTEXT", "host", 9092)
    return BrokerImage(
        broker, -1, {"PLAINTEXT": end}, None, True, bytes([incarnation]) * 16, dict(FEATURES), directories=(bytes([200, broker]) * 8,)
    )


def refused(call: Any, *arguments: Any, **named: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments, **named)
    assert caught.value.message
    return caught.value.code


def test_a_brokers_epoch_is_the_offset_of_its_record_and_no_two_share_one() -> None:
    cluster = Cluster(has_elr=True)
    before = cluster.image.end_offset
    assert [cluster.register(broker) for broker in (1, 2)] == [before, before + 1]
    assert all(broker.is_fenced for broker in cluster.image.brokers.values())
    assert cluster.register(1) == before, "the same process registers again: its epoch stays"
    assert cluster.register(1, incarnation=2) > before + 1


@pytest.mark.parametrize("is_serving", [False, True])
def test_a_process_that_registers_a_second_time_stands_where_it_stood(is_serving: bool) -> None:
    cluster = Cluster(has_elr=True)
    if is_serving:
        cluster.serve(1)
    else:
        cluster.register(1)
    cluster.register(1)
    assert cluster.image.brokers[1].is_fenced is not is_serving


def test_a_second_process_waits_until_the_first_is_gone() -> None:
    cluster = Cluster(has_elr=True)
    cluster.serve(1)
    code = refused(register_broker, cluster.image, process(1, 2), has_session=True, previous_epoch=-1, rules=cluster.rules)
    assert code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    epoch = cluster.register(1, incarnation=2, has_session=False)
    assert cluster.image.brokers[1].is_fenced
    assert refused(check_epoch, cluster.image, 1, epoch - 1) == ErrorCode.STALE_BROKER_EPOCH
    assert refused(check_epoch, cluster.image, 9, 0) == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert check_epoch(cluster.image, 1, epoch).broker_epoch == epoch


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"directories": ()}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (bytes(15) + b"\1",)}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (b"d" * 16, b"d" * 16)}, ErrorCode.INVALID_REGISTRATION),
        ({"directories": (bytes([200, 2]) * 8,)}, ErrorCode.INVALID_REGISTRATION),
        ({"features": {}}, ErrorCode.INVALID_REGISTRATION),
        ({"features": {"metadata.version": (1, 5)}}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": {"metadata.version": FEATURES["metadata.version"]}}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_registration_that_cannot_be_says_why(changes: dict[str, Any], code: ErrorCode) -> None:
    cluster = Cluster(has_elr=True)
    cluster.serve(2)
    wanted = replace(process(1), **changes)
    assert refused(register_broker, cluster.image, wanted, has_session=False, previous_epoch=-1, rules=cluster.rules) == code


def test_a_fenced_leader_is_followed_by_the_first_in_sync_and_leaves_every_isr() -> None:
    cluster = Cluster(has_elr=False)
    for broker in (1, 2, 3):
        cluster.serve(broker)
    cluster.create([1, 2, 3], [3, 1, 2], [2, 3, 1])
    before = [cluster.partition(index) for index in range(3)]
    cluster.fence(1)
    after = [cluster.partition(index) for index in range(3)]
    assert [(partition.leader, partition.isr) for partition in after] == [(2, (2, 3)), (3, (3, 2)), (2, (2, 3))]
    assert [now.leader_epoch - then.leader_epoch for now, then in zip(after, before)] == [1, 0, 0]
    assert [now.partition_epoch - then.partition_epoch for now, then in zip(after, before)] == [1, 1, 1]
    assert fence_broker(cluster.image, 1, rules=cluster.rules).records == ()


@pytest.mark.parametrize(("suspected", "leaders"), [({2}, [3, 2]), ({2, 3}, [2, 2]), (set(), [2, 2])])
def test_a_suspected_broker_leads_only_where_no_other_broker_can(suspected: set[int], leaders: list[int]) -> None:
    cluster = Cluster(has_elr=True)
    for broker in (1, 2, 3):
        cluster.serve(broker)
    cluster.create([1, 2, 3], [2, 1, 3])
    cluster.carry_out(fence_broker(cluster.image, 1, rules=cluster.rules, suspected=suspected))
    assert [cluster.partition(index).leader for index in range(2)] == leaders
    assert cluster.partition(1).leader_epoch == 0, "who leads already goes on"


@pytest.mark.parametrize("has_elr", [True, False])
def test_the_last_replica_leads_again_when_it_is_back(has_elr: bool) -> None:
    cluster = Cluster(has_elr=has_elr)
    cluster.serve(1)
    cluster.serve(2)
    cluster.create([1])
    cluster.fence(1)
    lost = cluster.partition()
    assert lost.leader == NO_LEADER
    assert (lost.isr, lost.elr, lost.last_known_elr) == (((), (1,), (1,)) if has_elr else ((1,), (), ()))
    cluster.carry_out(unfence_broker(cluster.image, 2, rules=cluster.rules))
    assert cluster.partition() == lost, "nobody else has what it had"
    cluster.carry_out(unfence_broker(cluster.image, 1, rules=cluster.rules))
    found = cluster.partition()
    assert (found.leader, found.isr, found.elr, found.last_known_elr, found.leader_epoch) == (1, (1,), (), (), 2)


def test_a_replica_that_left_below_min_isr_is_eligible_unless_its_broker_went_down_uncleanly() -> None:
    cluster = Cluster(has_elr=True, min_isr=2)
    epochs = {broker: cluster.serve(broker) for broker in (1, 2, 3)}
    cluster.create([1, 2, 3])
    cluster.fence(1)
    assert (cluster.partition().isr, cluster.partition().elr) == ((2, 3), ())
    cluster.fence(2)
    assert (cluster.partition().leader, cluster.partition().isr, cluster.partition().elr) == (3, (3,), (2,))
    cluster.fence(3)
    assert (cluster.partition().leader, cluster.partition().isr, cluster.partition().elr) == (NO_LEADER, (), (2, 3))
    cluster.register(2, incarnation=2, previous_epoch=epochs[2])
    assert cluster.partition().elr == (2, 3), "an orderly stop loses nothing"
    cluster.register(3, incarnation=2, previous_epoch=-1)
    assert cluster.partition().elr == (2,)
    cluster.carry_out(unfence_broker(cluster.image, 3, rules=cluster.rules))
    assert cluster.partition().leader == NO_LEADER
    cluster.carry_out(unfence_broker(cluster.image, 2, rules=cluster.rules))
    assert (cluster.partition().leader, cluster.partition().isr, cluster.partition().elr) == (2, (2,), ())


def test_a_broker_killed_before_it_knew_its_epoch_stays_eligible() -> None:
    cluster = Cluster(has_elr=True, min_isr=2)
    epochs = {broker: cluster.serve(broker) for broker in (1, 2)}
    cluster.create([1, 2])
    cluster.fence(2)
    assert (cluster.partition().isr, cluster.partition().elr) == ((1,), (2,))
    cluster.register(2, incarnation=2, previous_epoch=epochs[2])
    third = {"previous_epoch": epochs[2], "previous_incarnations": [process(2, incarnation=2).incarnation_id]}
    cluster.register(2, incarnation=3, **third)
    assert cluster.partition().elr == (2,)
    cluster.register(2, incarnation=4, **third)
    assert cluster.partition().elr == (), "of the third nothing is known"


def test_an_orderly_stop_hands_over_first_and_ends_only_when_the_others_know() -> None:
    cluster = Cluster(has_elr=True)
    for broker in (1, 2):
        cluster.serve(broker)
    cluster.create([1, 2])
    sessions = Sessions(9_000)
    for broker in (1, 2):
        sessions.begin(broker, cluster.image.brokers[broker].broker_epoch, 0)

    def beat(broker: int, offset: int, want_shut_down: bool = False) -> Standing:
        image = cluster.image
        request = BrokerHeartbeatRequest(broker, image.brokers[broker].broker_epoch, offset, False, want_shut_down)
        sessions.hear(request, 0)
        leads = has_leaderships(image, broker)
        return sessions.standing_after(image.brokers[broker], request, leads=leads, serving=[1, 2])

    assert beat(2, 100) is Standing.UNFENCED
    assert beat(1, 100, want_shut_down=True) is Standing.CONTROLLED_SHUTDOWN
    cluster.carry_out(begin_shutdown(cluster.image, 1, rules=cluster.rules))
    sessions.begin_shutdown(1, 110)
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    assert cluster.image.brokers[1].in_controlled_shutdown
    assert beat(1, 110, want_shut_down=True) is Standing.CONTROLLED_SHUTDOWN, "2 does not know yet that it leads"
    beat(2, 110)
    assert beat(1, 110, want_shut_down=True) is Standing.SHUTDOWN_NOW


def test_a_fenced_broker_is_unfenced_once_it_has_its_own_registration() -> None:
    cluster = Cluster(has_elr=True)
    epoch = cluster.register(1)
    sessions = Sessions(9_000)
    for offset, want_fence, want_shut_down, standing in (
        (epoch - 1, False, False, Standing.FENCED),
        (epoch, True, False, Standing.FENCED),
        (epoch, False, False, Standing.UNFENCED),
        (epoch, False, True, Standing.SHUTDOWN_NOW),
    ):
        request = BrokerHeartbeatRequest(1, epoch, offset, want_fence, want_shut_down)
        sessions.hear(request, 0)
        assert sessions.standing_after(cluster.image.brokers[1], request, leads=False, serving=[]) is standing


@pytest.mark.parametrize(
    ("registered_at", "offset", "standing"), [(-1, -1, Standing.FENCED), (7, 6, Standing.FENCED), (7, 7, Standing.UNFENCED)]
)
def test_a_broker_that_has_followed_nothing_yet_does_not_serve(registered_at: int, offset: int, standing: Standing) -> None:
    """Its image has no topic, and its replicas would all be set aside, whatever a controller that has just begun knows of it."""
    cluster = Cluster(has_elr=True)
    epoch = cluster.register(1)
    sessions = Sessions(9_000, lambda broker_id, broker_epoch: registered_at)
    request = BrokerHeartbeatRequest(1, epoch, offset, False, False)
    sessions.hear(request, 0)
    assert sessions.standing_after(cluster.image.brokers[1], request, leads=False, serving=[]) is standing


def test_sessions_end_when_nothing_is_heard() -> None:
    sessions = Sessions(9_000)
    sessions.begin(1, 5, 0)
    sessions.begin(2, 6, 100)
    assert sessions.next_end_ms == 9_000
    assert sessions.expired(8_999) == []
    sessions.hear(BrokerHeartbeatRequest(1, 5, 0), 8_999)
    assert (sessions.expired(9_100), sessions.next_end_ms) == ([2], 9_100)
    assert sessions.is_live(1, 5, 9_100)
    assert not sessions.is_live(1, 4, 9_100), "a session is one process's"
    sessions.end(2)
    assert (sessions.expired(9_100), sessions.next_end_ms) == ([], 17_999)
    sessions.end(1)
    assert sessions.next_end_ms is None


def test_a_broker_that_is_unregistered_holds_nothing() -> None:
    cluster = Cluster(has_elr=True, min_isr=2)
    for broker in (1, 2):
        cluster.serve(broker)
    cluster.create([1, 2])
    cluster.fence(1)
    assert cluster.partition().elr == (1,)
    cluster.carry_out(unregister_broker(cluster.image, 1, rules=cluster.rules))
    assert (1 in cluster.image.brokers, cluster.partition().elr) == (False, ())
    assert refused(unregister_broker, cluster.image, 1, rules=cluster.rules) == ErrorCode.BROKER_ID_NOT_REGISTERED


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int]]:
    steps = st.tuples(st.sampled_from(["fence", "serve", "restart", "crash", "stop", "join"]), st.integers(1, 4))
    return draw(st.lists(steps, max_size=25))


@given(histories(), st.booleans(), st.integers(1, 3), st.integers(1, 3))
def test_in_any_sequence_of_events_the_leader_serves_and_the_complete_replicas_are_known(
    steps: list[tuple[str, int]], has_elr: bool, min_isr: int, width: int
) -> None:
    cluster = Cluster(has_elr=has_elr, min_isr=min_isr)
    incarnations = dict.fromkeys(range(1, 5), 1)
    for broker in incarnations:
        cluster.serve(broker)
    cluster.create(*([1, 2, 3][:width], [2, 3, 4][:width], [4, 1, 2][:width], [3, 1, 4][:width]))
    for step, broker in steps:
        before = [cluster.partition(index) for index in range(4)]
        known = cluster.image.brokers[broker]
        uncleanly = 0
        if step == "fence":
            cluster.fence(broker)
        elif step == "serve":
            cluster.carry_out(unfence_broker(cluster.image, broker, rules=cluster.rules))
        elif step == "stop":
            cluster.carry_out(begin_shutdown(cluster.image, broker, rules=cluster.rules))
        elif step == "join":  # a replica that has caught up is taken into the ISR by its leader
            for index, partition in enumerate(before):
                if partition.leader not in (NO_LEADER, broker) and broker in partition.replicas and not known.is_fenced:
                    isr = [node for node in partition.replicas if node in (*partition.isr, broker)]
                    elr = [node for node in partition.elr if node not in isr]
                    change = PartitionChangeRecord(index, b"t" * 16, isr=isr, eligible_leader_replicas=elr)
                    cluster.carry_out(_Records((change,)))
        else:
            incarnations[broker] += 1
            uncleanly = broker if step == "crash" else 0
            cluster.register(broker, incarnations[broker], previous_epoch=-1 if uncleanly else known.broker_epoch)
        for index, then in enumerate(before):
            now = cluster.partition(index)
            if now.leader != NO_LEADER:
                assert now.leader in now.isr
                assert not cluster.image.brokers[now.leader].is_fenced
            assert now.leader_epoch - then.leader_epoch == int(now.leader != then.leader)
            assert now.partition_epoch - then.partition_epoch == int(now != then)
            fenced = {node for node in now.isr if cluster.image.brokers[node].is_fenced}
            assert len(fenced) == 0 or (not has_elr and len(now.isr) == 1), "a fenced broker is in no ISR, but alone where it must be"
            if not has_elr:
                assert now.isr, "an ISR without eligible replicas is never empty"
            gone = {*then.isr, *then.elr} - {*now.isr, *now.elr} - {uncleanly}
            assert not gone or len(now.isr) >= min_isr or now.is_recovering or not has_elr, "who has everything is forgotten"


class _Records:
    def __init__(self, records: tuple[PartitionChangeRecord, ...]) -> None:
        self.records = records
