"""Where a client's tokens of OAUTHBEARER come from: a function of the program, a file, or an issuer, by an id and a secret.

The keys are Kafka's. ``sasl_jaas_config`` names the login module, as in each file of a Java client, and may have the id, the secret and the
scope, as up to Kafka 4.0; the keys of their own take precedence. Source: KIP-768, KIP-1139.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from ottla.client.settings import key_of
from ottla.config.jaas import LoginModule, parse_jaas
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import World
from ottla.security.token_endpoint import TokenEndpoint, check_endpoint
from ottla.types import Secret

URL: Final = "sasl_oauthbearer_token_endpoint_url"
ENDPOINT: Final = (
    *(URL, "sasl_oauthbearer_client_credentials_client_id"),
    *("sasl_oauthbearer_client_credentials_client_secret", "sasl_oauthbearer_scope"),
)
_OF_JAAS: Final = ("clientId", "clientSecret", "scope")


class TokenSettings(Protocol):
    """The settings that are looked at."""

    @property
    def sasl_jaas_config(self) -> Secret | None: ...
    @property
    def sasl_oauth_token(self) -> Callable[[], object] | None: ...
    @property
    def sasl_oauthbearer_token_endpoint_url(self) -> str | None: ...
    @property
    def sasl_oauthbearer_client_credentials_client_id(self) -> str | None: ...
    @property
    def sasl_oauthbearer_client_credentials_client_secret(self) -> Secret | None: ...
    @property
    def sasl_oauthbearer_scope(self) -> str | None: ...


def token_source(settings: TokenSettings, read: Callable[[str], bytes] | None, world: World | None) -> Callable[[], object]:
    """Returns what gives a token for each connection. INVALID_CONFIG where none would come; a file is looked at where ``read`` opens it."""
    url, given = settings.sasl_oauthbearer_token_endpoint_url, settings.sasl_oauth_token
    login = _of_jaas(settings.sasl_jaas_config)
    if given is not None:
        for name in ENDPOINT:
            if getattr(settings, name) is not None:
                raise _invalid(f"sasl_oauth_token and {key_of(name)} exclude each other: tokens come from one of them")
        return given
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or _shown(login.get("clientId"))
    client_secret = settings.sasl_oauthbearer_client_credentials_client_secret or login.get("clientSecret")
    scope = settings.sasl_oauthbearer_scope or _shown(login.get("scope"))
    if url is not None and url.startswith("file:"):
        if client_id is not None or client_secret is not None or scope is not None:
            raise _invalid(f"{key_of(URL)} is a file, which has the token itself: leave out the client's id, secret and scope")
        return _of_file(unquote(urlsplit(url).path), read)
    if url is None or client_id is None or client_secret is None:
        keys = f"{', '.join(map(key_of, ENDPOINT[:3]))}, or the first as file:/PATH"
        raise _invalid(f"sasl.mechanism=OAUTHBEARER needs sasl_oauth_token, a function that gives a token, or all of {keys}")
    problem = check_endpoint(url)
    if problem is not None:
        raise _invalid(f"{key_of(URL)}: {problem}, or file:/PATH")
    if world is None or world.fetch is None:
        raise _invalid(f"{key_of(URL)}: nothing can be fetched here")
    return TokenEndpoint(
        world.fetch, world.clock.monotonic_ms, url=url, client_id=client_id, client_secret=client_secret, scope=scope
    ).newest  # fmt: skip


def _of_jaas(config: Secret | None) -> Mapping[str, Secret]:
    """Returns the options of the login module."""
    if config is None:
        return {}
    login = parse_jaas(config.reveal())
    if login.module is not LoginModule.OAUTHBEARER:
        raise _invalid(f"sasl.jaas.config names {login.module}; the module of OAUTHBEARER is {LoginModule.OAUTHBEARER}")
    for name in login.options:
        if name not in _OF_JAAS:
            raise _invalid(f"sasl.jaas.config: {name[:80]} is not supported; of OAUTHBEARER {', '.join(_OF_JAAS)} are")
    return login.options


def _of_file(path: str, read: Callable[[str], bytes] | None) -> Callable[[], str]:
    """Returns what reads the token that the file has then, without the end of its line."""

    def newest() -> str:
        assert read is not None, "who connects can open files"
        try:
            return read(path).decode("ascii", "replace").strip()
        except OSError as error:
            raise _invalid(f"{key_of(URL)}: {path} cannot be read: {error.strerror or error}") from None

    if read is not None:
        newest()
    return newest


def _shown(value: Secret | None) -> str | None:
    return None if value is None else value.reveal()


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
