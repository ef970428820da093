"""Keys of single topics, groups and client-metrics subscriptions. Most are a broker key under another name."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from ottla.config.definition import LONG_MAX, ConfigKey, Scope, boolean, int32, string, strings
from ottla.config.keys import cluster, groups, logs, share_groups, tiered
from ottla.config.keys.reasons import JAVA, NEW_GROUPS, ONE_BROKER, TIERED

HOUR_MS: Final = 3_600_000
_THROTTLED: Final = r"\*|none|\d+:\d+"

_BROKER_KEYS: Final = {key.name: key for key in (*logs.KEYS, *cluster.KEYS, *groups.KEYS, *share_groups.KEYS, *tiered.KEYS)}


def _derived(name: str, broker_key: str, **differing: Any) -> ConfigKey:
    """The broker key under another name, as far as nothing else is said."""
    return replace(_BROKER_KEYS[broker_key], name=name, broker_key=broker_key, scope=Scope.CLUSTER_WIDE, **differing)


def _of_group(name: str, **differing: Any) -> ConfigKey:
    return _derived(name, f"group.{name}", **differing)


TOPIC_KEYS: Final[tuple[ConfigKey, ...]] = (
    _derived("cleanup.policy", "log.cleanup.policy"),
    _derived("compression.gzip.level", "compression.gzip.level"),
    _derived("compression.lz4.level", "compression.lz4.level"),
    _derived("compression.type", "compression.type"),
    _derived("compression.zstd.level", "compression.zstd.level"),
    _derived("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _derived("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    _derived("flush.messages", "log.flush.interval.messages"),
    _derived("flush.ms", "log.flush.interval.ms", default=LONG_MAX, low=0),
    _derived("index.interval.bytes", "log.index.interval.bytes"),
    _derived("local.retention.bytes", "log.local.retention.bytes"),
    _derived("local.retention.ms", "log.local.retention.ms"),
    _derived("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _derived("max.message.bytes", "message.max.bytes"),
    _derived("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _derived("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _derived("message.timestamp.type", "log.message.timestamp.type"),
    _derived("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _derived("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _derived("min.insync.replicas", "min.insync.replicas"),
    _derived("preallocate", "log.preallocate"),
    _derived("retention.bytes", "log.retention.bytes"),
    _derived("retention.ms", "log.retention.ms", default=168 * HOUR_MS, low=-1),
    _derived("segment.bytes", "log.segment.bytes"),
    _derived("segment.index.bytes", "log.index.size.max.bytes"),
    _derived("segment.jitter.ms", "log.roll.jitter.ms", default=0, low=0),
    _derived("segment.ms", "log.roll.ms", default=168 * HOUR_MS, low=1),
    _derived("unclean.leader.election.enable", "unclean.leader.election.enable"),
    strings(
        "follower.replication.throttled.replicas",
        [],
        "Replicas whose fetching is throttled: partition:broker, several with commas, or * for all.",
        pattern=_THROTTLED,
        without_effect=ONE_BROKER,
    ),
    strings(
        "leader.replication.throttled.replicas",
        [],
        "Replicas to which sending is throttled: partition:broker, several with commas, or * for all.",
        pattern=_THROTTLED,
        without_effect=ONE_BROKER,
    ),
    int32("internal.segment.bytes", None, "Segment size without a lower bound; stronger than segment.bytes.", is_internal=True),
    boolean("remote.storage.enable", False, "Whether closed segments of this topic may be kept in tiered storage.", without_effect=TIERED),
    boolean("remote.log.copy.disable", False, "Whether tiered storage of this topic takes no more copies.", without_effect=TIERED),
    boolean(
        "remote.log.delete.on.disable",
        False,
        "Whether what is in tiered storage goes when it is switched off for this topic.",
        without_effect=TIERED,
    ),
)

GROUP_KEYS: Final[tuple[ConfigKey, ...]] = (
    _of_group("consumer.assignment.interval.ms"),
    _of_group("consumer.heartbeat.interval.ms"),
    _of_group("consumer.session.timeout.ms"),
    _of_group("share.assignment.interval.ms"),
    _of_group("share.delivery.count.limit", high=None),
    _of_group("share.heartbeat.interval.ms"),
    _of_group("share.partition.max.record.locks", high=None),
    _of_group("share.record.lock.duration.ms", high=None),
    _of_group("share.session.timeout.ms"),
    _of_group("streams.assignment.interval.ms"),
    _of_group("streams.heartbeat.interval.ms"),
    _of_group("streams.initial.rebalance.delay.ms"),
    _of_group("streams.num.standby.replicas"),
    _of_group("streams.session.timeout.ms"),
    string(
        "share.auto.offset.reset",
        "latest",
        "Where this share group begins: latest, earliest or by_duration:PnDTnHnMn.nS.",
        pattern=r"latest|earliest|by_duration:P(?=[\dT])(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?",
        without_effect=NEW_GROUPS,
    ),
    string(
        "share.isolation.level",
        "read_uncommitted",
        "Whether this share group sees records of open transactions.",
        choices=("read_committed", "read_uncommitted"),
        without_effect=NEW_GROUPS,
    ),
    boolean(
        "share.renew.acknowledge.enable",
        True,
        "Whether consumers of this share group may hold a record for longer by asking.",
        without_effect=NEW_GROUPS,
    ),
)

CLIENT_METRICS_KEYS: Final[tuple[ConfigKey, ...]] = (
    int32("interval.ms", 300_000, "How often clients push their metrics.", low=100, high=HOUR_MS, without_effect=JAVA),
    strings("match", [], "Which clients push: name=regular expression, several with commas.", without_effect=JAVA),
    strings("metrics", [], "Prefixes of the names of metrics that are pushed.", without_effect=JAVA),
)
