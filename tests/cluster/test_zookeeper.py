"""Three processes in ZooKeeper mode: the controller lives in an Apache ZooKeeper, and brokers and clients notice nothing of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cluster.in_zookeeper import ZookeeperCluster
from tests.cluster.proxy import Proxy
from tests.foreign_clients.broker_process import lasting_port
from tests.waiting import eventually

from ottla.client.admin import Group, Topic
from ottla.coordination import Create, NotAuthorizedError, Session
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata import znodes
from ottla.runtime.zookeeper_server import ZooKeeperServer
from ottla.sync import Admin, Consumer, NewTopic, Producer


class Load:
    """A producer with acks=all that goes on whatever happens; ``acknowledged`` is what it was promised."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[str] = []
        self.failed: list[BaseException] = []

    def _run(self) -> None:
        with Producer(self._bootstrap, acks="all", delivery_timeout_ms=60_000, request_timeout_ms=3_000) as producer:
            number = 0
            while not self._stopping.is_set():
                try:
                    producer.send(self._topic, f"{number}".encode()).result(60)
                    self.acknowledged.append(str(number))
                except Exception as error:  # noqa: BLE001 - the test looks at it
                    self.failed.append(error)
                number += 1

    def wait_for_more(self, count: int = 20) -> None:
        before = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged), lambda found: found >= before + count)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def everything(bootstrap: str, topic: str, wanted: list[str]) -> list[str]:
    """What is read, up to everything that is wanted."""
    read: list[str] = []
    with Consumer(bootstrap, group_id=f"all-of-{topic}", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        while not set(wanted) <= set(read):
            read += [(record.value or b"").decode() for record in consumer.poll(10_000)]
    return read


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperServer) -> Iterator[ZookeeperCluster]:
    with ZookeeperCluster(tmp_path, zookeeper) as made:
        yield made


@pytest.mark.slow
def test_a_cluster_lives_in_zookeeper(cluster: ZookeeperCluster) -> None:
    """Mechanisms 28, 36, 64, 65: znodes say who is there, where partitions are, who leads, who is in sync."""
    assert cluster.children("/brokers/ids") == ["1", "2", "3"]
    broker = cluster.get("/brokers/ids/2")
    assert (broker["host"], broker["port"], broker["version"]) == ("127.0.0.1", cluster.nodes[2].port, 5)
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 3, 3, configs={"retention.ms": "86400000"})]) == {"t": None}
        described = admin.describe_topic("t")
    found = cluster.get("/brokers/topics/t")
    assert {int(index): nodes for index, nodes in found["partitions"].items()} == {
        index: list(partition.replicas) for index, partition in described.partitions.items()
    }
    for index, partition in described.partitions.items():
        state = cluster.state("t", index)
        assert (state["leader"], sorted(state["isr"])) == (partition.leader, [1, 2, 3])
        assert state["controller_epoch"] == cluster.epoch
    assert cluster.get("/config/topics/t")["config"] == {"retention.ms": "86400000"}
    with Load(cluster.bootstrap, "t") as load:
        load.wait_for_more(30)
    assert not load.failed
    everything(cluster.bootstrap, "t", load.acknowledged)
    with Admin(cluster.nodes[3].bootstrap) as admin:
        assert admin.delete_topics(["t"]) == {"t": None}
        eventually(admin.list_topics, lambda found: "t" not in found)
    assert "t" not in cluster.children("/brokers/topics")
    assert "t" not in cluster.children("/config/topics")


@pytest.mark.slow
def test_the_controller_is_killed_and_another_goes_on_under_a_higher_epoch(cluster: ZookeeperCluster) -> None:
    """Its death is proved by its connection and its port: nobody waits for the session."""
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 3, 3)]) == {"t": None}
    controller, epoch = cluster.controller, cluster.epoch
    others = [node for node in cluster.nodes if node != controller]
    with Load(cluster.bootstrap, "t") as load:
        load.wait_for_more()
        cluster.nodes[controller].kill()
        load.wait_for_more()
        eventually(lambda: cluster.controller, lambda found: found in others)
        assert cluster.epoch > epoch
        states = eventually(
            lambda: [cluster.state("t", index) for index in range(3)],
            lambda found: all(controller not in state["isr"] and state["leader"] in others for state in found),
        )
        assert {state["controller_epoch"] for state in states} == {cluster.epoch}
        assert str(controller) not in cluster.children("/brokers/ids")
        with Admin(cluster.nodes[others[0]].bootstrap) as admin:
            assert admin.create_topics([NewTopic("later", 1, 2)]) == {"later": None}
        cluster.nodes[controller].start()
        eventually(lambda: cluster.state("t")["isr"], lambda isr: len(isr) == 3)
    assert not load.failed
    everything(cluster.nodes[controller].bootstrap, "t", load.acknowledged)


@pytest.mark.slow
def test_a_broker_is_killed_and_comes_back(cluster: ZookeeperCluster) -> None:
    """Mechanisms 67, 71: the controller sees it go and come by a watch; a producer goes on without a restart."""
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 6, 3)]) == {"t": None}
    victim = next(node for node in cluster.nodes if node != cluster.controller)
    epoch = cluster.epoch
    with Load(cluster.bootstrap, "t") as load:
        load.wait_for_more()
        cluster.nodes[victim].kill()
        load.wait_for_more()
        eventually(lambda: cluster.children("/brokers/ids"), lambda found: str(victim) not in found)
        eventually(lambda: [cluster.state("t", index)["leader"] for index in range(6)], lambda found: victim not in found)
        cluster.nodes[victim].start()
        eventually(lambda: [cluster.state("t", index)["isr"] for index in range(6)], lambda found: all(len(isr) == 3 for isr in found))
        cluster.add(4)
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("wide", 4, 1)]) == {"wide": None}
        assert sorted(cluster.state("wide", index)["leader"] for index in range(4)) == [1, 2, 3, 4]
        load.wait_for_more()
    assert not load.failed
    assert cluster.epoch == epoch, "the controller is the same"
    everything(cluster.bootstrap, "t", load.acknowledged)


@pytest.mark.slow
def test_all_brokers_restart_and_find_what_they_had(cluster: ZookeeperCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 3, 2)]) == {"t": None}
    with Load(cluster.bootstrap, "t") as load:
        load.wait_for_more()
    before = [cluster.state("t", index)["leader_epoch"] for index in range(3)]
    cluster.kill_and_start_all()
    after = eventually(lambda: [cluster.state("t", index) for index in range(3)], lambda found: all(state["leader"] > 0 for state in found))
    assert all(state["leader_epoch"] > epoch for state, epoch in zip(after, before, strict=True)), "nobody leads as in an earlier life"
    everything(cluster.bootstrap, "t", load.acknowledged)


@pytest.mark.slow
def test_brokers_are_stopped_in_order_and_restarted_one_by_one(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """Each leaves the cluster first; the next process of it does not wait for the session of the last one."""
    with ZookeeperCluster(tmp_path, zookeeper, broker_heartbeat_interval_ms="200") as cluster:
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 3, 3)]) == {"t": None}
        stop_in_turn(cluster)


def stop_in_turn(cluster: ZookeeperCluster) -> None:
    with Load(cluster.bootstrap, "t") as load:
        for number, node in cluster.nodes.items():
            load.wait_for_more()
            node.stop()
            assert str(number) not in cluster.children("/brokers/ids")
            assert cluster.controller != number
            assert "broker_gone" not in node.log()
            node.start()
            eventually(lambda: [cluster.state("t", index)["isr"] for index in range(3)], lambda found: all(len(isr) == 3 for isr in found))
        victim = cluster.nodes[1]
        victim.kill()
        victim.start()  # before anybody has noticed
        eventually(lambda: [cluster.state("t", index)["isr"] for index in range(3)], lambda found: all(len(isr) == 3 for isr in found))
        load.wait_for_more()
        everything(cluster.bootstrap, "t", load.acknowledged)
        assert not load.failed


@pytest.mark.slow
def test_configurations_are_changed_by_znodes_and_by_clients(cluster: ZookeeperCluster) -> None:
    """Mechanism 73: what a tool writes below /config and says below /config/changes is in force at once, on every broker."""
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 1, 3)]) == {"t": None}

        async def limit(session: Session) -> None:
            await session.set("/config/topics/t", znodes.encode_config({"max.message.bytes": "200"}), 0)
            await session.multi([Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change("topics/t"), is_sequential=True)])

        cluster.ask(limit)
        for node in cluster.nodes.values():
            with Admin(node.bootstrap) as asked:
                eventually(lambda: topic_config(asked, "t", "max.message.bytes"), lambda found: found == "200")
        with Producer(cluster.bootstrap) as producer:
            with pytest.raises(KafkaError) as refused:
                producer.send("t", bytes(500)).result(30)
            assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
        admin.alter_configs({Topic("t"): {"max.message.bytes": 1000, "retention.ms": 5_000_000}})
        assert cluster.get("/config/topics/t")["config"] == {"max.message.bytes": "1000", "retention.ms": "5000000"}
        assert cluster.get(f"/config/changes/{cluster.children('/config/changes')[-1]}") == {"version": 2, "entity_path": "topics/t"}
        with Producer(cluster.bootstrap) as producer:
            producer.send("t", bytes(500)).result(30)

        async def lift(session: Session) -> None:
            await session.set("/config/topics/t", znodes.encode_config({}), -1)
            await session.create("/config/brokers/<default>", znodes.encode_config({"log.retention.ms": "7000000"}))
            for entity in ("topics/t", "brokers/<default>"):
                await session.multi([Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), is_sequential=True)])

        cluster.ask(lift)
        eventually(lambda: topic_config(admin, "t", "retention.ms"), lambda found: found == "7000000")


def test_tools_of_the_classic_kind_write_their_requests_into_admin(cluster: ZookeeperCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", assignments={0: [1, 2]}), NewTopic("old", 1, 1)]) == {"t": None, "old": None}

        async def request(session: Session) -> None:
            await session.create("/admin/delete_topics/old")
            await session.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({("t", 0): [3, 2]}))

        cluster.ask(request)
        eventually(admin.list_topics, lambda found: "old" not in found)
        eventually(lambda: cluster.state("t"), lambda found: sorted(found["isr"]) == [2, 3])
        eventually(
            lambda: cluster.get("/brokers/topics/t"), lambda found: found["partitions"]["0"] == [3, 2] and not found["adding_replicas"]
        )
        eventually(lambda: cluster.children("/admin"), lambda found: found == ["delete_topics"])
        assert cluster.children("/admin/delete_topics") == []

        async def elect(session: Session) -> None:
            await session.create(znodes.PREFERRED_ELECTION, znodes.encode_partitions([("t", 0)]))

        cluster.ask(elect)
        eventually(lambda: cluster.state("t")["leader"], lambda leader: leader == 3)

        async def write(session: Session) -> None:
            await session.create("/config/topics/new", znodes.encode_config({"retention.ms": "5000000"}))
            await session.create("/brokers/topics/new", b'{"version":1,"partitions":{"0":[2,1]}}')
            _, stat = await session.get("/brokers/topics/t")
            await session.set("/brokers/topics/t", b'{"version":1,"partitions":{"0":[3,2],"1":[1,3]}}', stat.version)

        cluster.ask(write)
        eventually(
            lambda: cluster.get("/brokers/topics/t"), lambda found: sorted(found["partitions"]) == ["0", "1"] and "topic_id" in found
        )
        eventually(admin.list_topics, lambda found: "new" in found)
        eventually(lambda: topic_config(admin, "new", "retention.ms"), lambda found: found == "5000000")
        with Producer(cluster.bootstrap, acks="all") as producer:
            for topic, partition in (("new", 0), ("t", 1)):
                assert producer.send(topic, b"x", partition=partition).result(30).offset == 0


@pytest.mark.slow
def test_a_broker_whose_session_expired_fences_itself_and_comes_back(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    timeouts = {"zookeeper_session_timeout_ms": "2000", "zookeeper_connection_timeout_ms": "30000"}
    with ZookeeperCluster(tmp_path, zookeeper, 3, **timeouts) as cluster:
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 3, 3)]) == {"t": None}
        stopped = cluster.controller
        other = next(node for node in cluster.nodes if node != stopped)
        with Load(cluster.nodes[other].bootstrap, "t") as load:
            load.wait_for_more()
            cluster.nodes[stopped].send_signal(signal.SIGSTOP)
            eventually(lambda: cluster.children("/brokers/ids"), lambda found: str(stopped) not in found)
            eventually(lambda: cluster.controller, lambda found: found not in (-1, stopped))
            load.wait_for_more()
            cluster.nodes[stopped].send_signal(signal.SIGCONT)
            eventually(lambda: cluster.children("/brokers/ids"), lambda found: str(stopped) in found)
            eventually(lambda: [cluster.state("t", index)["isr"] for index in range(3)], lambda found: all(len(isr) == 3 for isr in found))
            load.wait_for_more()
        log = cluster.nodes[stopped].log()
        assert "zookeeper_session_expired" in log
        assert "broker_fences_itself" in log
        assert not load.failed
        everything(cluster.nodes[stopped].bootstrap, "t", load.acknowledged)


@pytest.mark.parametrize("session_ms", [20_000, 1_500])
@pytest.mark.slow
def test_zookeeper_is_away_and_data_goes_on(tmp_path: Path, zookeeper: ZooKeeperServer, session_ms: int) -> None:
    """Changes wait until it is back; with short sessions all of them expire meanwhile, and the brokers find together again."""
    with (
        Proxy(lasting_port(), zookeeper.port) as proxy,
        ZookeeperCluster(
            tmp_path,
            zookeeper,
            servers=f"127.0.0.1:{proxy.port}",
            zookeeper_session_timeout_ms=str(session_ms),
            zookeeper_connection_timeout_ms="30000",
            request_timeout_ms="60000",
        ) as cluster,
    ):
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 3, 3)]) == {"t": None}
        before = czxids(cluster)
        with Load(cluster.bootstrap, "t") as load, ThreadPoolExecutor() as pool:
            load.wait_for_more()
            proxy.refuse()
            proxy.reset()
            creating = pool.submit(create_topic, cluster.bootstrap, "waits")
            load.wait_for_more(50)
            if session_ms < 10_000:
                eventually(lambda: cluster.children("/brokers/ids"), lambda found: not found)
            load.wait_for_more(50)
            assert not creating.done()
            proxy.accept()
            waited = creating.result(60)
            if session_ms > 10_000:
                assert waited is None
            else:  # it may have come when no broker was registered yet
                eventually(lambda: create_topic(cluster.bootstrap, "waits"), lambda code: code == ErrorCode.TOPIC_ALREADY_EXISTS)
            eventually(lambda: cluster.children("/brokers/ids"), lambda found: found == ["1", "2", "3"])
            eventually(lambda: [cluster.state("t", index)["isr"] for index in range(3)], lambda found: all(len(isr) == 3 for isr in found))
            load.wait_for_more(50)
        assert not load.failed
        assert (czxids(cluster) == before) == (session_ms > 10_000)
        everything(cluster.bootstrap, "t", load.acknowledged)


def test_with_acls_only_brokers_change_what_they_made(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    acl = {"zookeeper_set_acl": "true", "ottla_zookeeper_credentials": "broker:secret"}
    with ZookeeperCluster(tmp_path, zookeeper, 1, **acl) as cluster, Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", 1, 1)]) == {"t": None}
        assert cluster.state("t")["leader"] == 1, "others may read it"
        for write in (
            lambda session: session.set("/brokers/topics/t", b"", -1),
            lambda session: session.delete("/controller"),
            lambda session: session.create("/config/topics/u"),
            lambda session: session.children("/config/users"),
        ):
            with pytest.raises(NotAuthorizedError):
                cluster.ask(write)
        cluster.ask(lambda session: session.create("/consumers/g"))


def topic_config(admin: Admin, topic: str, key: str) -> str | None:
    return admin.describe_configs(Topic(topic))[key].value


def czxids(cluster: ZookeeperCluster) -> list[int]:
    """Of the brokers' znodes: which sessions' they are."""

    async def ask(session: Session) -> list[int]:
        stats = [await session.exists(f"/brokers/ids/{node}") for node in cluster.nodes]
        return [stat.czxid for stat in stats if stat is not None]

    return cluster.ask(ask)


def create_topic(bootstrap: str, name: str) -> int | None:
    """What became of it; None for success."""
    with Admin(bootstrap, request_timeout_ms=60_000) as admin:
        result = admin.create_topics([NewTopic(name, 1, 1)])[name]
    return None if result is None else int(result.code)


@pytest.mark.slow
def test_changes_that_zookeeper_cannot_hold_are_refused_with_a_message(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    with ZookeeperCluster(tmp_path, zookeeper, 1) as cluster, Admin(cluster.bootstrap) as admin:
        for change in (
            lambda: admin.alter_configs({Group("g"): {"consumer.session.timeout.ms": 50_000}}),
            lambda: admin.update_features({"metadata.version": 25}),
        ):
            with pytest.raises(KafkaError, match="ZooKeeper"):
                change()
        assert cluster.epoch == 1, "the controller goes on"


@pytest.mark.slow
def test_groups_are_shown_below_consumers_and_old_offsets_are_taken_over(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """Mechanisms 66, 68, 69: members, owners and offsets of a group, written by its coordinator."""
    with ZookeeperCluster(tmp_path, zookeeper, 2, ottla_zookeeper_group_registry="true") as cluster:
        with Admin(cluster.bootstrap) as admin:
            assert admin.create_topics([NewTopic("t", 2, 2)]) == {"t": None}

            async def write_old(session: Session) -> None:
                for path, data in (("", b""), ("/offsets", b""), ("/offsets/t", b""), ("/offsets/t/0", b"7"), ("/offsets/t/1", b"9")):
                    await session.create(f"/consumers/old{path}", data)

            cluster.ask(write_old)
            found = eventually(lambda: admin.committed_offsets("old"), lambda offsets: len(offsets) == 2)
            assert {partition.partition: offset.offset for partition, offset in found.items()} == {0: 7, 1: 9}
        with Producer(cluster.bootstrap) as producer:
            for number in range(4):
                producer.send("t", b"x", partition=number % 2).result(30)
        with Consumer(cluster.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            read = 0
            while read < 4:
                read += len(consumer.poll(10_000))
            consumer.commit()
            [member] = eventually(lambda: cluster.names("/consumers/g/ids"), lambda names: len(names) == 1)
            assert cluster.get(f"/consumers/g/ids/{member}")["subscription"] == {"t": 1}
            eventually(lambda: cluster.names("/consumers/g/owners/t"), lambda names: names == ["0", "1"])
            eventually(lambda: [cluster.get(f"/consumers/g/offsets/t/{index}") for index in range(2)], lambda offsets: offsets == [2, 2])
            assert cluster.get("/consumers/g") == {"version": 1, "mirror_of": "__consumer_offsets"}
        eventually(lambda: cluster.names("/consumers/g/ids") + cluster.names("/consumers/g/owners/t"), lambda names: not names)
        assert cluster.get("/consumers/g/offsets/t/0") == 2
