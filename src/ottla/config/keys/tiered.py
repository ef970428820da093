"""Tiered storage (KIP-405)."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import LONG_MAX, ConfigKey, Scope, boolean, double, int32, int64, string
from ottla.config.keys.reasons import TIERED

KEYS: Final[tuple[ConfigKey, ...]] = (
    boolean("remote.log.storage.system.enable", False, "Whether closed segments may be kept in tiered storage.", without_effect=TIERED),
    string("remote.log.storage.manager.class.name", None, "A Java class that stores segments elsewhere.", without_effect=TIERED),
    string("remote.log.storage.manager.class.path", None, "The class path of that class.", without_effect=TIERED),
    string("remote.log.storage.manager.impl.prefix", "rsm.config.", "The prefix of that class's own keys.", without_effect=TIERED),
    string(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "A Java class that remembers what is stored elsewhere.",
        without_effect=TIERED,
    ),
    string("remote.log.metadata.manager.class.path", None, "The class path of that class.", without_effect=TIERED),
    string("remote.log.metadata.manager.impl.prefix", "rlmm.config.", "The prefix of that class's own keys.", without_effect=TIERED),
    string("remote.log.metadata.manager.listener.name", None, "The listener that class connects to.", without_effect=TIERED),
    int32(
        "remote.log.metadata.custom.metadata.max.bytes",
        128,
        "The most bytes of custom metadata that a plug-in may store for a segment.",
        low=0,
        without_effect=TIERED,
    ),
    int64(
        "remote.log.index.file.cache.total.size.bytes",
        1073741824,
        "Size of the cache of indexes fetched from tiered storage.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
    int64(
        "remote.log.index.file.cache.ttl.ms",
        900000,
        "How long an unused index stays in that cache.",
        low=-1,
        is_internal=True,
        without_effect=TIERED,
    ),
    int32("remote.log.manager.thread.pool.size", 2, "Threads that plan copies to tiered storage.", low=1, without_effect=TIERED),
    int32(
        "remote.log.manager.copier.thread.pool.size",
        10,
        "Threads that copy segments to tiered storage.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
    int32(
        "remote.log.manager.expiration.thread.pool.size",
        10,
        "Threads that delete expired segments from tiered storage.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
    int32(
        "remote.log.manager.follower.thread.pool.size",
        2,
        "Threads that read tiered storage for followers.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
    int64("remote.log.manager.task.interval.ms", 30000, "How often the copies of a partition are checked.", low=1, without_effect=TIERED),
    int64(
        "remote.log.manager.task.retry.backoff.ms",
        500,
        "The first pause after a failed copy.",
        low=1,
        is_internal=True,
        without_effect=TIERED,
    ),
    int64(
        "remote.log.manager.task.retry.backoff.max.ms",
        30000,
        "The longest pause after a failed copy.",
        low=1,
        is_internal=True,
        without_effect=TIERED,
    ),
    double(
        "remote.log.manager.task.retry.jitter",
        0.2,
        "Randomness of the pause after a failed copy.",
        low=0,
        high=0.5,
        is_internal=True,
        without_effect=TIERED,
    ),
    int64(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        "Bytes a second copied to tiered storage.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
    int32(
        "remote.log.manager.copy.quota.window.num", 11, "Windows over which the rate of copies is measured.", low=1, without_effect=TIERED
    ),
    int32(
        "remote.log.manager.copy.quota.window.size.seconds", 1, "Length of one window of the rate of copies.", low=1, without_effect=TIERED
    ),
    int64(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG_MAX,
        "Bytes a second fetched from tiered storage.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
    int32(
        "remote.log.manager.fetch.quota.window.num", 11, "Windows over which the rate of fetches is measured.", low=1, without_effect=TIERED
    ),
    int32(
        "remote.log.manager.fetch.quota.window.size.seconds",
        1,
        "Length of one window of the rate of fetches.",
        low=1,
        without_effect=TIERED,
    ),
    int32(
        "remote.log.reader.threads", 10, "Threads that read from tiered storage.", low=1, scope=Scope.CLUSTER_WIDE, without_effect=TIERED
    ),
    int32(
        "remote.log.reader.max.pending.tasks", 100, "The most reads from tiered storage that may be queued.", low=1, without_effect=TIERED
    ),
    int32(
        "remote.fetch.max.wait.ms",
        500,
        "How long a fetch waits for tiered storage.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
    int64(
        "remote.list.offsets.request.timeout.ms",
        30000,
        "How long ListOffsets waits for tiered storage.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
    int64(
        "log.local.retention.ms",
        -2,
        "Age after which copied segments are deleted from the local disk; -2 is log.retention.ms.",
        low=-2,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
    int64(
        "log.local.retention.bytes",
        -2,
        "Size above which copied segments are deleted from the local disk; -2 is log.retention.bytes.",
        low=-2,
        scope=Scope.CLUSTER_WIDE,
        without_effect=TIERED,
    ),
)
