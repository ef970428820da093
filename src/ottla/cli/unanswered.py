"""What is not known because a broker of the cluster does not answer, or a partition has no leader.

A command shows what the others say, names on standard error what is missing and how it comes back, and ends with exit code 1.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.cli.output import complain
from ottla.cli.starting import how_to_start
from ottla.client.out_of_reach import BrokerOutOfReach
from ottla.errors import ErrorCode, KafkaError
from ottla.types import GROUP_METADATA_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.client.cluster_metadata import PartitionMetadata
    from ottla.sync import Admin

SILENT: Final = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE})
NAMES_MAX: Final = 5
LOOK_UP_MS: Final = 5_000
"""A consumer's look-up of offsets goes on for so long: another leader may be elected meanwhile, and a user waits for other records."""
COORDINATOR_MS: Final = 15_000
"""Of each question to a coordinator: one whose partition has too few replicas in sync may answer none."""
T = TypeVar("T")
Leaders = Mapping[TopicPartition, "PartitionMetadata"]


class Unanswered:
    """The brokers that do not answer; each is asked once. ``lack`` is what becomes of what they know: it is not shown, not read."""

    def __init__(self, lack: str = "not shown") -> None:
        self._lack = lack
        self._brokers: set[int] = set()
        self.is_any = False

    @contextlib.contextmanager
    def of(self, broker: int, what: str) -> Iterator[None]:
        """Passes over the block where the broker does not answer it, and says so of ``what``, which is a plural."""
        try:
            yield
        except KafkaError as error:
            if error.code not in SILENT:
                raise
            self.note(broker, error, what)

    def note(self, broker: int, error: KafkaError, what: str) -> None:
        """Says that the broker does not answer, and what is missing for it: once for each broker."""
        self.is_any = True
        if broker not in self._brokers:
            self._brokers.add(broker)
            complain(f"{what} are {self._lack}: {why_silent(broker, error)}")

    def say(self, text: str) -> None:
        """Says something else for which the answer is not all that was asked for."""
        self.is_any = True
        complain(text)

    def has(self, broker: int) -> bool:
        """Returns whether the broker is known not to answer."""
        return broker in self._brokers

    def note_leaderless(self, admin: Admin, partitions: Leaders, what: str) -> None:
        """Says what is missing of partitions that no broker leads, and which brokers have their replicas."""
        if not partitions:
            return
        self.is_any = True
        names = [str(key) for key in sorted(partitions)]
        named = ", ".join(names[:NAMES_MAX]) + (f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else "")
        cluster = admin.describe_cluster(include_fenced=True)
        serving = {node.node_id for node in cluster.nodes} - cluster.fenced
        down = sorted({node for found in partitions.values() for node in found.replicas} - serving)
        missing = f"{what} of {named} are {self._lack}: {'it has' if len(names) == 1 else 'they have'} no leader"
        if not down:
            complain(f"{missing}; `ottla cluster health` says why")
            return
        brokers = f"broker {down[0]} does" if len(down) == 1 else f"brokers {', '.join(map(str, down))} do"
        complain(f"{missing}, and {brokers} not serve{how_to_start(down)}")

    def end(self) -> None:
        """Ends with exit code 1 where anything is missing; the lines that say so were printed."""
        if self.is_any:
            sys.exit(1)


def why_silent(broker: int, error: KafkaError) -> str:
    """Returns why the broker has not answered, and the way out: one that took the connection runs.

    Where a limit cut the last try short, the try before says more.
    """
    for found in (error, error.__cause__):
        if isinstance(found, BrokerOutOfReach):
            return f"{found.message}{how_to_start([broker])}"
    return f"broker {broker} does not answer: {error}; `ottla cluster health` says what is wrong"


def by_leader(partitions: Leaders) -> dict[int, list[TopicPartition]]:
    """Returns the partitions of each leader, those without one aside."""
    led: dict[int, list[TopicPartition]] = {}
    for key, found in sorted(partitions.items()):
        if found.leader >= 0:
            led.setdefault(found.leader, []).append(key)
    return dict(sorted(led.items()))


def leaderless(partitions: Leaders) -> dict[TopicPartition, PartitionMetadata]:
    """Returns the partitions that no broker leads."""
    return {key: found for key, found in partitions.items() if found.leader < 0}


def known_offsets(admin: Admin, partitions: Leaders, times: Collection[int], unanswered: Unanswered) -> list[dict[TopicPartition, int]]:
    """Returns for each time the offsets of the partitions whose leaders answer: no other broker knows them."""
    found: list[dict[TopicPartition, int]] = [{} for _ in times]
    for leader, keys in by_leader(partitions).items():
        count = f"{len(keys)} partition{'s'[: len(keys) != 1]}"
        with unanswered.of(leader, f"the offsets of {count} that it leads"):
            answers = [admin.offsets_for_times(dict.fromkeys(keys, time)) for time in times]
            for known, answer in zip(found, answers, strict=True):
                known.update({key: at.offset for key, at in answer.items()})
    return found


def internal_partitions(admin: Admin, topic: str = GROUP_METADATA_TOPIC) -> dict[TopicPartition, PartitionMetadata]:
    """Returns the partitions of the topic that has the groups, or the transactions; their leaders are the coordinators.

    Empty where it cannot be seen.
    """
    try:
        found = admin.describe_topic(topic)
    except KafkaError as error:
        if error.code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
            raise
        return {}
    return {TopicPartition(topic, index): partition for index, partition in found.partitions.items()}


def raise_silence(answers: Iterable[object]) -> None:
    """Raises the error, among the answers for items of one broker, that says that the broker does not answer."""
    for answer in answers:
        if isinstance(answer, KafkaError) and answer.code in SILENT:
            raise answer


def of_each_broker(admin: Admin, unanswered: Unanswered, what: str, ask: Callable[[int], Iterable[T]]) -> list[T]:
    """Returns what the brokers that serve and answer say, one after the other. ``what`` has a place for the broker's id."""
    found: list[T] = []
    for node in sorted(admin.describe_cluster().nodes, key=lambda node: node.node_id):
        with unanswered.of(node.node_id, what.format(node.node_id)):
            found += ask(node.node_id)
    return found
