"""What ``ottla cluster health`` names as causes: lists of controllers, leaders that do not answer, lags and throttles."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from tests.cluster.test_health import WELL, partition, problems

from ottla.cli.cluster_health import summary
from ottla.cli.health_findings import findings
from ottla.cli.health_partitions import PartitionStates
from ottla.cli.quorum_health import Voter, ended_voters, spare
from ottla.cli.quorum_lists import addresses_of, dead_addresses
from ottla.cli.throttles import Throttles
from ottla.client.admin import QuorumDescription, QuorumReplica
from ottla.sync import Admin
from ottla.types import TopicPartition

NETWORK = "NETWORK_EXCEPTION: broker 2 cannot be reached: no broker at a:1: [Errno 111] Connect call failed ('a', 1)"


@pytest.fixture
def ports() -> Iterator[list[int]]:
    """Three ports that take connections, and one that refuses them."""
    with ExitStack() as stack:
        live = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        dead = stack.enter_context(socket.socket())
        dead.bind(("127.0.0.1", 0))
        yield [one.getsockname()[1] for one in (*live, dead)]


def voters(*ports: int, host: str = "127.0.0.1") -> str:
    return ",".join(f"{node}@{host}:{port}" for node, port in enumerate(ports, 1))


def quorum(leader: int) -> QuorumDescription:
    return QuorumDescription(leader, 1, 9, tuple(QuorumReplica(node, b"", 9, 9_000, 9_000) for node in (1, 2, 3)), ())


def test_an_address_where_nothing_listens_is_found_by_who_has_it(ports: list[int]) -> None:
    """It was a note, "right while controllers move to another listener", and the next failure stopped the cluster."""
    one, two, three, refusing = ports
    right, wrong = voters(one, two, three), voters(one, refusing, three)
    lists = {1: right, 2: right, 3: wrong}
    dead = {3: {2: f"127.0.0.1:{refusing}"}}
    assert dead_addresses(lists, quorum(1)) == dead
    assert dead_addresses(lists, None) == dead, "also where no controller is active"
    assert dead_addresses(lists, quorum(2)) == {}, "it fetches from 2: the address is another machine's from here"
    assert dead_addresses({1: right, 2: right, 3: voters(one, three, three)}, quorum(1)) == {}, "of two listeners"
    assert dead_addresses({1: right, 2: wrong, 3: right}, quorum(1)) == {}, "no node connects to itself"
    assert dead_addresses({1: voters(one, refusing, three), 2: right, 3: wrong}, quorum(1)).keys() == {1, 3}
    assert dead_addresses({1: wrong, 2: wrong, 3: wrong}, quorum(1)) == {}
    assert addresses_of(lists, [1, 2, 3], dead)[2] == f"127.0.0.1:{two}"
    assert addresses_of({1: voters(one, refusing, three), 3: wrong, 2: right}, [], {1: dead[3], **dead})[2] == f"127.0.0.1:{two}"
    assert addresses_of({}, [1], {}) == {}


def test_a_voter_that_does_not_reach_all_others_is_not_counted_as_one_that_may_take_over() -> None:
    three = [Voter(1, 0, False), Voter(2, 0, False), Voter(3, 0, False, cannot_reach=(2,))]
    ill = replace(WELL, voters=three, dead_addresses={3: {2: "b:9"}})
    assert spare(three, [2]) == "of 3 controllers 2 must run, and 2 do, of which 3 does not reach all others: no more may fail"
    assert spare(three) == "of 3 controllers 2 must run, and 3 do, of which 3 does not reach all others: no more may fail"
    [found] = findings(ill)
    assert found.problem.startswith("broker 3 has 2@b:9 in controller.quorum.voters, where nothing listens: others have another port")
    assert (found.nodes, "restart node 3" in found.remedy, "`ottla config lint FILE...`" in found.remedy) == ((3,), True, True)
    lost = replace(
        ill, controller=None, controller_problem="why", voters=[], configured_voters={1: "a:1", 2: "b:2"}, unreachable_voters=[1]
    )
    outage, cause = findings(lost)
    assert "start controller 1 (a:1)" in outage.remedy
    assert outage.remedy.endswith("; mend the list of broker 3, as below, which keeps controllers that run from electing one of them")
    assert cause.problem == found.problem
    led_by_two = replace(ill, controller=2, voters=[*three[:2], replace(three[2], is_silent=True)], configured_voters={3: "c:3"})
    assert list(findings(led_by_two))[1].remedy.startswith("mend its list, as above (`ottla config lint FILE...`): controller 2 listens at")


def lost_majority() -> PartitionStates:
    """Brokers 2 and 3 serve, as the cluster says, and do not answer. Broker 1 leads ``t-2`` with them in sync."""
    states = PartitionStates()
    for index, leader in enumerate((2, 3, 1)):
        found = partition(leader, [1, 2, 3], [1, 2, 3])
        states.add(TopicPartition("t", index), found, min_isr=2, adding=[], serving={1, 2, 3}, silent=[2, 3])
    return states


def test_what_brokers_lead_that_do_not_answer_is_neither_read_nor_written() -> None:
    """It was "0 offline", and nothing was said of it."""
    dead = [Voter(1, 0, False), Voter(2, 9, False, has_ended=True), Voter(3, 9, False, has_ended=True)]
    ill = replace(
        WELL, partitions=lost_majority(), silent=[2, 3], unanswered={2: NETWORK, 3: NETWORK}, configured_voters={2: "b:2", 3: "c:3"}
    )
    led = "2 partitions (t-0, t-1) are led by brokers 2, 3, which do not answer: not read, not written; "
    waits = "1 partition (t-2) has a replica in sync that does not answer: acks=all waits for it, and "
    majority = "only a majority of the controllers takes it out of the replicas in sync"
    undecided = [f"{led}there is no majority of the controllers to let others lead", f"{waits}{majority}"]
    for found in (replace(ill, voters=dead), replace(ill, controller=None, voters=[])):
        assert problems(found)[-2:] == undecided
        assert not [text for text in problems(found) if "replica.lag.time.max.ms" in text or " serves" in text]
        assert all(finding.remedy.startswith("bring brokers 2, 3 back, as above") for finding in list(findings(found))[-2:])
        assert not [finding for finding in findings(found) if "see that all brokers run" in finding.remedy]
        assert "0 offline, 2 led by brokers that do not answer, 0 below" in "\n".join(summary(found, []))
    hanging = replace(ill, voters=[Voter(node, 0, False) for node in (1, 2, 3)])
    assert problems(hanging)[-2:] == undecided, "their controllers count only once they are seen"
    apart = replace(ill, voters=[Voter(node, 0, False) for node in (101, 102, 103)])
    assert problems(apart)[-2:] == [f"{led}until then, or until another leads", f"{waits}it is out of sync after replica.lag.time.max.ms"]
    assert "led by" not in "\n".join(summary(WELL, []))


def test_the_time_of_a_fetch_that_is_shown_a_millisecond_later_is_no_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three controllers had ended, and "1 more may fail"."""
    monkeypatch.setattr("ottla.cli.quorum_health.FETCH_SECONDS_MAX", 0.05)
    times = iter([826, 827, 826, 827, 827])

    def describe_quorum() -> QuorumDescription:
        at = next(times)
        return QuorumDescription(1, 1, 9, tuple(QuorumReplica(node, b"", 9, at, at) for node in (1, 2)), ())

    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        found = ended_voters(cast(Admin, SimpleNamespace(describe_quorum=describe_quorum)), 1, {2: f"127.0.0.1:{dead.getsockname()[1]}"})
    assert found == [2]


def test_what_has_none_to_spare_waits_for_what_lags_and_not_for_brokers_that_run() -> None:
    """All ran, and it was "see that all brokers run"."""
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(1, [1, 2, 3], [1, 2]), min_isr=2, adding=[], serving={1, 2, 3})
    lagging, at_risk = findings(replace(WELL, partitions=states))
    assert (lagging.problem, lagging.nodes) == ("broker 3 is not in sync for 1 partition", (3,)), "the JSON had no node"
    assert at_risk.remedy == "broker 3 catches up, as above: `ottla topic describe --under-replicated` lists what is left"
    throttled = replace(WELL, partitions=states, throttles=Throttles({3: 1_000_000}, ["t"]))
    assert list(findings(throttled))[1].remedy == (
        "take off the throttle that may hold broker 3 back, as above: `ottla partition unthrottle --yes`"
    )


def test_causes_come_before_what_they_cause() -> None:
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(1, [1, 2, 3], [1, 2]), min_isr=2, adding=[], serving={1, 2})
    assert [text.partition(" (")[0] for text in problems(replace(WELL, fenced=[3], partitions=states))] == [
        "broker 3 is registered and does not serve",
        "1 partition",
    ]


def test_a_list_that_is_cut_begins_with_topics_of_users() -> None:
    """Five of six were of ``__consumer_offsets``."""
    states = PartitionStates()
    keys = [TopicPartition("orders", 0), *(TopicPartition("__consumer_offsets", index) for index in range(9))]
    for key in keys:
        states.add(key, partition(1, [1, 2, 3], [1, 2]), min_isr=2, adding=[], serving={1, 2})
    assert problems(replace(WELL, fenced=[3], partitions=states))[-1].startswith("10 partitions (orders-0, __consumer_offsets-0, ")


def test_advice_names_the_brokers_that_have_replicas_of_these_partitions_and_each_cause() -> None:
    """With one broker down, all partitions were to wait for it, also those of which it had none."""
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(2, [2, 3], [2]), min_isr=1, adding=[], serving={2, 3}, without_room=[3])
    states.add(TopicPartition("u", 0), partition(-1, [4], [4]), min_isr=1, adding=[], serving={2, 3})
    ill = replace(WELL, partitions=states, fenced=[4], full_log_dirs=[(3, "/d")])
    assert list(findings(ill))[-1].remedy == "make room on broker 3: a log directory there is full, as above"
    states.add(TopicPartition("t", 1), partition(2, [1, 2, 3], [2]), min_isr=1, adding=[], serving={2, 3})
    both = list(findings(replace(ill, fenced=[1, 4])))[-1]
    assert both.problem.startswith("2 partitions (t-0, t-1) have no replica in sync to spare")
    assert both.remedy.startswith("start broker 1 (")
    assert both.remedy.endswith("; make room on broker 3: a log directory there is full, as above")
    assert "4" not in both.remedy
    offline = list(findings(replace(ill, fenced=[1, 4], full_log_dirs=[], offline_log_dirs=[(3, "/d")])))[-1]
    assert offline.remedy.endswith("; mend the log directories of broker 3, as above")


def test_partitions_that_refuse_records_send_to_the_brokers_that_lead_them() -> None:
    """A broker with another full directory was to have room made, too."""
    states = PartitionStates()
    states.add(TopicPartition("t", 0), partition(2, [2, 3], [2, 3]), min_isr=1, adding=[], serving={2, 3}, without_room=[2])
    found = list(findings(replace(WELL, partitions=states, full_log_dirs=[(2, "/d"), (3, "/e")])))
    [refused] = [finding for finding in found if finding.kind == "partitions_full"]
    assert (refused.remedy, refused.nodes) == ("make room there, as above: broker 2", (2,))
