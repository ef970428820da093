"""A broker whose process has ended is fenced at once; one that lives never is, whatever its connections look like. On default timeouts."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.processes import IS_IN_ZOOKEEPER, ClusterProcesses
from tests.cluster.proxy import Proxy
from tests.foreign_clients.broker_process import BrokerProcess, lasting_ports
from tests.waiting import eventually

from ottla.sync import Admin, NewTopic, Producer

TROUBLE_SECONDS = 1.0
"""How long each trouble lasts: three rounds of probes."""


def events(cluster: ClusterProcesses, name: str, *, of: int = 4, logged_by: Sequence[int] = (1, 2, 3)) -> list[dict[str, Any]]:
    """What these controllers have logged of the broker under that name."""
    lines = [json.loads(line) for node in logged_by for line in cluster.nodes[node].log().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name and line.get("broker_id") == of]


def watched_by_all(cluster: ClusterProcesses, count: int) -> None:
    """Each of the three controllers has connected to the broker so many times."""
    eventually(lambda: min(len(events(cluster, "broker_watched", logged_by=[node])) for node in (1, 2, 3)), lambda found: found >= count)


def test_no_live_broker_is_fenced_on_suspicion(tmp_path: Path) -> None:
    """Sentinels reset by a proxy, refused on the controllers' side only, silent, cut one way; a stopped process; too many connections."""
    with ClusterProcesses(tmp_path) as cluster:
        own, public = lasting_ports(2)
        advertised = f"PLAINTEXT://127.0.0.1:{public}"
        with Proxy(public, own) as proxy, Admin(cluster.nodes[1].bootstrap) as admin:
            broker = cluster.add(4, port=own, advertised_listeners=advertised, max_connections="40")
            assert admin.create_topics([NewTopic("t", 4, 1)]) == {"t": None}
            watched_by_all(cluster, 1)

            proxy.reset()  # killed by a proxy
            watched_by_all(cluster, 2)

            proxy.refuse()  # REJECT on the controllers' side only
            proxy.reset()
            time.sleep(TROUBLE_SECONDS)
            proxy.accept()
            watched_by_all(cluster, 3)

            for directions in (("there", "back"), ("back",)):  # DROP, and a cut of one way
                proxy.swallow(*directions)
                proxy.reset()
                time.sleep(TROUBLE_SECONDS)
                proxy.swallow()
            watched_by_all(cluster, 4)

            broker.send_signal(signal.SIGSTOP)
            try:
                proxy.reset()
                time.sleep(TROUBLE_SECONDS)
            finally:
                broker.send_signal(signal.SIGCONT)
            watched_by_all(cluster, 5)

            crowd = [socket.create_connection(("127.0.0.1", own)) for _ in range(60)]  # no room for another connection
            proxy.reset()
            time.sleep(TROUBLE_SECONDS)
            for one in crowd:
                one.close()
            watched_by_all(cluster, 6)

            assert events(cluster, "broker_fenced") == []
            assert len(events(cluster, "broker_registered")) == 1
            assert sorted(found.leader for found in admin.describe_topic("t").partitions.values()) == [1, 2, 3, 4]


def test_a_broker_that_never_answered_at_its_address_is_not_taken_for_dead(tmp_path: Path) -> None:
    """No process listens where it says that it does: only its heartbeats say that it lives, and a new controller has heard none yet."""
    with ClusterProcesses(tmp_path) as cluster:
        own, nobody = lasting_ports(2)
        cluster.add(4, port=own, advertised_listeners=f"PLAINTEXT://127.0.0.1:{nobody}")
        time.sleep(TROUBLE_SECONDS)
        leader = cluster.quorum(4).leader_id
        cluster.nodes[leader].kill()
        eventually(lambda: cluster.quorum(4).leader_id, lambda found: found not in (leader, -1))
        time.sleep(TROUBLE_SECONDS)
        assert events(cluster, "broker_fenced") == []


def test_a_process_that_was_killed_is_noticed_long_before_its_session_ends(tmp_path: Path) -> None:
    """It leads nothing any more; when it is back, it leads again."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.nodes[1].bootstrap) as admin:
        broker = cluster.add(4)
        watched_by_all(cluster, 1)
        index = partition_of_broker_4(admin)
        with Producer(cluster.bootstrap) as producer:
            for number in range(2):
                assert producer.send("t", b"x", partition=index).result(30).offset == number
                broker.kill()
                eventually(lambda: admin.describe_topic("t").partitions[index].leader, lambda leader: leader == -1)
                broker.start()
                eventually(lambda: admin.describe_topic("t").partitions[index].leader, lambda leader: leader == 4)
                watched_by_all(cluster, number + 2)
        noticed = "broker_gone" if IS_IN_ZOOKEEPER else "broker_fenced"
        assert [event["reason"] for event in events(cluster, noticed)] == ["its process has ended"] * 2


def test_a_process_that_starts_again_at_once_need_not_wait_for_its_session_to_end(tmp_path: Path) -> None:
    """Its port never refused: a proxy before it kept accepting connections."""
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.nodes[1].bootstrap) as admin:
        own, public = lasting_ports(2)
        with Proxy(public, own):
            broker = cluster.add(4, port=own, advertised_listeners=f"PLAINTEXT://127.0.0.1:{public}")
            watched_by_all(cluster, 1)
            index = partition_of_broker_4(admin)
            broker.kill()
            broker.start()
            eventually(lambda: admin.describe_topic("t").partitions[index].leader, lambda leader: leader == 4)
            assert events(cluster, "broker_fenced") == []
            assert len(events(cluster, "broker_registered")) == 2


def partition_of_broker_4(admin: Admin) -> int:
    """Of a new topic, t."""
    assert admin.create_topics([NewTopic("t", 4, 1)]) == {"t": None}
    [index] = [index for index, found in admin.describe_topic("t").partitions.items() if found.leader == 4]
    return index


def test_a_copy_of_a_broker_that_lives_is_refused(tmp_path: Path) -> None:
    """The same id and the same log directories, as after a careless copy of a machine."""
    with ClusterProcesses(tmp_path) as cluster:
        original = cluster.add(4)
        watched_by_all(cluster, 1)
        (tmp_path / "copy").mkdir()
        copy = BrokerProcess(tmp_path / "copy", initial_broker_registration_timeout_ms="1000")
        copy.properties = original.properties | copy.properties
        shutil.copytree(original.data, copy.data)
        try:
            with pytest.raises(RuntimeError, match="DUPLICATE_BROKER_REGISTRATION"):
                copy.start()
        finally:
            if copy.is_running:
                copy.kill()
        assert events(cluster, "broker_fenced") == []
