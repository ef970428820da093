"""The controller, the metadata log, replication and leadership."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import LONG_MAX, ConfigKey, Scope, boolean, int32, int64, string, strings

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ALONE: Final = "org.apache.kafka.common.replica.LeaderSelector"
"""Kafka's classes. Each name selects a rule of the same effect: no class is loaded."""

KEYS: Final[tuple[ConfigKey, ...]] = (
    strings("controller.listener.names", None, "Listeners of the controller: brokers and controllers talk over them."),
    strings("controller.quorum.voters", [], "The voters: id@host:port, comma-separated. Without it a broker is its own controller."),
    strings(
        "controller.quorum.bootstrap.servers",
        [],
        "Servers that know the voters, host:port, comma-separated: for a broker without controller.quorum.voters.",
    ),
    int32(
        "controller.quorum.election.timeout.ms",
        1000,
        "How long a voter waits for votes before it starts another election.",
        low=0,
    ),
    int32("controller.quorum.election.backoff.max.ms", 1000, "The longest pause between two elections.", low=0),
    int32(
        "controller.quorum.fetch.timeout.ms",
        2000,
        "How long a follower of the metadata log waits for an answer before it starts an election.",
        low=0,
    ),
    int32(
        "controller.quorum.fetch.max.bytes",
        1048576,
        "The most bytes that one fetch of the metadata log returns.",
        low=1,
    ),
    int32(
        "controller.quorum.fetch.snapshot.max.bytes",
        1048576,
        "The most bytes that one fetch of a metadata snapshot returns.",
        low=1,
    ),
    int32(
        "controller.quorum.request.timeout.ms",
        2000,
        "How long a voter waits for the answer of another voter.",
        low=0,
    ),
    int32("controller.quorum.retry.backoff.ms", 20, "The pause before a voter repeats a request.", low=0),
    int32("broker.heartbeat.interval.ms", 2000, "How often a broker sends a heartbeat to the controller."),
    int32("broker.session.timeout.ms", 9000, "How long a broker may be silent before it is fenced."),
    int32("initial.broker.registration.timeout.ms", 60000, "How long a starting broker tries to register."),
    string("metadata.log.dir", None, "The directory of the metadata log; the first log directory when absent."),
    int64("metadata.log.max.record.bytes.between.snapshots", 20971520, "Bytes of metadata log between two snapshots.", low=1),
    int64(
        "metadata.log.max.snapshot.interval.ms",
        3600000,
        "The longest time between two metadata snapshots while the log grows; 0 for no limit.",
        low=0,
    ),
    int32("metadata.log.segment.bytes", 1073741824, "Segment size of the metadata log.", low=8388608),
    int64("metadata.log.segment.ms", 604800000, "Age at which a segment of the metadata log is closed."),
    int32(
        "internal.metadata.log.segment.bytes",
        None,
        "Segment size of the metadata log, without a lower bound.",
        is_internal=True,
    ),
    int32("min.insync.replicas", 1, "Replicas that must be in sync for acks=all to be accepted.", low=1, scope=Scope.CLUSTER_WIDE),
    boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may lead when no other is left, which loses data.",
        scope=Scope.CLUSTER_WIDE,
    ),
    int64(
        "unclean.leader.election.interval.ms",
        300000,
        "How often the controller looks for partitions without a leader.",
        low=1,
        is_internal=True,
    ),
    boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether the controller moves leaderships back to the preferred replicas.",
    ),
    int64(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller checks the balance of leaderships.",
        low=1,
    ),
    int32(
        "num.replica.fetchers",
        1,
        "Connections over which a follower fetches from one leader.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32("replica.fetch.backoff.ms", 1000, "The pause after a failed fetch of a follower.", low=0),
    int32(
        "replica.fetch.max.bytes",
        1048576,
        "The most bytes of one partition that a follower's fetch returns.",
        low=0,
    ),
    int32("replica.fetch.min.bytes", 1, "The fewest bytes that a follower's fetch waits for."),
    int32("replica.fetch.response.max.bytes", 10485760, "The most bytes that a follower's fetch returns.", low=0),
    int32("replica.fetch.wait.max.ms", 500, "How long a follower's fetch waits for data."),
    int64("replica.lag.time.max.ms", 30000, "How long a follower may lag before it leaves the in-sync replicas."),
    string(
        "replica.selector.class",
        None,
        f"Which replica a consumer that names its rack reads from: {RACK_AWARE}, one of its rack, or the leader.",
        choices=(LEADER_ALONE, RACK_AWARE),
    ),
    int32("replica.socket.receive.buffer.bytes", 65536, "SO_RCVBUF of connections between replicas."),
    int32("replica.socket.timeout.ms", 30000, "How long a follower waits for the leader's answer."),
    int64(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second that leaders send to throttled replicas.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
        is_shown_when_set=True,
    ),
    int64(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Bytes a second that followers fetch for throttled replicas.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
        is_shown_when_set=True,
    ),
    int64(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "Bytes a second when replicas move between log directories.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
        is_shown_when_set=True,
    ),
    int32("replication.quota.window.num", 11, "Windows over which the rate of replication is measured.", low=1),
    int32("replication.quota.window.size.seconds", 1, "Length of one window of the rate of replication.", low=1),
    int32(
        "alter.log.dirs.replication.quota.window.num",
        11,
        "Windows over which the rate of moves between log directories is measured.",
        low=1,
    ),
    int32(
        "alter.log.dirs.replication.quota.window.size.seconds",
        1,
        "Length of one window of the rate of moves between log directories.",
        low=1,
    ),
)
