"""How a client makes itself known: Kafka's settings, and what they come to.

``sasl_jaas_config`` is Kafka's text; ``sasl_plain_username`` and ``sasl_plain_password`` say the same in two settings, as other clients in
Python have them, for each mechanism. What cannot be done is refused when the client is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.settings import Settings, checks_of, choice, function, key_of, secret, text, texts
from ottla.client.token_sources import ENDPOINT, token_source
from ottla.config.jaas import MECHANISMS, SERVER_MECHANISMS, LoginModule, parse_jaas
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import World
from ottla.security.client_exchange import Credentials, OAuthCredentials
from ottla.security.oauthbearer import OAUTHBEARER
from ottla.security.tls_settings import client_of, paths_of
from ottla.tls import TLS_VERSIONS, TlsClient
from ottla.types import Secret

PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_NAMED: Final = ("sasl_jaas_config", "sasl_plain_username", "sasl_plain_password")
_SASL: Final = ("sasl_mechanism", *_NAMED, "sasl_oauth_token", *ENDPOINT)


@dataclass(frozen=True)
class SecuritySettings(Settings):
    """The settings by which all clients identify themselves."""

    security_protocol: str = choice("plaintext", PROTOCOLS)
    sasl_mechanism: str | None = text(None)
    sasl_jaas_config: Secret | None = secret()
    sasl_plain_username: str | None = text(None)
    sasl_plain_password: Secret | None = secret()
    sasl_oauth_token: Callable[[], object] | None = function(is_shown=False)
    """Of OAUTHBEARER: gives a token, or something to be awaited for one, for each connection."""
    sasl_oauthbearer_token_endpoint_url: str | None = text(None)
    sasl_oauthbearer_client_credentials_client_id: str | None = text(None)
    sasl_oauthbearer_client_credentials_client_secret: Secret | None = secret()
    sasl_oauthbearer_scope: str | None = text(None)
    ssl_truststore_location: str | None = text(None)
    ssl_truststore_type: str = text("JKS")
    ssl_truststore_password: Secret | None = secret()
    ssl_truststore_certificates: Secret | None = secret()
    ssl_keystore_location: str | None = text(None)
    ssl_keystore_type: str = text("JKS")
    ssl_keystore_password: Secret | None = secret()
    ssl_keystore_key: Secret | None = secret()
    ssl_keystore_certificate_chain: Secret | None = secret()
    ssl_key_password: Secret | None = secret()
    ssl_endpoint_identification_algorithm: str = text("https")
    ssl_enabled_protocols: tuple[str, ...] = texts(TLS_VERSIONS)
    ssl_protocol: str = text("TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = texts()


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The first steps of every connection of a client."""

    credentials: Credentials | OAuthCredentials | None = None
    tls: TlsClient | None = None


def security_of(settings: SecuritySettings, read: Callable[[str], bytes] | None = None, world: World | None = None) -> ClientSecurity:
    """Returns the security of these settings; ``read`` opens the files of keys and certificates, ``world`` fetches tokens.

    INVALID_CONFIG for what does not go together: nothing is sent in the clear that was meant to be guarded.
    """
    has_sasl, has_tls = _checked(settings)
    return ClientSecurity(_credentials(settings, read, world) if has_sasl else None, _tls(settings, read) if has_tls else None)


def check_security(settings: SecuritySettings, world: World | None = None) -> None:
    """Raises INVALID_CONFIG for what ``security_of`` refuses whatever is in files."""
    has_sasl, _ = _checked(settings)
    if has_sasl:
        _credentials(settings, None, world)


def _checked(settings: SecuritySettings) -> tuple[bool, bool]:
    """Returns whether there is SASL, and whether there is TLS. INVALID_CONFIG for settings of what is not there."""
    protocol = settings.security_protocol
    has_sasl, has_tls = protocol.startswith("sasl_"), protocol.endswith("ssl")
    if not has_sasl:
        _check_unused(settings, _SASL, "SASL_SSL" if has_tls else "SASL_PLAINTEXT")
    if not has_tls:
        stores = (name for name in checks_of(SecuritySettings) if name.startswith("ssl_"))
        _check_unused(settings, stores, "SASL_SSL" if has_sasl else "SSL")
    return has_sasl, has_tls


def _check_unused(settings: SecuritySettings, names: Iterable[str], protocol: str) -> None:
    without = SecuritySettings()
    for name in names:
        if getattr(settings, name) != getattr(without, name):
            way_out = f"set security.protocol={protocol}, or leave it out"
            raise _invalid(f"{key_of(name)} has no effect with security.protocol={settings.security_protocol}: {way_out}")


def _tls(settings: SecuritySettings, read: Callable[[str], bytes] | None) -> TlsClient:
    def get(key: str) -> Any:
        return getattr(settings, key.replace(".", "_"))

    files = {}
    for path in paths_of(get):
        assert read is not None, "who may have files in the settings can open them"
        try:
            files[path] = read(path)
        except OSError as error:
            raise _invalid(f"the store {path} cannot be read: {error.strerror or error}") from None
    return client_of(get, files)


def _credentials(settings: SecuritySettings, read: Callable[[str], bytes] | None, world: World | None) -> Credentials | OAuthCredentials:
    mechanism = settings.sasl_mechanism
    if mechanism == OAUTHBEARER:
        for of_others in ("sasl_plain_username", "sasl_plain_password"):
            if getattr(settings, of_others) is not None:
                raise _invalid(f"{key_of(of_others)} has no effect with sasl.mechanism=OAUTHBEARER, which has tokens")
        return OAuthCredentials(token_source(settings, read, world))
    for other in ("sasl_oauth_token", *ENDPOINT):
        if getattr(settings, other) is not None:
            raise _invalid(f"{key_of(other)} has no effect with sasl.mechanism={mechanism}: set OAUTHBEARER, or leave it out")
    if mechanism not in MECHANISMS:
        given = " is not set" if mechanism is None else f"={mechanism} is not supported"
        raise _invalid(f"sasl.mechanism{given}: {', '.join(SERVER_MECHANISMS)} are supported")
    name, password, by_token = settings.sasl_plain_username, settings.sasl_plain_password, False
    if settings.sasl_jaas_config is not None:
        if name is not None or password is not None:
            raise _invalid("sasl.jaas.config and sasl.plain.username say the same: give one of them")
        name, password, by_token = _of_jaas(settings.sasl_jaas_config, mechanism)
    if not name or password is None:
        raise _invalid(
            f"sasl.mechanism={mechanism} needs a name and a password: sasl.jaas.config, or sasl.plain.username and sasl.plain.password"
        )
    return Credentials(mechanism, name, password, by_token=by_token)


def _of_jaas(config: Secret, mechanism: str) -> tuple[str | None, Secret | None, bool]:
    """Returns name, password, and whether they are a delegation token's id and HMAC."""
    login = parse_jaas(config.reveal())
    if login.module is not LoginModule.of_mechanism(mechanism):
        raise _invalid(f"sasl.jaas.config names {login.module}; the module of {mechanism} is {LoginModule.of_mechanism(mechanism)}")
    by_token = (login.option("tokenauth") or "").lower() == "true"
    if by_token and login.module is not LoginModule.SCRAM:
        raise _invalid(f"sasl.jaas.config: tokenauth needs SCRAM; sasl.mechanism={mechanism} has no delegation tokens")
    return login.option("username"), login.options.get("password"), by_token


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
