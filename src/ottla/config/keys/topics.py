"""Keys of single topics. Most are a broker key under another name."""

from __future__ import annotations

from typing import Any, Final

from ottla.config.definition import LONG_MAX, ConfigKey, int32, strings
from ottla.config.keys import cluster, logs, without_effect
from ottla.config.keys.derived import derived

HOUR_MS: Final = 3_600_000
_THROTTLED: Final = r"\*|none|\d+:\d+"
_BROKER_KEYS: Final = {key.name: key for key in (*logs.KEYS, *cluster.KEYS, *without_effect.BROKER_KEYS)}


def _derived(name: str, broker_key: str, **differing: Any) -> ConfigKey:
    return derived(_BROKER_KEYS[broker_key], name, **differing)


KEYS: Final[tuple[ConfigKey, ...]] = (
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
    _derived(
        "retention.ms",
        "log.retention.ms",
        default=168 * HOUR_MS,
        low=-1,
        doc="Age after which closed segments may be deleted; -1 keeps them.",
    ),
    _derived("segment.bytes", "log.segment.bytes"),
    _derived("segment.index.bytes", "log.index.size.max.bytes"),
    _derived("segment.jitter.ms", "log.roll.jitter.ms", default=0, low=0),
    _derived("segment.ms", "log.roll.ms", default=168 * HOUR_MS, low=1, doc="Age at which a segment is closed."),
    _derived("unclean.leader.election.enable", "unclean.leader.election.enable"),
    strings(
        "follower.replication.throttled.replicas",
        [],
        "Replicas whose fetching is throttled: partition:broker, comma-separated, or * for all.",
        pattern=_THROTTLED,
    ),
    strings(
        "leader.replication.throttled.replicas",
        [],
        "Replicas to which sending is throttled: partition:broker, comma-separated, or * for all.",
        pattern=_THROTTLED,
    ),
    int32("internal.segment.bytes", None, "Segment size without a lower bound; takes precedence over segment.bytes.", is_internal=True),
)
