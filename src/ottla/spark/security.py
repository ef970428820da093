"""How a source or a sink makes itself known to a cluster: the options ``kafka.security.protocol``, ``kafka.ssl.*`` and ``kafka.sasl.*``.

They are the settings of ottla's clients (``ottla.client.security``), and mean the same. Spark pickles options to its workers, so a password
travels as a text: one that hides itself when it is shown. Files are read by each process that connects, the driver's and the workers'.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.security import ClientSecurity, SecuritySettings

PREFIX: Final = "kafka."
MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "security.protocol": ("PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", "PLAINTEXT"),
    "sasl.mechanism": ("PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", ""),
    "sasl.jaas.config": ('Kafka\'s text: ...ScramLoginModule required username="..." password="..."; tokenauth="true" for a token', ""),
    "sasl.plain.username": ("with sasl.plain.password: what sasl.jaas.config says, also for SCRAM", ""),
    "sasl.plain.password": ("with sasl.plain.username", ""),
    "sasl.oauthbearer.token.endpoint.url": ("where OAUTHBEARER gets its tokens", ""),
    "sasl.oauthbearer.client.credentials.client.id": ("the client's id there", ""),
    "sasl.oauthbearer.client.credentials.client.secret": ("the client's secret there", ""),
    "sasl.oauthbearer.scope": ("the scope that is asked for there", ""),
    "ssl.truststore.location": ("a file of the authorities, PEM, PKCS12 or JKS, on each machine that connects", "the system's authorities"),
    "ssl.truststore.type": ("PEM, PKCS12 or JKS; the file's first bytes decide", "JKS"),
    "ssl.truststore.password": ("of a PKCS12 or JKS file", ""),
    "ssl.truststore.certificates": ("the authorities themselves, as PEM; needs no file", ""),
    "ssl.keystore.location": ("a file of the client's key and certificate, for ssl.client.auth, on each machine that connects", ""),
    "ssl.keystore.type": ("PEM, PKCS12 or JKS; the file's first bytes decide", "JKS"),
    "ssl.keystore.password": ("of a PKCS12 or JKS file", ""),
    "ssl.keystore.key": ("the key itself, as PEM", ""),
    "ssl.keystore.certificate.chain": ("the certificate and its chain, as PEM", ""),
    "ssl.key.password": ("of a key that is encrypted", ""),
    "ssl.endpoint.identification.algorithm": ("https: the broker's certificate is for its host; empty: of any host", "https"),
    "ssl.enabled.protocols": ("TLSv1.2, TLSv1.3 or both", "TLSv1.2,TLSv1.3"),
    "ssl.protocol": ("the newest version that is offered", "TLSv1.3"),
    "ssl.cipher.suites": ("Java's names of suites, with commas", "those of OpenSSL"),
}
"""What each setting does, and its default."""
SECRETS: Final = frozenset(
    [
        "sasl.jaas.config",
        "sasl.plain.password",
        "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
    ]
)
REFUSED: Final[Mapping[str, str]] = {
    "security.providers ssl.provider ssl.engine.factory.class ssl.keymanager.algorithm ssl.trustmanager.algorithm "
    "ssl.secure.random.implementation": "TLS is that of Python's ssl module; leave it out",
    "sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class sasl.kerberos.service.name "
    "sasl.kerberos.kinit.cmd": "set sasl.mechanism to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
}
"""Settings of the Java clients, and the ways out."""


class HiddenText(str):
    """A text that shows itself as ``[hidden]`` where it is part of something else."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"

    def __reduce__(self) -> tuple[type[HiddenText], tuple[str]]:
        return HiddenText, (str(self),)


def is_security(name: str) -> bool:
    """True when an option is one of these, in any case of its letters."""
    return name.lower().removeprefix(PREFIX) in MEANINGS


def settings_of(options: Mapping[str, str]) -> SecuritySettings:
    """Returns the settings in the options, by the table's names. KafkaError INVALID_CONFIG for a value that a client does not take."""
    from ottla.client.security import SecuritySettings

    given = {name: str(options[PREFIX + name]) for name in MEANINGS if PREFIX + name in options}
    try:
        return SecuritySettings(**{name.replace(".", "_"): value for name, value in given.items()})  # type: ignore[arg-type]
    except KafkaError as error:
        raise _of_options(error) from None


def check_settings(options: Mapping[str, str]) -> None:
    """Raises KafkaError INVALID_CONFIG for contradictory options; their files are read where a connection is made."""
    if not any(PREFIX + name in options for name in MEANINGS):
        return
    from ottla.client.security import check_security
    from ottla.runtime.world import real_world

    found = settings_of(options)
    try:
        check_security(found, real_world())
    except KafkaError as error:
        raise _of_options(error) from None


def security_of(settings: SecuritySettings) -> ClientSecurity | None:
    """Returns the first steps of this process's connections. KafkaError INVALID_CONFIG for stores that cannot be used."""
    from ottla.client.security import SecuritySettings, security_of
    from ottla.runtime.world import real_world

    if settings == SecuritySettings():
        return None
    world = real_world()
    try:
        security = security_of(settings, lambda path: Path(path).read_bytes(), world)
        if security.tls is not None:
            world.network.check_tls(security.tls)
    except (KafkaError, ValueError) as error:
        raise _of_options(error) from None
    return security


def _of_options(error: KafkaError | ValueError) -> KafkaError:
    """Returns the error with the option's name in place of the setting's."""
    text = error.message if isinstance(error, KafkaError) else f"the kafka.ssl options: {error}"
    is_named = text.startswith(("sasl.", "ssl.", "security."))
    return KafkaError(ErrorCode.INVALID_CONFIG, PREFIX + text if is_named else text)
