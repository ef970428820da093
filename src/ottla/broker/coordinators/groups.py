"""The group coordinators of this broker: which shard a group belongs to, and the internal topic they live on.

A group belongs to partition ``hash(group id) mod partition count`` of ``__consumer_offsets``, with Java's string hash, so
that every broker and tool agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.coordinators.shard import Shard
from ottla.broker.part import Part
from ottla.broker.replicas.partition import Partition
from ottla.broker.tasks import eager
from ottla.config import BrokerConfig
from ottla.config.registry import SEGMENT_BYTES_MIN
from ottla.controller.topics import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.groups.commands import DeleteTopicOffsets
from ottla.groups.coordinator import GroupCoordinator
from ottla.groups.records import decode_record, encode_record
from ottla.groups.settings import GroupSettings
from ottla.loggers import get_logger
from ottla.machine import Command, Token
from ottla.metadata.delta import ImageDelta
from ottla.ports import World
from ottla.types import GROUP_METADATA_TOPIC, NO_LEADER

log = get_logger(__name__)
R = TypeVar("R")

OFFSET_BYTES_MIN = 42
"""What a committed offset takes in the log, but for the names of its group and topic."""


class GroupShards(Part):
    """All groups that this broker coordinates."""

    def __init__(self, world: World, config: BrokerConfig, controller: ActiveController) -> None:
        self._world = world
        self._config = config
        self._controller = controller
        self._shards: dict[int, Shard] = {}  # of the partitions that this broker leads: one each, of the epoch that it leads in
        self._is_closed = False
        self._node_id = config.node_id

    @property
    def partition_count(self) -> int:
        """Partitions of the topic, 0 before it exists."""
        topic = self._controller.image.topics.get(GROUP_METADATA_TOPIC)
        return len(topic.partitions) if topic else 0

    def leader_of(self, group_id: str) -> int:
        """The broker that coordinates the group; NO_LEADER while there is none."""
        topic = self._controller.image.topics.get(GROUP_METADATA_TOPIC)
        return topic.partitions[partition_of(group_id, len(topic.partitions))].leader if topic else NO_LEADER

    async def ensure_topic(self) -> None:
        """The topic exists, and this broker has opened its share of it.

        Without a configured replication factor it has three replicas, where there are so many brokers.
        """
        known = self._controller.image.topics.get(GROUP_METADATA_TOPIC)
        if known is not None:
            if any(partition.leader == self._node_id and index not in self._shards for index, partition in known.partitions.items()):
                await self._controller.published()  # another request has it made just now
            return
        config = self._config
        factor = config["offsets.topic.replication.factor"]
        smallest = factor if config.is_given("offsets.topic.replication.factor") else 1
        if smallest == 1 and not self._controller.replicates:
            factor = 1
        segment_bytes = config["offsets.topic.segment.bytes"]
        configs: dict[str, str | None] = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes" if segment_bytes >= SEGMENT_BYTES_MIN else "internal.segment.bytes": str(segment_bytes),
        }
        count = config["offsets.topic.num.partitions"]
        while True:  # the controller knows how many brokers there are, with those that are down
            [result] = await self._controller.create_topics([NewTopic(GROUP_METADATA_TOPIC, count, factor, configs=configs)])
            is_too_large = isinstance(result, KafkaError) and result.code == ErrorCode.INVALID_REPLICATION_FACTOR
            if not is_too_large or factor <= smallest:
                break
            factor -= 1
        if isinstance(result, KafkaError) and result.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            await self._controller.published()
        elif isinstance(result, KafkaError):
            log.error("group_topic_not_created", reason=result.message)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, result.message)

    def on_role(self, partition: Partition) -> None:
        """The broker leads the partition in another epoch than before, or not any more, or it was deleted.

        The last epoch's shard is closed, and one of the new epoch begins to load: requests for its groups get COORDINATOR_LOAD_IN_PROGRESS
        until that is done.
        """
        if partition.topic != GROUP_METADATA_TOPIC:
            return
        known = self._shards.get(partition.index)
        if known is not None:
            if known.partition is partition and known.leader_epoch == partition.led_epoch:
                return
            if known.partition is not partition and partition.led_epoch < 0:
                return  # of a topic that was deleted, and another one of its name is served already
            self._shards.pop(partition.index).close()
        if partition.led_epoch >= 0 and not self._is_closed:
            self._open(partition)

    def _open(self, partition: Partition) -> None:
        machine = GroupCoordinator(_settings(self._config))
        shard = self._shards[partition.index] = Shard(
            self._world, partition, machine, encode_record, decode_record, lambda: self._reopen(partition),
            commit_ms_max=self._config["offsets.commit.timeout.ms"],
        )  # fmt: skip
        eager.run(shard.load(), _note_load)

    def _reopen(self, partition: Partition) -> None:
        """The log did not take what the groups already have: they are reloaded, or dropped if the log has failed."""
        self._shards.pop(partition.index).close()
        if not partition.log.is_failed:
            self._open(partition)

    async def stop(self) -> None:
        """The broker stops: no group is coordinated here any more."""
        self._is_closed = True
        for shard in self._shards.values():
            shard.close()
        self._shards.clear()

    async def on_image(self, delta: ImageDelta) -> None:
        """Offsets of deleted topics are deleted."""
        topics = tuple(topic.name for topic in delta.deleted_topics)
        if topics:
            for shard in self._shards.values():
                shard.tell(DeleteTopicOffsets(0, topics))

    def fits_batch(self, group_id: str, offset_count: int) -> bool:
        """False when so many offsets of the group cannot be one batch, whatever their topics are."""
        return offset_count * (OFFSET_BYTES_MIN + len(group_id)) <= self._shard(group_id).batch_bytes_max

    async def ask(self, group_id: str, make_command: Callable[[Token], Command[R]]) -> R:
        """The reply of the group's coordinator. NOT_COORDINATOR when that is not here, COORDINATOR_LOAD_IN_PROGRESS while it loads."""
        return await self._shard(group_id).ask(make_command)

    async def ask_all(self, make_command: Callable[[Token], Command[R]]) -> list[R]:
        """One reply from each shard of this broker, but for those that it loses meanwhile. KafkaError while one of them loads."""
        replies = []
        for shard in list(self._shards.values()):
            try:
                replies.append(await shard.ask(make_command))
            except KafkaError as error:
                if error.code != ErrorCode.NOT_COORDINATOR:
                    raise
        return replies

    def _shard(self, group_id: str) -> Shard:
        topic = self._controller.image.topics.get(GROUP_METADATA_TOPIC)
        index = partition_of(group_id, len(topic.partitions)) if topic is not None else 0
        shard = self._shards.get(index)
        if topic is None or shard is None:
            if topic is not None and topic.partitions[index].leader == self._node_id:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the coordinator of group {group_id!r} is about to be loaded")
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"group {group_id!r} is not coordinated here")
        return shard


def partition_of(group_id: str, count: int) -> int:
    """Java's ``String.hashCode`` without its sign, modulo the partitions."""
    code = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % count


def _note_load(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("groups_not_loaded", exc_info=error)


def _settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        session_timeout_ms_min=config["group.min.session.timeout.ms"],
        session_timeout_ms_max=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        group_max_size=config["group.max.size"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
    )
