"""Placements that the command line plans, in a cluster of three brokers: of new topics by hand, and of topics there are by ``reassign``."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.test_operators import ottla
from tests.waiting import eventually

from ottla.sync import Admin, NewTopic
from ottla.testing import ThreadNodes, thread_cluster
from ottla.types import TopicPartition


@pytest.fixture(scope="module")
def nodes() -> Iterator[ThreadNodes]:
    """Three brokers; of ``a-one`` and ``a-two``, three partitions each, all with replicas on 1 and 2."""
    with thread_cluster(3) as found:
        with Admin(found.bootstrap) as admin:
            placed = {index: [1, 2] for index in range(3)}
            assert set(admin.create_topics([NewTopic(name, assignments=placed) for name in ("a-one", "a-two")]).values()) == {None}
        yield found


def replicas_of(nodes: ThreadNodes, topic: str) -> list[list[int]]:
    with Admin(nodes.bootstrap) as admin:
        return [list(found.replicas) for _, found in sorted(admin.describe_topic(topic).partitions.items())]


def items(done: subprocess.CompletedProcess[str]) -> list[Any]:
    """Of a plan, too, whose exit code is 1."""
    found: list[Any] = json.loads(done.stdout)["items"]
    return found


def planned(done: subprocess.CompletedProcess[str]) -> dict[TopicPartition, list[int]]:
    """What each partition is to have."""
    return {TopicPartition(row["topic"], row["partition"]): row["replicas_afterwards"] for row in items(done)}


def test_replicas_of_a_new_topic_are_where_the_assignment_puts_them(nodes: ThreadNodes) -> None:
    done = ottla(nodes.bootstrap, "topic", "create", "placed", "--replica-assignment", "3:1,2:3,1:2")
    assert done.returncode == 0, done.stderr
    assert replicas_of(nodes, "placed") == [[3, 1], [2, 3], [1, 2]]
    for wrong, why in (("1:9", "9"), ("1:1", "must be distinct")):
        refused = ottla(nodes.bootstrap, "topic", "create", "p", "--replica-assignment", wrong, "--json")
        assert refused.returncode == 1
        assert [(row["result"], why in row["error"]) for row in items(refused)] == [("failed", True)], refused.stdout


def test_a_plan_spreads_topics_over_the_brokers_and_is_what_is_applied(nodes: ThreadNodes) -> None:
    asked = ("partition", "reassign", "--topics", "^a-", "--brokers", "1,2,3", "--json")
    shown_plan = ottla(nodes.bootstrap, *asked)
    plan = planned(shown_plan)
    assert (shown_plan.returncode, "warning" in shown_plan.stderr) == (1, False)
    assert sorted(plan) == [TopicPartition(topic, index) for topic in ("a-one", "a-two") for index in range(3)]
    assert all(len(set(ids)) == 2 for ids in plan.values()), "as many replicas as the topic has, each on another broker"
    assert Counter(ids[0] for ids in plan.values()) == {1: 2, 2: 2, 3: 2}, "each broker is preferred as leader of as many"
    assert Counter(node for ids in plan.values() for node in ids) == {1: 4, 2: 4, 3: 4}
    assert plan[TopicPartition("a-one", 0)][0] != plan[TopicPartition("a-two", 0)][0], "topics of one partition have several leaders"
    assert replicas_of(nodes, "a-one") == [[1, 2]] * 3, "a plan changes nothing"

    begun = ottla(nodes.bootstrap, *asked, "--yes")
    assert (begun.returncode, [row["result"] for row in items(begun)]) == (0, ["begun"] * 6)
    expected = [[plan[TopicPartition(topic, index)] for index in range(3)] for topic in ("a-one", "a-two")]
    eventually(lambda: [replicas_of(nodes, topic) for topic in ("a-one", "a-two")], lambda found: found == expected)


def test_more_or_fewer_replicas_than_before_are_warned_of(nodes: ThreadNodes) -> None:
    assert ottla(nodes.bootstrap, "topic", "create", "warned", "--replica-assignment", "1:2,2:3").returncode == 0
    plan = ottla(nodes.bootstrap, "partition", "reassign", "warned:0=1", "warned:1=3,2")
    assert "warning: warned:0 has 2 replicas now, and 1 afterwards" in plan.stderr
    assert "warned:1 has" not in plan.stderr
    more = ottla(nodes.bootstrap, "partition", "reassign", "warned:0=1,2,3", "--yes")
    assert (more.returncode, "warning: warned:0 has 2 replicas now, and 3 afterwards" in more.stderr) == (0, True)


def test_a_plan_with_too_few_brokers_names_both_ways_out(nodes: ThreadNodes) -> None:
    assert ottla(nodes.bootstrap, "topic", "create", "wide", "--replica-assignment", "1:2:3").returncode == 0
    few = ottla(nodes.bootstrap, "partition", "reassign", "--topics", "wide", "--brokers", "1,2")
    assert few.returncode == 1
    assert "topic 'wide' has 3 replicas, and --brokers names 2: name more brokers" in few.stderr
    assert "`ottla partition reassign wide:0=1,2`" in few.stderr


def test_brokers_that_do_not_serve_are_warned_of(nodes: ThreadNodes) -> None:
    nodes.stop(3)
    asked = ("partition", "reassign", "a-one:0=3,2")
    seen = eventually(lambda: ottla(nodes.bootstrap, *asked).stderr, lambda text: "warning: broker 3 does not serve" in text)
    assert "broker 2 does not serve" not in seen
