"""The broker itself: its name, listeners, connections, limits, topics by default."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import INT_MAX, ConfigKey, Scope, boolean, int32, int64, string, strings
from ottla.config.forms import SECURITY_PROTOCOLS, admin_address, connections_by_host, protocol_map
from ottla.errors import ErrorCode, KafkaError

PER_IP: Final = "max.connections.per.ip"
PER_IP_OVERRIDES: Final = "max.connections.per.ip.overrides"

KEYS: Final[tuple[ConfigKey, ...]] = (
    strings(
        "process.roles",
        None,
        "The roles of this process: broker, controller, or both.",
        choices=("broker", "controller"),
    ),
    int32("node.id", 1, "The broker's id in the cluster.", low=0),
    int32("broker.id", -1, "Older name of node.id; used when node.id is not given. Without either, ZooKeeper mode generates one."),
    string("broker.rack", None, "The rack (or host) of this broker; replicas of a partition are spread over racks."),
    strings(
        "listeners",
        ["PLAINTEXT://127.0.0.1:9092"],
        "Where the broker listens: NAME://host:port, comma-separated. Kafka's default is every interface, ottla's is loopback. "
        "Changed in the file, with a restart.",
        scope=Scope.PER_BROKER,
    ),
    strings("advertised.listeners", None, "The addresses advertised to clients; the listeners when absent."),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name: NAME:PROTOCOL, comma-separated.",
        scope=Scope.PER_BROKER,
        check=protocol_map,
    ),
    string(
        "inter.broker.listener.name",
        None,
        "The listener for connections between brokers; it accepts them even at the limit of connections.",
    ),
    string(
        "ottla.failure.detection",
        "connections",
        "How a node finds out that another one has died: 'connections' by the end of a connection and a port that refuses, within "
        "milliseconds; 'timeouts' by silence alone, as Kafka does. A key of ottla's own.",
        choices=("connections", "timeouts"),
    ),
    string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "The security protocol between brokers, when inter.broker.listener.name is absent.",
        choices=SECURITY_PROTOCOLS,
    ),
    strings("early.start.listeners", None, "Listeners that open before the authorizer is ready: controllers' alone."),
    int32(
        "num.network.threads",
        3,
        "Threads for blocking socket calls: a sendfile of uncached data, a large TLS write.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "num.io.threads",
        8,
        "Threads for blocking file operations: fsync, open, rename, reads of uncached data.",
        low=1,
        scope=Scope.CLUSTER_WIDE,
    ),
    int32(
        "queued.max.requests",
        500,
        "Requests that may be dispatched and not yet answered; at the limit, sockets are not read.",
        low=1,
    ),
    int64(
        "queued.max.request.bytes",
        -1,
        "Bytes of requests that may be received, or wait for the disk, at a time; at the limit, sockets are not read. -1 means 32 MiB.",
    ),
    int32("request.timeout.ms", 30000, "How long a broker waits for the answer of another broker."),
    int32(
        "socket.send.buffer.bytes",
        102400,
        "SO_SNDBUF of client sockets; -1 uses the system's default. When absent, ottla uses 320 KiB, which is faster.",
    ),
    int32(
        "socket.receive.buffer.bytes",
        102400,
        "SO_RCVBUF of client sockets; -1 uses the system's default, as does no value.",
    ),
    int32("socket.request.max.bytes", 104857600, "The largest request read.", low=1),
    int32("socket.listen.backlog.size", 50, "Connections that may wait to be accepted. Without a value: 1024.", low=1),
    int32("max.connections", INT_MAX, "The most connections to the broker.", low=0, scope=Scope.CLUSTER_WIDE),
    int32(PER_IP, INT_MAX, "The most connections from one address.", low=0, scope=Scope.CLUSTER_WIDE),
    string(
        PER_IP_OVERRIDES,
        "",
        "Limits for single hosts: host:count, comma-separated. Each address of a named host has the limit.",
        scope=Scope.CLUSTER_WIDE,
        check=connections_by_host,
    ),
    int32(
        "max.connection.creation.rate",
        INT_MAX,
        "The most connections accepted per second.",
        low=0,
        scope=Scope.CLUSTER_WIDE,
    ),
    int64("connections.max.idle.ms", 600000, "Idle connections are closed after this time; a negative value keeps them."),
    int32(
        "connection.failed.authentication.delay.ms",
        100,
        "How long a connection that failed to authenticate stays open before it is closed.",
        low=0,
    ),
    int64(
        "ottla.authentication.timeout.ms",
        10000,
        "How long a connection may take from accept until it has authenticated. A key of ottla's own.",
        low=1,
    ),
    int32(
        "ottla.unauthenticated.connections.max",
        1000,
        "How many connections may be there that have not authenticated; above, the oldest is closed. A key of ottla's own.",
        low=1,
    ),
    int64(
        "socket.connection.setup.timeout.ms",
        10000,
        "How long setting up a connection to another broker may take, at first.",
    ),
    int64(
        "socket.connection.setup.timeout.max.ms",
        30000,
        "The longest time for setting up a connection, after repeated failures.",
    ),
    boolean("controlled.shutdown.enable", True, "Whether a broker hands over its leaderships before it stops."),
    boolean("auto.create.topics.enable", True, "Whether a request for an unknown topic creates it."),
    boolean("delete.topic.enable", True, "Whether topics may be deleted."),
    int32("num.partitions", 1, "Partitions of a topic created without a count.", low=1),
    int32("default.replication.factor", 1, "Replicas of a topic created without a factor."),
    int32(
        "max.request.partition.size.limit",
        2000,
        "The most partitions in one DescribeTopicPartitions response.",
        low=1,
    ),
    int32("quota.window.num", 11, "Windows over which a client's rate is measured.", low=1),
    int32("quota.window.size.seconds", 1, "Length of one window of a client's rate.", low=1),
    int32("controller.quota.window.num", 11, "Windows over which the rate of changes to topics is measured.", low=1),
    int32("controller.quota.window.size.seconds", 1, "Length of one window of the rate of changes to topics.", low=1),
    int32("fetch.max.bytes", 57671680, "The most bytes in one fetch response.", low=1024),
    int32("max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions kept.", low=0),
    boolean(
        "unstable.feature.versions.enable",
        False,
        "Whether feature levels that are not final may be set.",
        is_internal=True,
    ),
    string(
        "ottla.admin.listener",
        None,
        "Where metrics, health and readiness are served over HTTP: host:port; without a host on loopback; https://host:port asks who "
        "it is. A key of ottla's own.",
        check=admin_address,
    ),
)


def check_per_ip(count: int, overrides: str) -> None:
    """Raises INVALID_CONFIG where no address may connect: 0 is for those alone that have a number of their own, as in Kafka."""
    if count == 0 and not overrides:
        text = f"{PER_IP}=0 would refuse every connection: name the addresses that may connect in {PER_IP_OVERRIDES}, as address:count"
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
