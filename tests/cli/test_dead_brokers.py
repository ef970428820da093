"""What commands show of a cluster in which a broker does not answer: what the others know, and who is missing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.test_operators import ottla
from tests.cli.test_plans import items
from tests.waiting import eventually

from ottla.cli.bundle import gather
from ottla.cli.cluster_health import look
from ottla.client.out_of_reach import BrokerOutOfReach
from ottla.errors import ErrorCode, KafkaError
from ottla.sync import Admin, Consumer, NewTopic, Producer
from ottla.testing import ThreadNodes, thread_cluster

DEAD = 2
START = "start it (`ottla broker start FILE` on its machine, `ottla cluster restart 2` for a cluster of this machine)"


@pytest.fixture(scope="module")
def nodes() -> Iterator[ThreadNodes]:
    """Three brokers: broker N alone has partition N-1 of ``t``, with a record. Groups ``g0`` to ``g7`` have read them all."""
    with thread_cluster(3, offsets_topic_num_partitions=3, offsets_topic_replication_factor=1) as found:
        with Admin(found.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", assignments={0: [1], 1: [2], 2: [3]})]) == {"t": None}
        with Producer(found.bootstrap) as producer:
            for partition in range(3):
                producer.send("t", b"of %d" % partition, partition=partition).result(30)
        for number in range(8):
            with Consumer(found.bootstrap, group_id=f"g{number}") as consumer:
                consumer.commit({("t", partition): 1 for partition in range(3)})
        yield found


@pytest.fixture
def silent(nodes: ThreadNodes) -> Iterator[str]:
    """The address of broker 1, while broker 2 lets no client in."""
    with nodes.faults.lost("ApiVersions", node_id=DEAD, times=None):
        yield nodes.bootstrap_of(1)


@pytest.mark.parametrize(("code", "silent"), [(ErrorCode.SASL_AUTHENTICATION_FAILED, []), (ErrorCode.NETWORK_EXCEPTION, [DEAD])])
def test_a_broker_that_refuses_the_login_is_not_one_that_the_others_wait_for(
    nodes: ThreadNodes, monkeypatch: pytest.MonkeyPatch, code: ErrorCode, silent: list[int]
) -> None:
    describe = Admin.describe_log_dirs

    def describe_log_dirs(admin: Admin, brokers: list[int], **rest: Any) -> Any:
        if brokers == [DEAD]:
            raise BrokerOutOfReach(DEAD, KafkaError(code, "no"))
        return describe(admin, brokers, **rest)

    monkeypatch.setattr(Admin, "describe_log_dirs", describe_log_dirs)
    with Admin(nodes.bootstrap_of(1)) as admin:
        health = look(admin)
    assert (health.silent, list(health.unanswered)) == (silent, [DEAD])


@pytest.fixture(scope="module")
def fenced(nodes: ThreadNodes) -> str:
    """The address of broker 1. Broker 2 has stopped, and the cluster knows it: tests with this come last."""
    nodes.stop(DEAD)
    with Admin(nodes.bootstrap_of(1)) as admin:
        eventually(lambda: admin.describe_topic("t").partitions[1].leader, lambda leader: leader == -1)
    return nodes.bootstrap_of(1)


def lacking(done: subprocess.CompletedProcess[str]) -> str:
    """What the command says of an answer that is not all."""
    assert done.returncode == 1, done.stdout
    assert "ottla dev" not in done.stderr
    assert (START in done.stderr, "`ottla cluster health` says what else is wrong" in done.stderr) == (True, True), done.stderr
    return done.stderr


def test_offsets_of_the_leaders_that_answer_are_shown(silent: str) -> None:
    done = ottla(silent, "topic", "offsets", "t", "--at", "now", "--json")
    assert "the offsets of 1 partition that it leads are not shown: broker 2 cannot be reached: " in lacking(done)
    shown = [(row["partition"], row["start_offset"], row["at now"], row["end_offset"]) for row in items(done)]
    assert shown == [(0, 0, 1, 1), (1, None, None, None), (2, 0, 1, 1)]
    described = ottla(silent, "topic", "describe", "t", "--json")
    assert "broker 2 cannot be reached" in lacking(described)
    [topic] = items(described)
    assert [row["end_offset"] for row in topic["partitions"]] == [1, None, 1]


def test_groups_of_the_coordinators_that_answer_are_shown(nodes: ThreadNodes, silent: str) -> None:
    with Admin(nodes.bootstrap_of(1)) as admin:
        here = [group.group_id for group in admin.list_groups([1, 3])]
    assert 0 < len(here) < 8
    done = ottla(silent, "group", "list", "--json")
    assert "the groups that broker 2 coordinates are not shown: broker 2 cannot be reached" in lacking(done)
    assert sorted(row["group"] for row in items(done)) == sorted(here)
    there = next(name for name in (f"g{number}" for number in range(8)) if name not in here)
    described = ottla(silent, "group", "describe", there, here[0], "--json")
    assert f"group '{there}' is not shown: NETWORK_EXCEPTION: broker 2 cannot be reached" in lacking(described)
    [group] = items(described)
    assert group["group"] == here[0]
    assert [(row["partition"], row["committed"], row["end_offset"]) for row in group["offsets"]] == [(0, 1, 1), (1, 1, None), (2, 1, 1)]


@pytest.mark.slow  # each command waits for another leader
def test_records_of_the_leaders_that_answer_are_read(silent: str) -> None:
    for options in (("--exit",), ("-o", "0:1"), ("-o", "-1", "-n", "2")):
        done = ottla(silent, "consume", "t", *options)
        assert "the records of 1 partition that it leads are not read: broker 2 cannot be reached" in lacking(done)
        assert sorted(done.stdout.split("\n")[:-1]) == ["of 0", "of 2"], options


def test_what_brokers_say_of_themselves_is_shown_of_those_that_answer(silent: str) -> None:
    directories = ottla(silent, "broker", "logdirs", "--json")
    assert "the log directories of broker 2 are not shown: broker 2 cannot be reached" in lacking(directories)
    assert [row["broker"] for row in items(directories)] == [1, 3]
    described = ottla(silent, "broker", "describe", "1", "2", "--json")
    assert "the directories and the configuration of broker 2 are not shown" in lacking(described)
    assert [(broker["id"], bool(broker["directories"])) for broker in items(described)] == [(1, True), (2, False)]
    producers = ottla(silent, "producer", "list", "t", "--json")
    assert "the producers of 1 partition that it leads are not shown" in lacking(producers)
    assert [row["partition"] for row in items(producers)] == [0, 2]
    assert "the transactional ids that broker 2 coordinates are not shown" in lacking(ottla(silent, "txn", "list"))


def test_a_bundle_has_what_the_brokers_that_answer_say(silent: str) -> None:
    found = gather(silent, None, (), ())
    errors = {name: content.decode() for name, content in found.items() if name.endswith(".error.txt")}
    parts = ("configuration.json", "directories.json", "groups.json")
    assert sorted(errors) == [f"brokers/{DEAD}/{part}.error.txt" for part in parts]
    assert all("broker 2 cannot be reached" in text for text in errors.values())
    assert sorted(json.loads(found["directories.json"])) == ["1", "3"]
    assert 0 < len(json.loads(found["groups.json"])) < 8
    assert {"cluster.json", "quorum.json", "features.json", "health.txt", "topics.json", "brokers/3/configuration.json"} <= found.keys()


@pytest.mark.parametrize("offset", ["start", "0"])
def test_a_consumer_without_an_end_reads_a_partition_once_its_leader_answers(nodes: ThreadNodes, offset: str) -> None:
    with nodes.faults.lost("ApiVersions", node_id=DEAD, times=3, client_id="ottla-cli") as fault:
        done = ottla(nodes.bootstrap_of(1), "consume", "t", "-o", offset, "-n", "3", "--timeout", "20")
        assert fault.happened == 3
    assert (done.returncode, sorted(done.stdout.split("\n")[:-1])) == (0, ["of 0", "of 1", "of 2"]), done.stderr
    assert "the records of 1 partition that it leads are read later: broker 2 cannot be reached" in done.stderr


def test_what_has_no_leader_is_named_with_the_broker_that_had_it(fenced: str) -> None:
    offsets = ottla(fenced, "topic", "offsets", "t", "--json")
    assert "the offsets of t-1 are not shown: it has no leader, and broker 2 does not serve; start it" in lacking(offsets)
    assert [row["end_offset"] for row in items(offsets)] == [1, None, 1]
    assert ottla(fenced, "topic", "describe", "t").returncode == 0, "a partition without a leader is described as one"
    read = ottla(fenced, "consume", "t", "--exit")
    assert "the records of t-1 are not read: it has no leader" in lacking(read)
    assert sorted(read.stdout.split("\n")[:-1]) == ["of 0", "of 2"]
    assert "the groups of __consumer_offsets-" in lacking(ottla(fenced, "group", "list"))
    described = [ottla(fenced, "group", "describe", f"g{number}") for number in range(8)]
    missing = [done for done in described if "and others of __consumer_offsets-" in lacking(done)]
    assert 0 < len(missing) < 8
    unavailable = ottla(fenced, "topic", "describe", "t", "--unavailable", "--json")
    assert [(row["partition"], row["leader"]) for row in items(unavailable)] == [(1, None)]
    broker = ottla(fenced, "broker", "describe", str(DEAD), "--json")
    assert f"the directories and the configuration of broker {DEAD} are not shown: it does not serve; start it" in lacking(broker)
    assert items(broker)[0]["state"] == "fenced"
