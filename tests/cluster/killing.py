"""Kill -9 of the active controller, again and again, under a stream of changes of topics, configurations and groups.

On default timeouts.
"""

from __future__ import annotations

import json
import operator
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from tests.cluster.processes import ClusterProcesses
from tests.waiting import eventually

from ottla.client.admin import Topic
from ottla.errors import ErrorCode, KafkaError
from ottla.sync import Admin, NewTopic
from ottla.types import TopicPartition

CHANGES_BETWEEN_KILLS = 15
GROUPS = [f"group-{number}" for number in range(8)]
BOTH = ("retention.ms", "segment.ms")
OFFSETS_TOPIC, CONFIG_TOPIC = "offsets", "settings"


@dataclass
class History:
    """What was asked for, and what was acknowledged."""

    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    deleting: set[str] = field(default_factory=set)
    config: int = 0
    config_tried: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    offsets_tried: dict[str, int] = field(default_factory=dict)
    acknowledged_at: list[float] = field(default_factory=list)  # of changes that the controller decides, by time.time()
    refused: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outcome:
    change_count: int
    without_controller_ms: list[float]
    """From each kill until the next controller was active."""
    without_answer_ms: list[float]
    """From each kill until the next change of a topic or a configuration was acknowledged."""

    def __str__(self) -> str:
        texts = [f"{len(self.without_controller_ms)} kills, {self.change_count} acknowledged changes"]
        for what, values in (("without a controller", self.without_controller_ms), ("without an answer", self.without_answer_ms)):
            texts.append(f"{what}: median {statistics.median(values):.0f} ms, at most {max(values):.0f} ms")
        return "; ".join(texts)


class Worker(threading.Thread):
    """Asks for one change after the other until it is told to stop."""

    def __init__(self, bootstrap: str, history: History, change: Callable[[Admin, History, int], None]) -> None:
        super().__init__(daemon=True)
        self._servers = bootstrap
        self._history = history
        self._change = change
        self._stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Admin(self._servers) as admin:
                number = 0
                while not self._stopping.is_set():
                    number += 1
                    self._change(admin, self._history, number)
        except BaseException as error:  # noqa: BLE001 - raised again by stop
            self.failure = error

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        if self.failure is not None:
            raise self.failure


def change_topics(admin: Admin, history: History, number: int) -> None:
    """A topic is created; every third one is deleted again. What is answered as done, or as having been done already, is acknowledged."""
    name = f"topic-{number}"
    wanted = NewTopic(name, 3, 1, configs=dict.fromkeys(BOTH, "77"))
    if _is_done(history, lambda: admin.create_topics([wanted])[name], ErrorCode.TOPIC_ALREADY_EXISTS):
        history.created.add(name)
        if number % 3 == 0:
            history.deleting.add(name)
            if _is_done(history, lambda: admin.delete_topics([name])[name], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                history.deleted.add(name)


def change_configs(admin: Admin, history: History, number: int) -> None:
    """Two values, which are always changed together."""
    history.config_tried = number

    def alter() -> KafkaError | None:
        admin.alter_configs({Topic(CONFIG_TOPIC): both(number + 1)})
        return None

    if _is_done(history, alter):
        history.config = number


def both(value: int) -> dict[str, int]:
    return dict.fromkeys(BOTH, value)


def change_groups(admin: Admin, history: History, number: int) -> None:
    group = GROUPS[number % len(GROUPS)]
    history.offsets_tried[group] = number
    try:
        admin.set_offsets(group, {TopicPartition(OFFSETS_TOPIC, 0): number})
    except KafkaError:
        return  # its coordinator is the broker that was killed
    history.offsets[group] = number


def _is_done(history: History, ask: Callable[[], KafkaError | None], done_before: ErrorCode | None = None) -> bool:
    """Whether the change was acknowledged: an answer that says it was done by an earlier attempt is one."""
    try:
        error = ask()
    except KafkaError as raised:
        error = raised
    if error is not None and error.code != done_before:
        history.refused.append(error.code.name)
        return False
    history.acknowledged_at.append(time.time())
    return True


def run(directory: Path, *, kill_count: int) -> Outcome:
    """AssertionError when an acknowledged change is lost, or one is half applied."""
    history = History()
    without_controller, kills = [], []
    with ClusterProcesses(directory) as cluster:
        with Admin(cluster.bootstrap) as admin:
            topics = [NewTopic(OFFSETS_TOPIC, 1, 1), NewTopic(CONFIG_TOPIC, 1, 1)]
            assert admin.create_topics(topics) == {OFFSETS_TOPIC: None, CONFIG_TOPIC: None}
            admin.alter_configs({Topic(CONFIG_TOPIC): both(1)})
        workers = [Worker(cluster.bootstrap, history, change) for change in (change_topics, change_configs, change_groups)]
        for worker in workers:
            worker.start()
        active = cluster.quorum(1).leader_id
        for _ in range(kill_count):
            wanted = len(history.acknowledged_at) + CHANGES_BETWEEN_KILLS
            eventually(lambda: len(history.acknowledged_at), partial(operator.le, wanted))
            killed_at = time.time()
            cluster.nodes[active].kill()
            others = [node for node in cluster.nodes if node != active]
            next_active, active_at = eventually(partial(_successor, cluster, others, killed_at), lambda found: found[0] > 0)
            kills.append(killed_at)
            without_controller.append((active_at - killed_at) * 1000)
            cluster.nodes[active].start()
            active = next_active
        for worker in workers:
            worker.stop()
        check(cluster, history)
    without_answer = [(min(at for at in history.acknowledged_at if at > killed_at) - killed_at) * 1000 for killed_at in kills]
    return Outcome(len(history.acknowledged_at), without_controller, without_answer)


def _successor(cluster: ClusterProcesses, nodes: list[int], since: float) -> tuple[int, float]:
    """Which of the nodes became the active controller, and when; 0 while none has."""
    for node in nodes:
        for line in reversed(cluster.nodes[node].log().splitlines()):
            if '"controller_active"' in line:
                at = datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
                if at >= since:
                    return node, at
                break
    return 0, 0.0


def check(cluster: ClusterProcesses, history: History) -> None:
    """Every node says the same, and has everything that was acknowledged."""
    must, may = history.created - history.deleting, history.created - history.deleted
    for node in cluster.nodes.values():
        with Admin(node.bootstrap) as admin:
            topics = eventually(admin.list_topics, lambda found: must <= set(found))
            made = {name for name in topics if name.startswith("topic-")}
            assert not made & history.deleted, "a deleted topic is back"
            assert all(len(topics[name].partitions) == 3 for name in made), "a topic is there in part"
            for name in sorted(made & may)[-20:]:
                assert _values(admin, name) == {"77"}, "a topic is there without its configuration"
            found = eventually(partial(_values, admin, CONFIG_TOPIC), lambda found: int(min(found)) > history.config)
            assert len(found) == 1, "a change of two values is half applied"
            assert history.config < int(*found) <= history.config_tried + 1
            for group, offset in history.offsets.items():
                committed = admin.committed_offsets(group)[TopicPartition(OFFSETS_TOPIC, 0)].offset
                assert offset <= committed <= history.offsets_tried[group]


def _values(admin: Admin, topic: str) -> set[str]:
    found = admin.describe_configs(Topic(topic))
    return {str(found[key].value) for key in BOTH}
