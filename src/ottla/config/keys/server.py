"""The broker itself: its name, listeners, connections, limits, topics by default."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import INT_MAX, LONG_MAX, ConfigKey, Scope, boolean, class_name, int32, int64, string, strings
from ottla.config.keys.reasons import DESIGN, JAVA, NOT_YET, ONE_BROKER, SECURITY

KEYS: Final[tuple[ConfigKey, ...]] = (
    strings(
        "process.roles",
        None,
        "The parts this process plays: broker, or broker and controller. A controller alone is not served.",
        choices=("broker", "controller"),
    ),
    int32("node.id", 1, "The broker's id in the cluster.", low=0),
    int32("broker.id", -1, "Older name of node.id; used when node.id is not given."),
    string("broker.rack", None, "The rack (or host) of this broker; replicas of a partition are spread over racks."),
    strings(
        "listeners",
        ["PLAINTEXT://127.0.0.1:9092"],
        "Where the broker listens: NAME://host:port, several with commas. Kafka's default is every interface, ottla's is loopback.",
        scope=Scope.PER_BROKER,
    ),
    strings("advertised.listeners", None, "What clients are told to connect to; the listeners when absent."),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name speaks: NAME:PROTOCOL, several with commas.",
        scope=Scope.PER_BROKER,
    ),
    string(
        "inter.broker.listener.name",
        None,
        "The listener that brokers use among themselves; it is kept open to them when the broker is full.",
    ),
    string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "The security protocol that brokers use among themselves, when no listener is named for it.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        without_effect=ONE_BROKER,
    ),
    strings("early.start.listeners", None, "Listeners that open before the authorizer is ready.", without_effect=SECURITY),
    int32(
        "num.network.threads",
        3,
        "Threads that may sit in a socket call which waits: a cold sendfile, a large TLS write.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "num.io.threads",
        8,
        "Threads that carry out file operations which wait: fsync, open, rename, cold reads.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32("background.threads", 10, "Threads for housekeeping.", low=1, scope=Scope.CLUSTER_WIDE, without_effect=DESIGN),
    int32(
        "queued.max.requests",
        500,
        "Requests that may be dispatched and not yet answered; beyond it sockets are not read.",
        low=1,
    ),
    int64(
        "queued.max.request.bytes",
        -1,
        "Bytes of requests that may be dispatched and not yet answered; -1 means no limit.",
        without_effect=DESIGN,
    ),
    int32("request.timeout.ms", 30000, "How long a broker waits for the answer of another broker.", without_effect=ONE_BROKER),
    int32("socket.send.buffer.bytes", 102400, "SO_SNDBUF of client sockets; -1 leaves it to the system.", without_effect=DESIGN),
    int32("socket.receive.buffer.bytes", 102400, "SO_RCVBUF of client sockets; -1 leaves it to the system.", without_effect=DESIGN),
    int32("socket.request.max.bytes", 104857600, "The largest request read.", low=1),
    int32("socket.listen.backlog.size", 50, "Connections that may wait to be accepted.", low=1, without_effect=NOT_YET),
    int32("max.connections", INT_MAX, "Connections that the broker holds at most.", low=0, scope=Scope.CLUSTER_WIDE),
    int32("max.connections.per.ip", INT_MAX, "Connections from one address at most.", low=0, scope=Scope.CLUSTER_WIDE),
    string(
        "max.connections.per.ip.overrides",
        "",
        "Other limits for single hosts: host:count, several with commas.",
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "max.connection.creation.rate",
        INT_MAX,
        "Connections accepted in a second at most.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
    ),
    int64("connections.max.idle.ms", 600000, "Idle connections are closed after this time; a negative value keeps them."),
    int32(
        "connection.failed.authentication.delay.ms",
        100,
        "How long a connection that failed to authenticate stays open before it is closed.",
        low=0,
        without_effect=SECURITY,
    ),
    int64(
        "socket.connection.setup.timeout.ms",
        10000,
        "How long a connection to another broker may take to be set up, at first.",
        without_effect=ONE_BROKER,
    ),
    int64(
        "socket.connection.setup.timeout.max.ms",
        30000,
        "The most that the time for setting up a connection grows to.",
        without_effect=ONE_BROKER,
    ),
    boolean("controlled.shutdown.enable", True, "Whether a stopping broker hands its leaderships over first.", without_effect=ONE_BROKER),
    boolean("auto.create.topics.enable", True, "Whether asking for an unknown topic creates it."),
    boolean("delete.topic.enable", True, "Whether topics may be deleted."),
    int32("num.partitions", 1, "Partitions of a topic created without a count.", low=1),
    int32("default.replication.factor", 1, "Replicas of a topic created without a factor."),
    int32(
        "max.request.partition.size.limit",
        2000,
        "Partitions that one DescribeTopicPartitions answer holds at most.",
        low=1,
    ),
    class_name("create.topic.policy.class.name", None, "A Java class that may refuse new topics.", without_effect=JAVA),
    class_name("alter.config.policy.class.name", None, "A Java class that may refuse changes of configuration.", without_effect=JAVA),
    strings(
        "config.providers", [], "Java classes that fetch values from elsewhere, by alias.", scope=Scope.CLUSTER_WIDE, without_effect=JAVA
    ),
    strings("metric.reporters", [], "Java classes that are given the broker's metrics.", scope=Scope.CLUSTER_WIDE, without_effect=JAVA),
    strings("kafka.metrics.reporters", [], "Java classes that are given the metrics of the older library.", without_effect=JAVA),
    int32("kafka.metrics.polling.interval.secs", 10, "How often reporters of the older library are called.", low=1, without_effect=JAVA),
    int32("metrics.num.samples", 2, "Samples over which a metric's rate is taken.", low=1, without_effect=DESIGN),
    string("metrics.recording.level", "INFO", "How many metrics are recorded: INFO, DEBUG or TRACE.", without_effect=DESIGN),
    int64("metrics.sample.window.ms", 30000, "The length of one sample of a metric.", low=1, without_effect=DESIGN),
    int32("telemetry.max.bytes", 1048576, "The largest telemetry message taken from a client.", low=1, without_effect=JAVA),
    class_name("client.quota.callback.class", None, "A Java class that decides which quota a client has.", without_effect=JAVA),
    int32("quota.window.num", 11, "Windows over which a client's rate is measured.", low=1),
    int32("quota.window.size.seconds", 1, "Length of one window of a client's rate.", low=1),
    int32(
        "controller.quota.window.num", 11, "Windows over which the rate of changes to topics is measured.", low=1, without_effect=NOT_YET
    ),
    int32(
        "controller.quota.window.size.seconds", 1, "Length of one window of the rate of changes to topics.", low=1, without_effect=NOT_YET
    ),
    int32("fetch.max.bytes", 57671680, "The most that one fetch answers with.", low=1024),
    int32("max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions kept.", low=0),
    int32(
        "fetch.purgatory.purge.interval.requests",
        1000,
        "Waiting fetches after which finished ones are cleared away.",
        without_effect=DESIGN,
    ),
    int32(
        "producer.purgatory.purge.interval.requests",
        1000,
        "Waiting produce requests after which finished ones are cleared away.",
        without_effect=DESIGN,
    ),
    int32(
        "delete.records.purgatory.purge.interval.requests",
        1,
        "Waiting DeleteRecords requests after which finished ones are cleared away.",
        without_effect=DESIGN,
    ),
    int32(
        "share.fetch.purgatory.purge.interval.requests",
        1000,
        "Waiting share fetches after which finished ones are cleared away.",
        without_effect=DESIGN,
    ),
    boolean(
        "unstable.api.versions.enable",
        False,
        "Whether API versions that are not final are listed.",
        is_internal=True,
        without_effect=DESIGN,
    ),
    boolean(
        "unstable.feature.versions.enable",
        False,
        "Whether feature levels that are not final may be set.",
        is_internal=True,
        without_effect=DESIGN,
    ),
    int64(
        "server.max.startup.time.ms",
        LONG_MAX,
        "How long the start may take before the process gives up.",
        low=0,
        is_internal=True,
        without_effect=DESIGN,
    ),
    string(
        "ottla.admin.listener",
        None,
        "Where metrics, health and readiness are served over HTTP: host:port; without a host on loopback. A key of ottla's own.",
    ),
)
