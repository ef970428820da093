"""Keys whose dynamic values Kafka checks beyond each key's own type and bounds."""

from __future__ import annotations

from typing import Final

CLEANER_THREADS: Final = "log.cleaner.threads"
THREADS: Final = (
    *("background.threads", CLEANER_THREADS, "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir"),
    *("num.replica.fetchers", "remote.log.manager.copier.thread.pool.size", "remote.log.manager.expiration.thread.pool.size"),
    *("remote.log.manager.follower.thread.pool.size", "remote.log.reader.threads"),
)
"""A change halves or doubles them at most."""
OF_LISTENERS: Final = frozenset(
    {
        *("ssl.key.password", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password"),
        *("ssl.keystore.type", "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"),
    }
)
"""Changed for one listener at a time, under its prefix."""
LISTENER: Final = "listener.name."


def is_of_store(key: str) -> bool:
    """True when the key says where a listener's keys or certificates are."""
    return key.startswith(LISTENER) and key.removeprefix(LISTENER).partition(".")[2] in OF_LISTENERS
