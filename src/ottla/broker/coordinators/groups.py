"""The group coordinators of this broker, over ``__consumer_offsets``: which keys configure them, and what a deleted topic means to them."""

from __future__ import annotations

from typing import Any

from ottla.broker.controller.active_controller import ActiveController
from ottla.broker.coordinators.runtime import CoordinatorKind, CoordinatorRuntime, segment_size
from ottla.broker.coordinators.shard import Shard
from ottla.config import BrokerConfig
from ottla.controller.features import GROUP_VERSION
from ottla.groups.classic.drafts import GroupSettled
from ottla.groups.commands import DeleteTopicOffsets, EndTransaction
from ottla.groups.consumer.facts import GroupAssigned
from ottla.groups.coordinator import GroupCoordinator
from ottla.groups.records import decode_record, encode_record
from ottla.groups.settings import ConsumerGroupSettings, GroupSettings
from ottla.loggers import get_logger
from ottla.machine import Marker
from ottla.metadata.delta import ImageDelta
from ottla.ports import World
from ottla.types import GROUP_METADATA_TOPIC

log = get_logger(__name__)

OFFSET_BYTES_MIN = 42
"""What a committed offset takes in the log, but for the names of its group and topic."""


class GroupShards(CoordinatorRuntime[GroupCoordinator]):
    """All groups that this broker coordinates."""

    def __init__(self, world: World, config: BrokerConfig, controller: ActiveController) -> None:
        super().__init__(world, config, controller, _kind(config, controller))
        self._protocols = frozenset(name.lower() for name in config["group.coordinator.rebalance.protocols"])

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether the cluster has group.version 1, and this broker is configured for the protocol (KIP-848)."""
        return "consumer" in self._protocols and self.image.features.get(GROUP_VERSION, 0) >= 1

    async def on_image(self, delta: ImageDelta) -> None:
        """Deletes the offsets of deleted topics."""
        topics = tuple(topic.name for topic in delta.deleted_topics)
        if topics:
            self.tell_all(DeleteTopicOffsets(0, topics))

    async def write_marker(self, index: int, marker: Marker) -> None:
        """Writes the marker into that partition, committed, and applied: its offsets count, or are dropped. KafkaError otherwise."""
        await self.ask_partition(index, lambda token: EndTransaction(token, marker))

    def fits_batch(self, group_id: str, offset_count: int) -> bool:
        """False when so many offsets of the group cannot be one batch, whatever their topics are."""
        return offset_count * (OFFSET_BYTES_MIN + len(group_id)) <= self.shard_of(group_id).batch_bytes_max


def _kind(config: BrokerConfig, controller: ActiveController) -> CoordinatorKind[GroupCoordinator]:
    return CoordinatorKind(
        name="group",
        topic=GROUP_METADATA_TOPIC,
        count_key="offsets.topic.num.partitions",
        factor_key="offsets.topic.replication.factor",
        new_machine=lambda: GroupCoordinator(_settings(config), controller.image),
        encode=encode_record,
        decode=decode_record,
        topic_configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            **segment_size(config["offsets.topic.segment.bytes"]),
        },
        commit_ms_max=config["offsets.commit.timeout.ms"],
        on_effect=_log,
    )


def _log(_: Shard[Any], effect: Any) -> None:
    """Logs what a group's operator wants to see, once it is committed."""
    if isinstance(effect, GroupAssigned):
        log.info("group_assigned", group=effect.group_id, epoch=effect.epoch)
        return
    assert isinstance(effect, GroupSettled), "there are no other effects"
    event = "group_stable" if effect.member_count else "group_empty"
    log.info(
        event, group=effect.group_id, generation_id=effect.generation_id, members=effect.member_count, assignor=effect.assignor or None
    )


def _settings(config: BrokerConfig) -> GroupSettings:
    return GroupSettings(
        session_timeout_ms_min=config["group.min.session.timeout.ms"],
        session_timeout_ms_max=config["group.max.session.timeout.ms"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        group_max_size=config["group.max.size"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
        consumer=ConsumerGroupSettings(
            session_timeout_ms=config["group.consumer.session.timeout.ms"],
            session_timeout_ms_min=config["group.consumer.min.session.timeout.ms"],
            session_timeout_ms_max=config["group.consumer.max.session.timeout.ms"],
            heartbeat_interval_ms=config["group.consumer.heartbeat.interval.ms"],
            heartbeat_interval_ms_min=config["group.consumer.min.heartbeat.interval.ms"],
            heartbeat_interval_ms_max=config["group.consumer.max.heartbeat.interval.ms"],
            assignment_interval_ms=config["group.consumer.assignment.interval.ms"],
            assignment_interval_ms_min=config["group.consumer.min.assignment.interval.ms"],
            assignment_interval_ms_max=config["group.consumer.max.assignment.interval.ms"],
            group_max_size=config["group.consumer.max.size"],
            assignors=tuple(config["group.consumer.assignors"]),
            regex_refresh_interval_ms=config["group.consumer.regex.refresh.interval.ms"],
            may_upgrade=config["group.consumer.migration.policy"].lower() in ("upgrade", "bidirectional"),
            may_downgrade=config["group.consumer.migration.policy"].lower() in ("downgrade", "bidirectional"),
        ),
    )
