"""ZooKeeper mode, as Kafka 3.9 has it: with ``zookeeper.connect``, and without ``process.roles``."""

from __future__ import annotations

from typing import Final

from ottla.config.definition import ConfigKey, boolean, int32, password, string, strings

KEYS: Final[tuple[ConfigKey, ...]] = (
    string("zookeeper.connect", None, "The ZooKeeper that has the cluster: host:port,host:port/chroot. Without it there is none."),
    int32("zookeeper.connection.timeout.ms", None, "How long a starting broker waits for ZooKeeper; the session timeout when absent."),
    int32("zookeeper.session.timeout.ms", 18000, "How long a broker may be silent before ZooKeeper ends its session."),
    int32("zookeeper.max.in.flight.requests", 10, "Requests that wait for ZooKeeper's answer at a time, when many znodes are read.", low=1),
    boolean("broker.id.generation.enable", True, "Whether a broker without broker.id gets one of its own, in ZooKeeper mode."),
    int32("reserved.broker.max.id", 1000, "The highest broker.id that may be set; generated ones are above it, in ZooKeeper mode.", low=0),
    boolean("zookeeper.set.acl", False, "Whether znodes are made so that only brokers may change them."),
    boolean("zookeeper.ssl.client.enable", False, "Whether ZooKeeper is reached by TLS."),
    string("zookeeper.ssl.keystore.location", None, "The file with this broker's private key and certificates, for ZooKeeper."),
    password("zookeeper.ssl.keystore.password", None, "The password of the private key in that file."),
    string("zookeeper.ssl.keystore.type", None, "Form of the key store: PEM. By the ending of its name when absent."),
    string("zookeeper.ssl.truststore.location", None, "The file with the certificates that ZooKeeper's is checked against."),
    string("zookeeper.ssl.truststore.type", None, "Form of the trust store: PEM. By the ending of its name when absent."),
    string("zookeeper.ssl.protocol", "TLSv1.2", "The version of TLS to ZooKeeper; 1.2 and 1.3 where no key says which."),
    strings("zookeeper.ssl.enabled.protocols", None, "The versions of TLS to ZooKeeper: TLSv1.2, TLSv1.3."),
    strings("zookeeper.ssl.cipher.suites", None, "The cipher suites of TLS to ZooKeeper, which is refused: OpenSSL's are offered."),
    string(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "HTTPS",
        "HTTPS: ZooKeeper's certificate has to be of the host in zookeeper.connect; empty: of any.",
    ),
    boolean("zookeeper.ssl.crl.enable", False, "Whether lists of revoked certificates are asked for, which is refused."),
    boolean("zookeeper.ssl.ocsp.enable", False, "Whether it is asked if a certificate is revoked, which is refused."),
    boolean(
        "ottla.zookeeper.group.registry",
        False,
        "Whether coordinators write their groups below /consumers, as those of Kafka 0.8 did themselves. A key of ottla's own.",
    ),
    int32(
        "ottla.zookeeper.request.bytes.max",
        1_000_000,
        "The largest request to ZooKeeper; below what its servers take, their jute.maxbuffer. A key of ottla's own.",
        low=1000,
    ),
    password(
        "ottla.zookeeper.credentials",
        None,
        "The user and password, as user:password, by which ZooKeeper knows the brokers (scheme digest). A key of ottla's own.",
    ),
)
