"""What a listener demands of those who connect, as the configuration has it.

``check_listeners`` is asked before a port is bound: what cannot be enforced is refused there, and no listener is more open than it was
asked to be. A value for the listener and the mechanism (``listener.name.x.plain.sasl.jaas.config``) is stronger than one for the listener,
and that one than the broker's. Source: KIP-103, KIP-226 (prefixes), KIP-684.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from ottla.broker.requests.key_sets import KeySet
from ottla.config import BrokerConfig
from ottla.config.forms import protocol_map
from ottla.config.jaas import JAAS, SERVER_MECHANISMS, Login, LoginModule, parse_jaas
from ottla.config.keys.dynamic import OF_LISTENERS
from ottla.config.principal_rules import RULES, PrincipalRules
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import ClusterImage
from ottla.ports import World
from ottla.security.jwt import Claims, Expected, UnknownKeyError, verified
from ottla.security.mechanism import Refusal, ServerMechanism
from ottla.security.oauthbearer import OAUTHBEARER, OAuthServer
from ottla.security.plain import PLAIN, PlainServer
from ottla.security.scram import ScramCredential, ScramMechanism, ScramServer
from ottla.security.tls_settings import Get, paths_of, server_of
from ottla.security.tokens import TokenKeys
from ottla.tls import ClientAuth, TlsServer
from ottla.types import Secret

ENABLED: Final = "sasl.enabled.mechanisms"
CLIENT_AUTH: Final = "ssl.client.auth"
REAUTHENTICATE: Final = "connections.max.reauth.ms"
STORE_BYTES_MAX: Final = 4 << 20
ADMIN: Final = "ADMIN"
"""The listener of the admin pages, where its ``ssl.*`` and ``plain.*`` keys are concerned."""
HTTPS: Final = "https://"
KEYS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
USER_OPTION: Final = "user_"


class Protocol(StrEnum):
    """Kafka's security protocols."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_sasl(self) -> bool:
        return self in (Protocol.SASL_PLAINTEXT, Protocol.SASL_SSL)

    @property
    def has_tls(self) -> bool:
        return self in (Protocol.SSL, Protocol.SASL_SSL)


def protocols(config: BrokerConfig) -> dict[str, Protocol]:
    """Returns the security protocol by listener name. INVALID_CONFIG for an unknown protocol."""
    return {name: Protocol(text) for name, text in protocol_map(config["listener.security.protocol.map"]).items()}


def check_listeners(config: BrokerConfig, used: Mapping[str, Protocol]) -> None:
    """Raises INVALID_CONFIG, with the key's name and a way out, for what these listeners cannot do."""
    for fault in sasl_faults(config, used):
        raise fault


def sasl_faults(config: BrokerConfig, used: Mapping[str, Protocol]) -> Iterator[KafkaError]:
    """Yields what these listeners cannot do, one listener and mechanism after the other."""
    for name, protocol in used.items():
        if protocol.has_sasl:
            yield from _sasl_faults_of(config, name)


def check_protections(config: BrokerConfig, used: Mapping[str, Protocol]) -> None:
    """Raises INVALID_CONFIG for what would protect none of the listeners that this node has or connects to."""
    for fault in protection_faults(config, used):
        raise fault


def protection_faults(config: BrokerConfig, used: Mapping[str, Protocol]) -> Iterator[KafkaError]:
    """Yields an error for each key that would protect none of the listeners that this node has or connects to."""
    guarded = {name.lower() for name, protocol in used.items() if protocol.has_sasl}
    with_tls = {name.lower() for name, protocol in used.items() if protocol.has_tls}
    for key, value in sorted(config.given.items()):
        own = key.removeprefix("listener.name.") if key.startswith("listener.name.") else None
        listener = own.partition(".")[0] if own is not None else None
        if key == JAAS or (own is not None and own.partition(".")[2] == JAAS):
            yield _refused(f"{key}: a broker has one for each listener and mechanism, as listener.name.NAME.plain.{JAAS}")
        if key.endswith(REAUTHENTICATE) and value and not (guarded if listener is None else listener in guarded):
            yield _refused(f"{key}={value} would protect nothing: no listener of that name speaks SASL; remove it")
        if key.endswith(CLIENT_AUTH) and value != ClientAuth.NONE and not (with_tls if listener is None else listener in with_tls):
            yield _refused(f"{key}={value} would protect nothing: no listener of that name speaks TLS; remove it")


def _sasl_faults_of(config: BrokerConfig, listener: str) -> Iterator[KafkaError]:
    enabled = enabled_mechanisms(config, listener)
    wrong = [mechanism for mechanism in enabled if mechanism not in SERVER_MECHANISMS]
    if wrong or not enabled:
        shown, known = ",".join(enabled), ",".join(SERVER_MECHANISMS)
        yield _refused(f"listener {listener} speaks SASL, and {ENABLED}={shown} is not supported: set it to some of {known}")
    for mechanism in enabled:
        try:
            _check_mechanism(config, listener, mechanism)
        except KafkaError as error:
            yield error


def _check_mechanism(config: BrokerConfig, listener: str, mechanism: str) -> None:
    if mechanism in SERVER_MECHANISMS:
        key = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"
        secret = config.of_listener(listener, f"{mechanism.lower()}.{JAAS}")
        if secret is None and mechanism == PLAIN:
            raise _refused(f'listener {listener} offers PLAIN, and {key} is not set: it has the users, as user_NAME="PASSWORD"')
        login = None if secret is None else parse_jaas(secret.reveal())
        if login is not None and login.module is not LoginModule.of_mechanism(mechanism):
            raise _refused(f"{key} names {login.module}; {LoginModule.of_mechanism(mechanism)} is the module of {mechanism}")
        if mechanism == OAUTHBEARER:
            _check_oauth(config, listener, key, login)


def _check_oauth(config: BrokerConfig, listener: str, jaas: str, login: Login | None) -> None:
    unsecured = [name for name in (login.options if login is not None else ()) if name.startswith("unsecured")]
    if unsecured:
        raise _refused(f"{jaas}: {unsecured[0][:80]} is about tokens that are not signed, which are not taken; remove it")
    url = oauth_value(config, listener, KEYS_URL)
    if not url:
        raise _refused(f"listener {listener} offers OAUTHBEARER, and {KEYS_URL} is not set: without keys anybody could make tokens")
    problem = check_url(url)
    if problem is not None:
        raise _refused(f"{KEYS_URL} of listener {listener}: {problem}")


def oauth_value(config: BrokerConfig, listener: str, key: str) -> Any:
    """Returns the first value of: for the listener and the mechanism, for the listener, for all."""
    for name in (f"{OAUTHBEARER.lower()}.{key}", key):
        value = config.of_listener(listener, name)
        if value is not None:
            return value
    return config[key]


def oauth_urls(config: BrokerConfig, used: Mapping[str, Protocol]) -> dict[str, str]:
    """Returns where the keys are, by listener that offers OAUTHBEARER."""
    names = [name for name, protocol in used.items() if protocol.has_sasl and OAUTHBEARER in enabled_mechanisms(config, name)]
    return {name: oauth_value(config, name, KEYS_URL) for name in names}


async def check_key_sets(world: World, config: BrokerConfig, used: Mapping[str, Protocol]) -> None:
    """Raises INVALID_CONFIG for a file of keys that cannot be used."""
    for url in set(oauth_urls(config, used).values()):
        if url.startswith("file:"):
            await KeySet(world, config, url).read()


def expected_of(config: BrokerConfig, listener: str) -> Expected:
    """Returns what tokens must say there."""
    return Expected(
        audiences=oauth_value(config, listener, "sasl.oauthbearer.expected.audience"),
        issuer=oauth_value(config, listener, "sasl.oauthbearer.expected.issuer"),
        subject_claim=oauth_value(config, listener, "sasl.oauthbearer.sub.claim.name"),
        scope_claim=oauth_value(config, listener, "sasl.oauthbearer.scope.claim.name"),
        skew_ms=oauth_value(config, listener, "sasl.oauthbearer.clock.skew.seconds") * 1000,
    )


def check_url(url: str) -> str | None:
    """Returns what is wrong with the place of a key set; None for a file or an HTTPS URL with a host."""
    place = urlsplit(url)
    if place.scheme == "file":
        return None if place.path.startswith("/") and place.netloc in ("", "localhost") else "file:/PATH is expected"
    if place.scheme != "https" or not place.hostname:
        return "https://HOST/PATH or file:/PATH is expected"
    return "a name and a password have no place in it" if place.username is not None or place.password is not None else None


def get_of(config: BrokerConfig, listener: str, protocol: Protocol) -> Get:
    """Returns the ``ssl.*`` values of one listener: its own, else the broker's. All but stores are fixed at its start."""

    def get(key: str) -> Any:
        if key in OF_LISTENERS and (changed := config.of_listener(listener, key)) is not None:
            return changed
        own = config.given.get(f"listener.name.{listener.lower()}.{key}")
        if own is not None:
            return own
        if key == CLIENT_AUTH and protocol.has_sasl:
            return ClientAuth.NONE  # who connects shows who it is by SASL, unless the listener asks for both (KIP-684)
        return config.static(key)

    return get


def is_guarded(address: str | None) -> bool:
    """True when the admin pages of this ``ottla.admin.listener`` are served over TLS, to callers who authenticate."""
    return address is not None and address.startswith(HTTPS)


def admin_protocols(config: BrokerConfig) -> dict[str, Protocol]:
    """Returns the admin pages' protocol, where they speak TLS. INVALID_CONFIG where a listener of the protocol has their name."""
    if not is_guarded(config["ottla.admin.listener"]):
        return {}
    if any(text.upper().startswith(f"{ADMIN}:") for text in config["listeners"]):
        raise _refused(
            f"listeners has {ADMIN}, which names the keys of ottla.admin.listener={config['ottla.admin.listener']}: name it otherwise"
        )
    return {ADMIN: Protocol.SSL}


async def read_tls(world: World, config: BrokerConfig, used: Mapping[str, Protocol]) -> dict[str, TlsServer]:
    """Reads what the listeners that speak TLS need. INVALID_CONFIG for what cannot be used."""
    found = {}
    for name, protocol in used.items():
        if protocol.has_tls:
            PrincipalRules.parse(get_of(config, name, protocol)(RULES))
            try:
                found[name] = await read_server(world, config, name, protocol)
            except (KafkaError, ValueError) as error:
                raise _refused(f"listener {name}: {error.message if isinstance(error, KafkaError) else error}") from None
    return found


async def read_server(world: World, config: BrokerConfig, listener: str, protocol: Protocol) -> TlsServer:
    """Reads what one listener needs. INVALID_CONFIG or ValueError for what cannot be used."""
    get = get_of(config, listener, protocol)
    tls = server_of(get, await read_stores(world, get))
    world.network.check_tls(tls)
    return tls


async def read_stores(world: World, get: Get) -> dict[str, bytes]:
    """Reads the files of keys and certificates. INVALID_CONFIG for one that cannot be read."""
    files = {}
    for path in paths_of(get):
        try:
            files[path] = await world.disk.read_given_file(os.path.abspath(path), bytes_max=STORE_BYTES_MAX)
        except (OSError, ValueError) as error:
            raise _refused(f"the store {path[:300]} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return files


def enabled_mechanisms(config: BrokerConfig, listener: str) -> list[str]:
    own: list[str] | None = config.of_listener(listener, ENABLED)
    found: list[str] = config[ENABLED] if own is None else own
    return found


class SaslOffer:
    """A ``mechanism.Offer``: that of one listener, by the configuration and the image of the moment."""

    def __init__(
        self,
        config: BrokerConfig,
        listener: str,
        image: Callable[[], ClusterImage],
        world: World,
        decoy_key: bytes,
        token_keys: TokenKeys,
        key_set: KeySet | None = None,
    ) -> None:
        self._config = config
        self._token_keys = token_keys
        self._clock = world.clock
        self._key_set = key_set  # of OAUTHBEARER
        self._listener = listener
        self._image = image
        self._secret_bytes = world.secret_bytes
        self._decoy_key = decoy_key
        self._login: tuple[Secret | None, Login | None] = (None, None)  # of PLAIN, as it was read last

    @property
    def mechanisms(self) -> Sequence[str]:
        return enabled_mechanisms(self._config, self._listener)

    def begin(self, mechanism: str) -> ServerMechanism:
        if mechanism == PLAIN:
            return PlainServer(self._password)
        if mechanism == OAUTHBEARER:
            return OAuthServer(self._claims, self._clock.now_ms)
        scram = ScramMechanism.named(mechanism)
        assert scram is not None, "the mechanisms were checked"
        return ScramServer(
            scram,
            lambda name: credential_of(self._image(), name, scram),
            nonce=self._secret_bytes(18).hex(),
            decoy_key=self._decoy_key,
            find_token=lambda token_id: self._token_keys.user(self._image().delegation_tokens, token_id, scram, self._clock.now_ms()),
        )

    def _claims(self, token: str) -> Claims:
        key_set = self._key_set
        if key_set is None:  # the mechanism was enabled since the start
            raise Refusal("OAUTHBEARER, which this listener did not offer when the broker started")
        try:
            return verified(token, key_set.keys, expected_of(self._config, self._listener), self._clock.now_ms())
        except UnknownKeyError as error:
            key_set.look_again(error.key_id)
            raise

    def session_ms(self, mechanism: str) -> int:
        for name in (f"{mechanism.lower()}.{REAUTHENTICATE}", REAUTHENTICATE):
            value: int | None = self._config.of_listener(self._listener, name)
            if value is not None:
                return value
        found: int = self._config[REAUTHENTICATE]
        return found

    def _password(self, name: str) -> Secret | None:
        secret = self._config.of_listener(self._listener, f"{PLAIN.lower()}.{JAAS}")
        if secret is not self._login[0]:
            self._login = secret, None if secret is None else parse_jaas(secret.reveal())
        login = self._login[1]
        return None if login is None else login.options.get(USER_OPTION + name)


def credential_of(image: ClusterImage, name: str, mechanism: ScramMechanism) -> ScramCredential | None:
    """Returns what the cluster keeps for the user."""
    record = image.scram_credentials.get((name, mechanism.number))
    return None if record is None else ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)


def used_protocols(config: BrokerConfig, names: Iterable[str]) -> dict[str, Protocol]:
    """Returns each listener's protocol; PLAINTEXT for controllers' listeners that the map lacks. INVALID_CONFIG for other listeners."""
    known = dict.fromkeys((name.upper() for name in config["controller.listener.names"] or ()), Protocol.PLAINTEXT) | protocols(config)
    missing = sorted(set(names) - known.keys())
    if missing:
        raise _refused(f"listener.security.protocol.map has no protocol for the listener {missing[0]}")
    return {name: known[name] for name in names}
