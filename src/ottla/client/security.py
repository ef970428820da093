"""How a client makes itself known: Kafka's settings, and what they come to.

``sasl_jaas_config`` is Kafka's text; ``sasl_plain_username`` and ``sasl_plain_password`` say the same in two settings, as other clients in
Python have them, for each mechanism. What cannot be done is refused when the client is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.client.settings import Settings, choice, secret, text
from ottla.config.jaas import MECHANISMS, LoginModule, parse_jaas
from ottla.errors import ErrorCode, KafkaError
from ottla.security.client_exchange import Credentials
from ottla.types import Secret

PROTOCOLS: Final = ("plaintext", "sasl_plaintext")


@dataclass(frozen=True)
class SecuritySettings(Settings):
    """What all clients have to say of themselves."""

    security_protocol: str = choice("plaintext", PROTOCOLS)
    sasl_mechanism: str | None = text(None)
    sasl_jaas_config: Secret | None = secret()
    sasl_plain_username: str | None = text(None)
    sasl_plain_password: Secret | None = secret()


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """What every connection of a client does first."""

    credentials: Credentials | None = None


def security_of(settings: SecuritySettings) -> ClientSecurity:
    """INVALID_CONFIG for what does not go together: nothing is sent in the clear that was meant to be guarded."""
    has_sasl = settings.security_protocol.startswith("sasl_")
    if not has_sasl:
        for name in ("sasl_mechanism", "sasl_jaas_config", "sasl_plain_username", "sasl_plain_password"):
            if getattr(settings, name) is not None:
                way_out = "set security.protocol=SASL_PLAINTEXT, or leave it out"
                raise _invalid(f"{name.replace('_', '.')} has no effect with security.protocol={settings.security_protocol}: {way_out}")
        return ClientSecurity()
    return ClientSecurity(_credentials(settings))


def _credentials(settings: SecuritySettings) -> Credentials:
    mechanism = settings.sasl_mechanism
    if mechanism not in MECHANISMS:
        given = " is not set" if mechanism is None else f"={mechanism} is not supported"
        raise _invalid(f"sasl.mechanism{given}: {', '.join(MECHANISMS)} are supported")
    name, password = settings.sasl_plain_username, settings.sasl_plain_password
    if settings.sasl_jaas_config is not None:
        if name is not None or password is not None:
            raise _invalid("sasl.jaas.config and sasl.plain.username say the same: give one of them")
        name, password = _of_jaas(settings.sasl_jaas_config, mechanism)
    if not name or password is None:
        raise _invalid(
            f"sasl.mechanism={mechanism} needs a name and a password: sasl.jaas.config, or sasl.plain.username and sasl.plain.password"
        )
    return Credentials(mechanism, name, password)


def _of_jaas(config: Secret, mechanism: str) -> tuple[str | None, Secret | None]:
    login = parse_jaas(config.reveal())
    if login.module is not LoginModule.of_mechanism(mechanism):
        raise _invalid(f"sasl.jaas.config names {login.module}; the module of {mechanism} is {LoginModule.of_mechanism(mechanism)}")
    if (login.option("tokenauth") or "").lower() == "true":
        raise _invalid("sasl.jaas.config: tokenauth (delegation tokens) is not supported")
    return login.option("username"), login.options.get("password")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
