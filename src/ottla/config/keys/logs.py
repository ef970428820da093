"""Logs: directories, segments, retention, flushing, compaction, idempotent producers."""

from __future__ import annotations

import posixpath
from typing import Final

from ottla.config.definition import DOUBLE_MAX, LONG_MAX, ConfigKey, Scope, boolean, double, int32, int64, string, strings
from ottla.config.forms import at_least, distinct_directories, no_retention_of_zero

KEYS: Final[tuple[ConfigKey, ...]] = (
    strings(
        "log.dir",
        [posixpath.join("/tmp", "kafka-logs")],
        "The log directory, when log.dirs is not given. Kafka's default is reported, and not used.",
        check=distinct_directories("log.dir"),
    ),
    strings(
        "log.dirs",
        None,
        "The log directories. Kafka's default is one that the system may empty; ottla's is in the user's data directory.",
        check=distinct_directories("log.dirs"),
    ),
    int64(
        "log.dir.failure.timeout.ms",
        30000,
        "How long a broker may fail to report a failed log directory that holds leaders before it stops.",
        low=1,
    ),
    int32("message.max.bytes", 1048588, "The largest record batch accepted.", low=0, scope=Scope.CLUSTER_WIDE),
    string(
        "compression.type",
        "producer",
        "The codec in which batches are stored; 'producer' keeps the producer's.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "compression.gzip.level",
        -1,
        "Level of gzip, where the broker compresses; -1 is the library's own choice.",
        low=-1,
        high=9,
        refused=(0,),
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "compression.lz4.level",
        9,
        "Level of LZ4, where the broker compresses.",
        low=1,
        high=17,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "compression.zstd.level",
        3,
        "Level of Zstandard, where the broker compresses.",
        low=-131072,
        high=22,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "log.segment.bytes",
        1073741824,
        "Size at which a segment is closed and a new one started. Kafka 4.3 requires at least 1 MiB.",
        low=1024,
        scope=Scope.CLUSTER_WIDE,
    ),
    int64(
        "log.roll.ms",
        None,
        "Age at which a segment is closed; log.roll.hours when absent. At least 1.",
        scope=Scope.CLUSTER_WIDE,
        check=at_least("log.roll.ms", 1),
    ),
    int32("log.roll.hours", 168, "Age at which a segment is closed, in hours.", low=1),
    int64(
        "log.roll.jitter.ms",
        None,
        "The largest jitter subtracted from log.roll.ms, by log and segment; log.roll.jitter.hours when absent.",
        scope=Scope.CLUSTER_WIDE,
        check=at_least("log.roll.jitter.ms", 0),
    ),
    int32("log.roll.jitter.hours", 0, "The largest jitter subtracted from log.roll.hours, by log and segment.", low=0),
    int32("log.index.size.max.bytes", 10485760, "Size at which an offset index is full.", low=4, scope=Scope.CLUSTER_WIDE),
    int32("log.index.interval.bytes", 4096, "Bytes of log between two index entries.", low=0, scope=Scope.CLUSTER_WIDE),
    strings(
        "log.cleanup.policy",
        ["delete"],
        "The retention policy for old data: delete, compact or both.",
        choices=("compact", "delete"),
        scope=Scope.CLUSTER_WIDE,
    ),
    int64(
        "log.retention.ms",
        None,
        "Age after which closed segments may be deleted; log.retention.minutes when absent, -1 keeps them. A broker refuses 0.",
        scope=Scope.CLUSTER_WIDE,
        check=no_retention_of_zero("log.retention.ms"),
    ),
    int32(
        "log.retention.minutes",
        None,
        "Age after which closed segments may be deleted, in minutes; log.retention.hours when absent. A broker refuses 0.",
        check=no_retention_of_zero("log.retention.minutes"),
    ),
    int32(
        "log.retention.hours",
        168,
        "Age after which closed segments may be deleted, in hours. A broker refuses 0.",
        check=no_retention_of_zero("log.retention.hours"),
    ),
    int64(
        "log.retention.bytes",
        -1,
        "Size of a partition above which closed segments may be deleted; -1 for no limit.",
        scope=Scope.CLUSTER_WIDE,
    ),
    int64("log.retention.check.interval.ms", 300000, "How often the broker looks for segments to delete.", low=1),
    int64(
        "log.segment.delete.delay.ms",
        60000,
        "How long a deleted file stays on disk under its .deleted name.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
    ),
    string(
        "log.message.timestamp.type",
        "CreateTime",
        "Whose clock sets record timestamps: the producer's or the broker's.",
        choices=("CreateTime", "LogAppendTime"),
        scope=Scope.CLUSTER_WIDE,
    ),
    int64(
        "log.message.timestamp.before.max.ms", LONG_MAX, "How far a record's timestamp may be in the past.", low=0, scope=Scope.CLUSTER_WIDE
    ),
    int64(
        "log.message.timestamp.after.max.ms", 3600000, "How far a record's timestamp may be in the future.", low=0, scope=Scope.CLUSTER_WIDE
    ),
    int64(
        "log.flush.interval.messages",
        LONG_MAX,
        "Messages of a partition after which it is fsynced before they are acknowledged.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int64("log.flush.interval.ms", None, "Milliseconds that a message may wait for its fsync.", scope=Scope.CLUSTER_WIDE),
    int64("log.flush.scheduler.interval.ms", LONG_MAX, "How often the broker looks for logs to fsync."),
    boolean("log.cleaner.enable", True, "Whether compaction runs at all."),
    int64(
        "log.cleaner.backoff.ms",
        15000,
        "How long the cleaner sleeps when there is no log to clean.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
    ),
    int64(
        "log.cleaner.dedupe.buffer.size",
        134217728,
        "Memory for the map from keys to offsets, in bytes, over all cleaners.",
        scope=Scope.CLUSTER_WIDE,
    ),
    double(
        "log.cleaner.io.buffer.load.factor",
        0.9,
        "The largest fill ratio of the map from keys to offsets.",
        scope=Scope.CLUSTER_WIDE,
    ),
    double(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE_MAX,
        "The most that cleaners read and write in a second, together.",
        scope=Scope.CLUSTER_WIDE,
    ),
    double(
        "log.cleaner.min.cleanable.ratio",
        0.5,
        "Share of a log that must be uncleaned before it is compacted.",
        low=0,
        high=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int64(
        "log.cleaner.min.compaction.lag.ms",
        0,
        "How long a record stays uncompacted at least.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
    ),
    int64(
        "log.cleaner.max.compaction.lag.ms",
        LONG_MAX,
        "How long a record may stay uncompacted at most.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int64(
        "log.cleaner.delete.retention.ms",
        86400000,
        "How long a tombstone is kept, for consumers that lag.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
    ),
    string(
        "ottla.produce.validation",
        "records",
        "How a produced batch is validated: 'records' decodes every record, as Kafka does; 'headers' trusts the batch header, "
        "and consumers may fail on a batch whose header is wrong. A key of ottla's own.",
        choices=("records", "headers"),
        scope=Scope.CLUSTER_WIDE,
    ),
    int64(
        "ottla.log.scrub.interval.ms",
        604800000,
        "How often all segments are read to verify that they are intact; -1 for never. A key of ottla's own.",
        low=-1,
        scope=Scope.CLUSTER_WIDE,
    ),
    double(
        "ottla.log.scrub.bytes.per.second",
        8388608.0,
        "The most bytes read per second to verify segments. A key of ottla's own.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "producer.id.expiration.ms",
        86400000,
        "How long an idle producer's sequence numbers are remembered.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "producer.id.expiration.check.interval.ms",
        600000,
        "How often idle producers are removed.",
        low=1,
        is_internal=True,
    ),
)
