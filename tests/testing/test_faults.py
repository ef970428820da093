"""Faults between clients and nodes: each happens to the request that it is for, once, and to no other."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.aio import KafkaError
from ottla.errors import ErrorCode
from ottla.sync import Admin, Consumer, Producer, TopicPartition
from ottla.testing import BrokerKeyError, ThreadNodes, broker, cluster, secure_broker, thread_cluster

pytestmark = pytest.mark.filterwarnings("ignore:.* happened 0 times, so the test has shown nothing")


@pytest.fixture(scope="module")
def served() -> Iterator[ThreadNodes]:
    with broker() as made:
        yield made


@pytest.fixture
def topic(served: ThreadNodes) -> Iterator[str]:
    yield served.topic("t")
    served.faults.clear()


def stored(served: ThreadNodes, topic: str) -> list[bytes | None]:
    with Consumer(served.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        [end] = consumer.end_offsets([TopicPartition(topic, 0)]).values()
        found: list[bytes | None] = []
        while len(found) < end:
            found += [record.value for record in consumer.poll(1000)]
    return found


def test_a_lost_answer_leaves_one_record_of_an_idempotent_producer(served: ThreadNodes, topic: str) -> None:
    lost = served.faults.lost("Produce")
    with Producer(served.bootstrap) as producer:
        producer.send_and_wait(topic, b"x")
    assert lost.happened == 1
    assert stored(served, topic) == [b"x"]


def test_a_lost_answer_leaves_two_records_of_another_one(served: ThreadNodes, topic: str) -> None:
    lost = served.faults.lost("Produce")
    with Producer(served.bootstrap, enable_idempotence=False) as producer:
        producer.send_and_wait(topic, b"x")
    assert lost.happened == 1
    assert stored(served, topic) == [b"x", b"x"]


def test_a_repeated_request_is_carried_out_twice_and_answered_once(served: ThreadNodes, topic: str) -> None:
    repeated = served.faults.repeated("Produce")
    with Producer(served.bootstrap, enable_idempotence=False) as producer:
        assert producer.send_and_wait(topic, b"x").offset == 0
        assert producer.send_and_wait(topic, b"y").offset == 2
    assert repeated.happened == 1
    assert stored(served, topic) == [b"x", b"x", b"y"]


def test_a_refused_request_changes_nothing_and_is_tried_again(served: ThreadNodes, topic: str) -> None:
    refused = served.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")
    with Producer(served.bootstrap) as producer:
        assert producer.send_and_wait(topic, b"x").offset == 0
    assert refused.happened == 1
    assert stored(served, topic) == [b"x"]


def test_an_error_that_is_final_reaches_the_application(served: ThreadNodes, topic: str) -> None:
    served.faults.error("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with Producer(served.bootstrap) as producer:
        future = producer.send(topic, b"x")
        assert getattr(future.exception(), "code", None) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert stored(served, topic) == []


def test_an_error_of_a_fetch_waits_for_an_answer_that_has_a_partition(served: ThreadNodes, topic: str) -> None:
    with Producer(served.bootstrap) as producer:
        producer.send_and_wait(topic, b"x")
    refused = served.faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER")
    assert stored(served, topic) == [b"x"]
    assert refused.happened == 1


def test_a_late_answer_comes_after_its_time_and_holds_those_after_it(served: ThreadNodes, topic: str) -> None:
    with served.faults.late("Produce", ms=60_000), Producer(served.bootstrap, request_timeout_ms=300, delivery_timeout_ms=700) as producer:
        assert getattr(producer.send(topic, b"x").exception(), "code", None) == ErrorCode.REQUEST_TIMED_OUT
    with served.faults.late("Produce", ms=30) as late, Producer(served.bootstrap) as producer:
        producer.send_and_wait(topic, b"y")
        assert late.happened == 1
    assert stored(served, topic)[-1] == b"y"


def test_a_doubled_answer_is_survived(served: ThreadNodes, topic: str) -> None:
    doubled = served.faults.doubled("Produce")
    with Producer(served.bootstrap) as producer:
        for number in range(3):
            producer.send_and_wait(topic, b"%d" % number)
    doubled.wait()
    assert stored(served, topic) == [b"0", b"1", b"2"]


def test_a_fault_may_be_of_one_client_and_of_so_many_requests(served: ThreadNodes, topic: str) -> None:
    refused = served.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, client_id="unlucky")
    with Producer(served.bootstrap, client_id="lucky") as producer:
        producer.send_and_wait(topic, b"x")
    assert refused.happened == 0
    with Producer(served.bootstrap, client_id="unlucky") as producer:
        producer.send_and_wait(topic, b"y")
    assert refused.happened == 2


def test_a_fault_that_does_not_happen_is_reported(served: ThreadNodes) -> None:
    with pytest.raises(AssertionError, match="lost EndTxn happened 0 times, not 1"):
        served.faults.lost("EndTxn").wait(seconds=0)


def test_a_fault_that_does_not_happen_says_what_clients_have_sent_instead(served: ThreadNodes, topic: str) -> None:
    fault = served.faults.error("EndTxn", "NOT_COORDINATOR")
    with pytest.raises(AssertionError, match="happened 0 times, not 1, in 0 s; clients have sent since it was asked for: nothing"):
        fault.wait(seconds=0)
    with Producer(served.bootstrap, enable_idempotence=False) as producer:
        producer.send_and_wait(topic, b"x")
    with pytest.raises(AssertionError, match=r"since it was asked for: .*Produce 1"):
        fault.wait(seconds=0)


def test_faults_are_of_one_node_and_never_between_nodes() -> None:
    with thread_cluster(3) as served:
        between = served.faults.error("Fetch", "KAFKA_STORAGE_ERROR", times=None)
        topic = served.topic("t")
        leader = served.leader_of(topic)
        elsewhere = served.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", node_id=leader % 3 + 1)
        here = served.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", node_id=leader)
        with Producer(served.bootstrap) as producer:
            producer.send_and_wait(topic, b"x")  # by all replicas in sync, which have fetched it
        assert (between.happened, elsewhere.happened, here.happened) == (0, 0, 1)


def test_a_topic_that_is_refused_is_not_made(served: ThreadNodes) -> None:
    served.faults.error("CreateTopics", "POLICY_VIOLATION")
    with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
        served.topic("refused")
    with Admin(served.bootstrap) as admin:
        assert not any(name.startswith("refused") for name in admin.list_topics())


@pytest.mark.parametrize(("code", "name"), [(10, "MESSAGE_TOO_LARGE"), (9999, "NOT_LEADER_OR_FOLLOWER")])
def test_a_number_in_the_place_of_a_name_is_refused_with_one(served: ThreadNodes, code: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"the code is {code}: give its name, such as '{name}', or a member of ErrorCode"):
        served.faults.error("Produce", code)


@pytest.mark.parametrize(
    ("api", "code", "message"),
    [
        ("produce", "NONE", "'produce' is not the name of an API; did you mean 'Produce'?"),
        ("Produce", "not_leader", "'not_leader' is not the name of an error code"),
        ("Fetch", "NOPE", "'NOPE' is not the name of an error code, such as 'NOT_LEADER_OR_FOLLOWER'; ottla.errors.ErrorCode has them all"),
        ("Fetch", "OFFSET_OUT_OF_RANG", "did you mean 'OFFSET_OUT_OF_RANGE'?"),
    ],
)
def test_a_name_that_is_none_is_refused(served: ThreadNodes, api: str, code: str, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        served.faults.error(api, code)
    assert message in str(refused.value)


def test_a_fault_that_could_never_happen_is_refused(served: ThreadNodes) -> None:
    """Each was taken, and the test passed without it; a text for ms broke each connection."""
    wrong: Any = "5"
    for call, said in (
        (lambda: served.faults.lost("Produce", node_id=7), "there is no node 7; there is 1"),
        (lambda: served.faults.lost("Produce", times=0), "times=0: a whole number from 1 on"),
        (lambda: served.faults.late("Fetch", ms=-5), "ms=-5: milliseconds are expected"),
        (lambda: served.faults.late("Fetch", ms=wrong), "ms='5': milliseconds are expected"),
        (lambda: served.faults.error("Produce", "NONE"), "NONE is the code of success"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    with pytest.raises(AttributeError, match="there is no fault 'slow'; there are lost, late, doubled, repeated, error"):
        served.faults.slow("Fetch")  # type: ignore[attr-defined]


def test_a_fault_shows_what_it_is_and_how_often_it_has_happened(served: ThreadNodes, topic: str) -> None:
    lost = served.faults.lost("Produce")
    assert repr(lost) == "<lost Produce happened 0 times>"
    with Producer(served.bootstrap) as producer:
        producer.send_and_wait(topic, b"x")
    assert repr(lost) == "<lost Produce happened 1 times>"


def test_a_fault_of_one_client_and_one_node_names_them_and_the_clients_that_came_instead(served: ThreadNodes, topic: str) -> None:
    fault = served.faults.lost("Produce", client_id="ordrs", node_id=1)
    with Producer(served.bootstrap, client_id="orders") as producer:
        producer.send_and_wait(topic, b"x")
    text = r"lost Produce of client 'ordrs' at node 1 happened 0 times, not 1, in 0 s; .*Produce 1.*; their client ids are (.*, )?'orders'$"
    with pytest.raises(AssertionError, match=text):
        fault.wait(seconds=0)


def test_a_fault_that_does_not_happen_is_warned_of_at_the_line_that_asked_for_it(served: ThreadNodes) -> None:
    fault = served.faults.lost("EndTxn")
    with pytest.warns(UserWarning, match="lost EndTxn happened 0 times") as warned:
        fault.__exit__(None, None, None)
    [at] = warned
    assert at.filename == __file__
    assert linecache.getline(at.filename, at.lineno).strip() == 'fault = served.faults.lost("EndTxn")'


def test_a_fault_that_was_withdrawn_does_not_happen_to_a_request_that_waits(served: ThreadNodes, topic: str) -> None:
    with (
        Consumer(served.bootstrap, fetch_max_wait_ms=10_000, auto_offset_reset="earliest") as consumer,
        Producer(served.bootstrap) as producer,
    ):
        consumer.assign([(topic, 0)])
        fault = served.faults.late("Fetch", ms=20_000)
        consumer.poll(500)
        assert served.faults.seen[1, "ottla"], "a Fetch waits at the broker"
        fault.withdraw()
        producer.send_and_wait(topic, b"x")
        assert [record.value for record in consumer.poll(8_000)] == [b"x"]
    assert fault.happened == 0


@pytest.mark.parametrize(("given", "hint"), [({"count": 3}, "times"), ({"node": 1}, "node_id"), ({"client": "c"}, "client_id")])
def test_a_fault_that_is_given_another_name_says_what_to_write(served: ThreadNodes, given: dict[str, Any], hint: str) -> None:
    with pytest.raises(TypeError, match=rf"lost\(\) has no argument '{next(iter(given))}': write {hint}$"):
        served.faults.lost("Produce", **given)


@pytest.mark.parametrize("name", ["nodes", "brokers", "num_nodes"])
def test_a_number_of_nodes_among_the_keys_says_where_it_is_given(name: str) -> None:
    keys: dict[str, Any] = {name: 3}
    with pytest.raises(BrokerKeyError, match=r"the number of nodes is an argument of clusters: thread_cluster\(3\)"):
        cluster(**keys).__enter__()
    with pytest.raises(BrokerKeyError, match=r"broker\(\) has one"):
        broker(count=3).__enter__()


def test_a_broker_that_is_given_a_number_names_the_clusters() -> None:
    with pytest.raises(TypeError, match=r"write thread_cluster\(3\) or cluster\(3\)"):
        broker(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"write secure_cluster\(3\)"):
        secure_broker(3)  # type: ignore[arg-type]
