"""A controller that is down is in the answers of the quorum still; ``cluster status -B`` and ``quorum`` say that it is silent."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from tests.cli.test_operators import ottla, shown
from tests.waiting import eventually

from ottla.cli import quorum_states
from ottla.cli.quorum_states import behind_ms, controller_text, fetched_ms_ago, is_silent, observers_of
from ottla.client.admin import QuorumDescription, QuorumReplica
from ottla.testing import thread_cluster


@pytest.mark.slow
def test_a_controller_that_stops_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with thread_cluster(3) as nodes:

        def status() -> Any:
            result = ottla(nodes.bootstrap, "cluster", "status", "-B", nodes.bootstrap, "--format", "json")
            [found] = json.loads(result.stdout)["items"]
            assert (result.returncode, result.stderr == "") == ((0, True) if found["problem"] is None else (1, False))
            return found

        def controllers() -> dict[int, str]:
            return {node["node"]: node["controller"] for node in status()["nodes"]}

        first = status()["active_controller"]
        dead, other = (node for node in (1, 2, 3) if node != first)
        eventually(controllers, lambda found: found == {first: "active", dead: "follower", other: "follower"})

        monkeypatch.setattr(quorum_states, "SILENT_MS_MAX", 1_000)
        nodes.stop(dead)
        eventually(controllers, lambda found: found == {first: "active", dead: "ended", other: "follower"})

        def fetched_ms_ago_of_dead() -> int:
            [row] = [row for row in shown(nodes.bootstrap, "quorum") if row["node"] == dead and row["role"] == "voter"]
            return int(str(row["fetched_ms_ago"]))

        eventually(fetched_ms_ago_of_dead, lambda ago_ms: ago_ms > 1_000)
        assert controllers()[dead] == "ended", "it was silent from then on"
        health = ottla(nodes.bootstrap, "cluster", "health", "-B", nodes.bootstrap)
        assert f"PROBLEM  controller {dead} has ended: nothing listens at" in health.stdout

        nodes.restart(dead)
        eventually(controllers, lambda found: found == {first: "active", dead: "follower", other: "follower"})
        nodes.stop(first)
        eventually(controllers, lambda found: (found[first], sorted(found.values())) == ("ended", ["active", "ended", "follower"]))

        nodes.stop(other)  # no majority is left
        eventually(lambda: status()["problem"], lambda problem: problem is not None and problem.startswith("no controller is active"))
        left = {node["node"]: node["broker"] for node in status()["nodes"]}
        assert (left.get(first), set(left)) == ("fenced", {1, 2, 3}), "who was fenced before is still shown"
        ill = ottla(nodes.bootstrap, "cluster", "health", "-B", nodes.bootstrap, "--until-healthy", "--timeout", "0")
        assert (ill.returncode, "PROBLEM  no controller is active" in ill.stdout) == (1, True), ill.stderr
        assert "the cluster is not healthy after 0 s" in ill.stderr
        downs = sorted((first, other))
        assert re.search(rf"start controllers .*{downs[0]} \(\S+:\d+\).*{downs[1]} \(\S+:\d+\), which take no connection", ill.stdout)
        brokers = ottla(nodes.bootstrap, "broker", "list", "--format", "json")
        assert len(json.loads(brokers.stdout)["items"]) == 3
        known = "STATE is as brokers last knew it, but for down: no controller is active"
        assert (brokers.returncode, known in brokers.stderr) == (1, True), brokers.stderr
        refused = ottla(nodes.bootstrap, "topic", "create", "zz")
        assert (refused.returncode, "no controller is active" in refused.stdout, "security.protocol" in refused.stderr) == (1, True, False)


def test_silence_is_measured_by_the_leaders_clock() -> None:
    def voter(node_id: int, end_offset: int, fetched_ms: int) -> QuorumReplica:
        return QuorumReplica(node_id, bytes(16), end_offset, fetched_ms, fetched_ms)

    leader, live, dead, unseen = voter(1, 9, 100_000), voter(2, 9, 99_700), voter(3, 7, 88_000), voter(4, -1, -1)
    quorum = QuorumDescription(1, 5, 9, (leader, live, dead, unseen), ())
    assert [fetched_ms_ago(quorum, replica) for replica in quorum.voters] == [0, 300, 12_000, None]
    assert [is_silent(quorum, replica, ()) for replica in quorum.voters] == [False, False, True, True]
    lags = [behind_ms(quorum, replica, 9 - replica.end_offset) for replica in quorum.voters]
    assert lags == [0, 0, 12_000, None], "a dead voter had all records at its last fetch"
    killed = replace(quorum, voters=(leader, voter(3, 7, 98_500), voter(5, 7, 98_500)))
    assert [is_silent(killed, replica, {3}) for replica in killed.voters] == [False, True, False], "3 is fenced: its process has ended"
    texts = [controller_text("follower", 300), controller_text("silent", 12_000), controller_text("silent", None)]
    assert texts == ["follower", "silent for 12 s", "silent"]
    old = QuorumDescription(1, 5, 9, (voter(1, 9, -1), voter(2, 9, -1)), ())
    assert [is_silent(old, replica, ()) for replica in old.voters] == [False, False], "before version 1 the answer has no times"


def test_a_broker_that_has_left_is_no_observer() -> None:
    """The leader lists it for five minutes more. A node that fetches is listed, registered or not: a controller that is no voter."""

    def replica(node_id: int, fetched_ms: int) -> QuorumReplica:
        return QuorumReplica(node_id, bytes(16), 9, fetched_ms, fetched_ms)

    leader, gone, stopped, lone = replica(1, 100_000), replica(4, 90_000), replica(5, 90_000), replica(6, 99_700)
    quorum = QuorumDescription(1, 5, 9, (leader,), (gone, stopped, lone))
    assert observers_of(quorum, {1, 5}) == [stopped, lone]
