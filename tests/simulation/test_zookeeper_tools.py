"""Three shipped nodes in ZooKeeper mode, and a tool that writes below their root: no controller ends by it, and none of its brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import pytest
import structlog
from tests.simulation.quorum_nodes import started
from tests.simulation.zookeeper_nodes import ZookeeperNode, nodes_in_zookeeper

from ottla.broker.controller.active_controller import ActiveController
from ottla.config import BrokerConfig
from ottla.controller.configs import ConfigChange, change_configs
from ottla.controller.configs import Operation as ConfigOperation
from ottla.controller.reassignment import reassign
from ottla.coordination import Create, Delete, Operation, Session, Set
from ottla.metadata import znodes
from ottla.metadata.image import RESOURCE_TOPIC, ClusterImage, PartitionImage
from ottla.metadata.znodes import TopicZnode
from ottla.sim.cluster import Simulation
from ottla.sim.loop import run

PATH = znodes.topic_path("t")
STEP_SECONDS = 2  # of simulated time: all that a change brings about is done


class ToolAtWork:
    """``tool`` is its session; nothing else changes the cluster's znodes."""

    def __init__(self, nodes: list[ZookeeperNode], tool: Session) -> None:
        self._nodes = nodes
        self.tool = tool

    @property
    def tree(self) -> Mapping[str, bytes]:
        return {path.removeprefix("/cluster"): data for path, data in self._nodes[0].service.tree.paths().items()}

    @property
    def controller(self) -> ActiveController:
        [found] = [node.broker.controller for node in self._nodes if node.broker is not None and node.broker.controller.is_active]
        return found

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    @property
    def epoch(self) -> int:
        return int(self.tree[znodes.CONTROLLER_EPOCH])

    @property
    def broker_ids(self) -> tuple[int, int, int]:
        """The controller's, and the others'."""
        first, *others = sorted((node.node for node in self._nodes), key=lambda node: node != self.controller_id)
        return first, others[0], others[1]

    @property
    def controller_id(self) -> int:
        return znodes.decode_controller(self.tree[znodes.CONTROLLER])

    def kill(self, broker_id: int) -> None:
        self._node(broker_id).kill(power_cut=False)

    async def start(self, broker_id: int) -> None:
        self._node(broker_id).begin()
        await started([self._node(broker_id)])
        await asyncio.sleep(STEP_SECONDS)

    def _node(self, broker_id: int) -> ZookeeperNode:
        return next(node for node in self._nodes if node.node == broker_id)

    def partitions(self, topic: str) -> Mapping[int, PartitionImage]:
        """Returns the topic's; they are the same for every broker."""
        images = [node.broker.image for node in self._nodes if node.broker is not None]
        assert all(image.topics.get(topic) == self.image.topics.get(topic) for image in images)
        return self.image.topics[topic].partitions

    async def do(self, *operations: Operation) -> None:
        await self.tool.multi(operations)
        await asyncio.sleep(STEP_SECONDS)

    async def assign(self, *replicas: tuple[int, ...]) -> None:
        """Writes the assignment of topic t, with the id that the topic has."""
        data, stat = await self.tool.get(PATH)
        await self.tool.set(PATH, assignment(*replicas, topic_id=TopicZnode.decode(data, "t").topic_id), stat.version)
        await asyncio.sleep(STEP_SECONDS)

    async def configure(self, entity: str, data: bytes) -> None:
        """Writes the configuration, and a notice."""
        path = f"{znodes.CONFIG}/{entity}"
        write = Set(path, data, -1) if path in self.tree else Create(path, data)
        await self.do(write, Create(znodes.CONFIG_CHANGE_PREFIX, znodes.encode_config_change(entity), is_sequential=True))

    async def elect(self) -> None:
        """As operators do: the controller's znode is deleted."""
        epoch = self.epoch
        await self.do(Delete(znodes.CONTROLLER))
        assert self.epoch == epoch + 1


def assignment(*replicas: tuple[int, ...], topic_id: bytes | None = None) -> bytes:
    return TopicZnode(topic_id, dict(enumerate(replicas))).encode()


def beside_a_tool(
    test: Callable[[ToolAtWork], Awaitable[None]], properties: Mapping[str, str] = {}, allowed: frozenset[str] = frozenset()
) -> None:
    """Runs the test; no node logs another error than those that are ``allowed``."""

    async def main() -> None:
        nodes = nodes_in_zookeeper(simulation, {"ottla.zookeeper.request.bytes.max": "100000"} | dict(properties))
        for node in nodes:
            node.begin()
        await started(nodes)
        tool = await nodes[0].service.coordination("tool").connect("zookeeper:2181/cluster", session_timeout_ms=600_000)
        await test(ToolAtWork(nodes, tool))

    simulation = Simulation(5)
    with structlog.testing.capture_logs() as events:
        run(main())
    assert not [event for event in events if event["log_level"] in ("error", "critical") and event["event"] not in allowed]


def test_a_partition_is_taken_out_of_a_topics_znode_and_the_topic_is_deleted() -> None:
    """What is left of the partition in ZooKeeper goes with the topic; before, no controller stayed, and no broker followed one."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(PATH, assignment((1, 2), (2, 3))))
        await cluster.assign((1, 2))
        await cluster.elect()
        assert len(cluster.partitions("t")) == 1
        epoch = cluster.epoch
        await cluster.do(Create(f"{PATH}/partitions/notes"), Create(f"{PATH}/partitions/notes/more"))
        await cluster.do(Create(f"{znodes.DELETE_TOPICS}/t"))
        assert "t" not in cluster.image.topics
        assert not [path for path in cluster.tree if path.startswith((PATH, f"{znodes.DELETE_TOPICS}/"))]
        assert cluster.epoch == epoch

    beside_a_tool(test)


def test_a_partition_that_was_taken_out_of_a_topics_znode_is_added_again() -> None:
    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(PATH, assignment((1, 2), (2, 3))))
        await cluster.assign((1, 2))
        await cluster.elect()
        epoch = cluster.epoch
        await cluster.assign((1, 2), (3, 1))
        assert list(cluster.partitions("t")[1].replicas) == [3, 1]
        assert cluster.partitions("t")[1].leader == 3
        assert cluster.epoch == epoch

    beside_a_tool(test)


def test_a_topic_whose_deletion_is_asked_for_as_soon_as_it_is_written_is_deleted() -> None:
    """As Kafka's controller, which takes what tools write one after the other."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(PATH, assignment((1, 2))), Create(f"{znodes.DELETE_TOPICS}/t"))
        assert "t" not in cluster.image.topics
        assert not [path for path in cluster.tree if path.startswith((PATH, f"{znodes.DELETE_TOPICS}/"))]
        assert cluster.epoch == 1

    beside_a_tool(test)


def test_a_topic_that_cannot_be_read_is_deleted() -> None:
    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(PATH, b"{"), Create(f"{PATH}/more"))
        await cluster.do(Create(f"{znodes.DELETE_TOPICS}/t"))
        assert not [path for path in cluster.tree if path.startswith((PATH, f"{znodes.DELETE_TOPICS}/"))]
        assert cluster.epoch == 1

    beside_a_tool(test, allowed=frozenset({"topic_znode_unreadable"}))


def test_no_topic_is_deleted_where_that_is_disabled() -> None:
    """Nor by the next controller, which finds the marks: they are deleted, as by Kafka's."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(PATH, assignment((1, 2))))
        mark = f"{znodes.DELETE_TOPICS}/t"
        await cluster.do(Create(mark))
        assert "t" in cluster.image.topics
        assert mark not in cluster.tree
        await cluster.do(Delete(znodes.CONTROLLER), Create(mark))
        assert cluster.epoch == 2
        assert "t" in cluster.image.topics
        assert mark not in cluster.tree

    beside_a_tool(test, {"delete.topic.enable": "false"})


def test_a_znode_that_is_no_topic_keeps_no_controller_from_its_work() -> None:
    """It never had a partition: nobody has its records. Before, no later controller could be elected, or it made a topic of that name."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(PATH, b"{"), Create(znodes.topic_path("no name"), assignment((1,))))
        await cluster.elect()
        await cluster.do(Create(znodes.topic_path("next"), assignment((1, 2))))
        assert list(cluster.image.topics) == ["next"]
        await cluster.tool.set(PATH, assignment((2, 1)), 0)
        await asyncio.sleep(STEP_SECONDS)
        assert cluster.partitions("t")[0].leader == 2
        assert cluster.epoch == 2

    allowed = frozenset({"topic_znode_unreadable", "topic_znode_refused", "znode_not_understood"})
    beside_a_tool(test, allowed=allowed)


def test_copies_of_a_topics_znode_that_a_new_controller_finds_get_ids_of_their_own() -> None:
    """Before, partitions of one topic became those of another one."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(PATH, assignment((1, 2), (2, 3))))
        topic_id = cluster.image.topics["t"].topic_id
        copies = [Create(znodes.topic_path(name), assignment((3, 1), topic_id=topic_id)) for name in ("a", "z")]
        await cluster.do(*copies, Delete(znodes.CONTROLLER))
        assert cluster.image.topics["t"].topic_id == topic_id
        assert len({topic.topic_id for topic in cluster.image.topics.values()}) == 3
        assert {name: len(cluster.partitions(name)) for name in ("a", "t", "z")} == {"a": 1, "t": 2, "z": 1}
        await cluster.elect()
        assert {name: TopicZnode.decode(cluster.tree[znodes.topic_path(name)], name).topic_id for name in ("a", "t", "z")} == {
            name: topic.topic_id for name, topic in cluster.image.topics.items()
        }

    beside_a_tool(test)


def test_values_of_a_configuration_that_cannot_be_used_change_nothing_and_stay_in_the_znode() -> None:
    """Before, brokers did not follow the metadata any more, and did not start again."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(PATH, assignment((1, 2))))
        await cluster.configure("topics/t", znodes.encode_config({"retention.ms": "5000"}))
        unusable = {"retention.ms": "a week", "cleanup.policy": "all", "segment.bytes": "-7"}
        await cluster.configure("topics/t", znodes.encode_config({"flush.messages": "7", **unusable}))
        await cluster.configure(f"brokers/{znodes.DEFAULT_ENTITY}", znodes.encode_config({"min.insync.replicas": "most"}))
        await cluster.configure("brokers/1", znodes.encode_config({"num.io.threads": "x", "log.retention.ms": "x"}))
        await cluster.configure("clients/c", znodes.encode_config({"producer_byte_rate": "nan"}))
        assert cluster.image.configs == {(RESOURCE_TOPIC, "t"): {"flush.messages": "7", "retention.ms": "5000"}}
        assert not cluster.image.quotas
        await cluster.do(Create(znodes.topic_path("next"), assignment((1, 2, 3))))
        assert cluster.partitions("next")[0].leader == 1
        await cluster.configure("brokers/1", b"{")
        await cluster.elect()
        assert cluster.image.configs == {(RESOURCE_TOPIC, "t"): {"flush.messages": "7"}}
        assert len(cluster.partitions("t")[0].isr) == 2
        change = partial(change_configs, resource_type=RESOURCE_TOPIC, name="t", config=BrokerConfig({}))
        values = [ConfigChange("retention.ms", ConfigOperation.SET, "6000")]
        await cluster.controller.decide([partial(change, changes=values)])
        written = znodes.decode_config(cluster.tree["/config/topics/t"], "")
        assert written == {**unusable, "flush.messages": "7", "retention.ms": "6000"}
        await cluster.do(Create(f"{znodes.DELETE_TOPICS}/t"))
        await cluster.do(Create(PATH, assignment((1, 2))))
        assert znodes.decode_config(cluster.tree["/config/topics/t"], "") == {}
        assert cluster.epoch == 2

    beside_a_tool(test, allowed=frozenset({"znode_not_understood", "config_znode_unreadable"}))


def moves(*wanted: tuple[str, int, tuple[int, ...]]) -> bytes:
    return znodes.encode_reassignment({(topic, index): nodes for topic, index, nodes in wanted})


def test_a_reassignment_stays_in_its_znode_until_it_is_complete() -> None:
    """Tools look there for what is under way, and write no other one meanwhile; the next controller goes on with it."""

    async def test(cluster: ToolAtWork) -> None:
        first, second, third = cluster.broker_ids
        await cluster.do(Create(PATH, assignment((first, second), (first, second))))
        cluster.kill(third)  # it counts as alive for a moment
        wanted = [("t", 0, (second, third)), ("t", 1, (second, first)), ("t", 2, (first,)), ("none", 0, (first,))]
        await cluster.do(Create(znodes.REASSIGN_PARTITIONS, moves(*wanted)))
        assert cluster.tree[znodes.REASSIGN_PARTITIONS] == moves(("t", 0, (second, third)))
        assert list(cluster.partitions("t")[1].replicas) == [second, first]
        await cluster.elect()
        assert cluster.tree[znodes.REASSIGN_PARTITIONS] == moves(("t", 0, (second, third)))
        await cluster.start(third)
        assert list(cluster.partitions("t")[0].replicas) == [second, third]
        assert znodes.REASSIGN_PARTITIONS not in cluster.tree
        assert cluster.epoch == 2
        await cluster.do(Create(znodes.REASSIGN_PARTITIONS, moves(("t", 0, (first, second)))))
        assert list(cluster.partitions("t")[0].replicas) == [first, second]
        assert znodes.REASSIGN_PARTITIONS not in cluster.tree

    beside_a_tool(test)


@pytest.mark.parametrize("ends", ["it is cancelled", "the topic is deleted"])
def test_a_reassignment_that_ends_otherwise_is_taken_out_of_its_znode(ends: str) -> None:
    async def test(cluster: ToolAtWork) -> None:
        first, second, third = cluster.broker_ids
        await cluster.do(Create(PATH, assignment((first, second))))
        cluster.kill(third)
        await cluster.do(Create(znodes.REASSIGN_PARTITIONS, moves(("t", 0, (second, third)))))
        assert znodes.REASSIGN_PARTITIONS in cluster.tree
        if ends == "it is cancelled":
            await cluster.controller.decide([lambda image: reassign(image, "t", 0, None, keeps_factor=False)])
        else:
            await cluster.tool.create(f"{znodes.DELETE_TOPICS}/t")
        await asyncio.sleep(STEP_SECONDS)
        assert znodes.REASSIGN_PARTITIONS not in cluster.tree
        assert cluster.epoch == 1

    beside_a_tool(test)


@pytest.mark.parametrize("data", [b"{", b"", moves()])
def test_a_reassignment_of_nothing_is_deleted(data: bytes) -> None:
    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(znodes.REASSIGN_PARTITIONS, data))
        assert znodes.REASSIGN_PARTITIONS not in cluster.tree

    beside_a_tool(test, allowed=frozenset({"request_znode_unreadable"}))


def test_what_no_topic_and_no_broker_can_have_ends_nobody() -> None:
    """Before, a number that is too large ended the broker of one controller after the other."""
    odd = [
        b'{"-1":[1]}',
        b'{"0":[1,1]}',
        b'{"0":[-3]}',
        b'{"0":[99999999999]}',
        b'{"9999999999":[1]}',
        b'{"0":["1"]}',
        b'{"0":"12"}',
        b"[]",
    ]

    async def test(cluster: ToolAtWork) -> None:
        for index, partitions in enumerate(odd):
            await cluster.tool.create(znodes.topic_path(f"odd-{index}"), b'{"version":3,"partitions":%s}' % partitions)
        nothing = Create(f"{znodes.BROKER_IDS}/\u00b2", b"{}"), Create(f"{znodes.BROKER_IDS}/99999999999", b"{}")
        await cluster.do(Create(PATH, assignment((1, 2), topic_id=bytes(16))), *nothing)
        await cluster.do(Create(f"{PATH}/partitions/\u00b2"))
        await cluster.elect()
        assert list(cluster.image.topics) == ["t"]
        assert cluster.partitions("t")[0].leader == 1
        assert cluster.image.topics["t"].topic_id != bytes(16), "no topic has this id"
        assert sorted(cluster.image.brokers) == [1, 2, 3]

    beside_a_tool(test, allowed=frozenset({"topic_znode_unreadable", "znode_not_understood"}))


@pytest.mark.parametrize("damage", [None, b"x", b"", b"99999999999", b"-7"])
def test_the_controllers_epoch_is_deleted_or_damaged_and_made_again(damage: bytes | None) -> None:
    """Epochs go on: no controller has one that an earlier one had. Before, there was no controller any more, or no broker."""

    async def test(cluster: ToolAtWork) -> None:
        for _ in range(3):
            await cluster.elect()
        path = znodes.CONTROLLER_EPOCH
        await cluster.do(Delete(path) if damage is None else Set(path, damage, -1))
        await cluster.do(Create(PATH, assignment((1, 2))))
        assert cluster.epoch == 5
        assert cluster.partitions("t")[0].leader == 1

    beside_a_tool(test, allowed=frozenset({"controller_epoch_unreadable"}))


def test_a_topic_that_is_too_large_keeps_no_controller_from_being_elected() -> None:
    """Before, it ended the broker of each controller that was elected. The topic gets no id, for that would take its partitions."""

    async def test(cluster: ToolAtWork) -> None:
        large = assignment(*[(1,)] * 6000)
        await cluster.do(Create(PATH, large), Delete(znodes.CONTROLLER))
        await cluster.do(Create(znodes.topic_path("next"), assignment((1, 2))))
        assert cluster.partitions("next")[0].leader == 1
        assert cluster.tree[PATH] == large
        await cluster.do(Create(f"{znodes.DELETE_TOPICS}/t"))
        assert PATH not in cluster.tree
        assert cluster.epoch == 2

    beside_a_tool(test, allowed=frozenset({"topic_znode_refused"}))


@pytest.mark.parametrize("path", [znodes.DELETE_TOPICS, znodes.CONFIG_CHANGES])
def test_a_znode_that_holds_requests_is_deleted_and_made_again(path: str) -> None:
    """Before, that ended the broker of one controller after the other."""

    async def test(cluster: ToolAtWork) -> None:
        for name in [name for name in cluster.tree if name.startswith(f"{path}/")]:
            await cluster.do(Delete(name))
        await cluster.do(Delete(path))
        await cluster.elect()
        await cluster.do(Create(path), Create(PATH, assignment((1, 2))))
        await cluster.configure("topics/t", znodes.encode_config({"retention.ms": "5000"}))
        assert cluster.image.configs == {(RESOURCE_TOPIC, "t"): {"retention.ms": "5000"}}
        if path == znodes.DELETE_TOPICS:
            await cluster.do(Create(f"{path}/t"))
            assert "t" not in cluster.image.topics
        assert cluster.epoch == 2

    beside_a_tool(test)


def test_the_controllers_znode_is_damaged() -> None:
    """The others follow the controller on, and one that starts waits for another one. Before, each of their brokers ended."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Set(znodes.CONTROLLER, b"{", -1))
        await cluster.do(Create(PATH, assignment((1, 2))))
        assert cluster.partitions("t")[0].leader == 1
        await cluster.elect()
        assert len(cluster.partitions("t")[0].isr) == 2

    beside_a_tool(test, allowed=frozenset({"controller_unreadable"}))


def test_a_topic_whose_configuration_cannot_be_read_is_made_without_one() -> None:
    """As at an election, and by Kafka; what has no effect is logged at once."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create("/config/topics/t", b"{"), Create(PATH, assignment((1, 2))))
        await cluster.do(
            Create("/config/topics/next", znodes.encode_config({"retention.ms": "a week"})),
            Create(znodes.topic_path("next"), assignment((1, 2))),
        )
        assert len(cluster.partitions("t")) == len(cluster.partitions("next")) == 1
        assert not cluster.image.configs
        assert cluster.epoch == 1

    beside_a_tool(test, allowed=frozenset({"znode_not_understood"}))


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":5,"endpoints":["PLAINTEXT://h:99999"]}',
        b'{"version":5,"endpoints":["PLAINTEXT://h:-1"]}',
        b'{"version":5,"endpoints":["PLAINTEXT://h:1"],"rack":5}',
        b'{"version":5,"endpoints":["PLAINTEXT://h:1"],"features":{"a":{"min_version":1,"max_version":99999}}}',
        b'{"version":1,"host":null,"port":5}',
    ],
)
def test_a_brokers_znode_that_no_record_can_have_registers_no_broker(data: bytes) -> None:
    """Before, it ended the broker of one controller after the other."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(f"{znodes.BROKER_IDS}/7", data))
        await cluster.do(Create(PATH, assignment((1, 2))))
        assert cluster.partitions("t")[0].leader == 1
        assert sorted(cluster.image.brokers) == [1, 2, 3]
        assert cluster.epoch == 1

    beside_a_tool(test, allowed=frozenset({"broker_znode_unreadable"}))


def test_a_topic_with_a_deep_tree_of_others_below_it_is_deleted() -> None:
    """Before, one of more levels than calls can be nested ended the controller's broker."""

    async def test(cluster: ToolAtWork) -> None:
        await cluster.do(Create(PATH, assignment((1, 2))))
        path = PATH
        for _ in range(1200):
            path += "/d"
            await cluster.tool.create(path)
        await cluster.do(Create(f"{znodes.DELETE_TOPICS}/t"))
        await asyncio.sleep(60)
        assert not [path for path in cluster.tree if path.startswith((PATH, f"{znodes.DELETE_TOPICS}/"))]
        assert cluster.epoch == 1

    beside_a_tool(test)
