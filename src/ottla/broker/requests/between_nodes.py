"""How nodes of one cluster reach each other, as the configuration has it: on which listeners, and how they make themselves known.

``inter.broker.listener.name`` or ``security.inter.broker.protocol`` names the brokers' listener, ``controller.listener.names`` the
controllers'. A node is the client of its own listener's stores and logins. Source: KIP-103, KIP-612, KIP-631.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.peers.introduction import Introduction, Introductions
from ottla.broker.requests.listener_security import Protocol, get_of, protocols, read_stores
from ottla.broker.requests.listeners import controller_names, listeners
from ottla.broker.requests.node_tokens import read_token_source
from ottla.broker.roles import HomeKind, NodeRoles
from ottla.config import BrokerConfig
from ottla.config.jaas import JAAS, SERVER_MECHANISMS, LoginModule, parse_jaas
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import World
from ottla.security.client_exchange import Credentials, OAuthCredentials
from ottla.security.oauthbearer import OAUTHBEARER
from ottla.security.scram import ScramMechanism
from ottla.security.tls_settings import client_of
from ottla.types import Secret

PROTOCOL: Final = "security.inter.broker.protocol"
BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
CONTROLLERS: Final = "sasl.mechanism.controller.protocol"


async def read_introductions(world: World, config: BrokerConfig, roles: NodeRoles) -> Introductions:
    """Reads how nodes authenticate. INVALID_CONFIG, before a port is bound, when this node could not authenticate to others."""
    if roles.home is HomeKind.LONE:
        if config.static(PROTOCOL) != Protocol.PLAINTEXT:
            broker_listener(config, roles)
        return Introductions()
    if roles.home is HomeKind.ZOOKEEPER:  # any broker may be the controller, and has no listener of its own for that
        to_brokers = await _read(world, config, broker_listener(config, roles), BROKERS)
        return Introductions(brokers=to_brokers, controllers=to_brokers)
    return Introductions(
        brokers=await _read(world, config, broker_listener(config, roles), BROKERS),
        controllers=await _read(world, config, _controller_listener(config), CONTROLLERS),
    )


def broker_listener(config: BrokerConfig, roles: NodeRoles) -> str | None:
    """Returns the name of the listener between brokers; None where it is not known. INVALID_CONFIG where the broker has not that one."""
    name: str | None = config["inter.broker.listener.name"]
    own = [listener.name for listener in listeners(config)] if roles.is_broker else []
    if name is None:
        return own[0] if own else None
    if own and name.upper() not in own:
        raise _refused(f"inter.broker.listener.name={name} is not one of the listeners {', '.join(own)}")
    return name.upper()


def _controller_listener(config: BrokerConfig) -> str | None:
    names = config["controller.listener.names"] or ()
    return names[0].upper() if names and controller_names(config) else None


async def _read(world: World, config: BrokerConfig, listener: str | None, mechanism_key: str) -> Introduction:
    if listener is None:
        return Introduction()
    protocol = protocols(config).get(listener, Protocol.PLAINTEXT)
    tls = None
    if protocol.has_tls:
        get = get_of(config, listener, protocol)
        try:
            tls = client_of(get, await read_stores(world, get))
            world.network.check_tls(tls)
        except (KafkaError, ValueError) as error:
            text = error.message if isinstance(error, KafkaError) else str(error)
            raise _refused(f"listener {listener}, between nodes: {text}") from None
    if not protocol.has_sasl:
        return Introduction(tls, None, listener)
    credentials = await _credentials(world, config, listener, mechanism_key)
    if isinstance(credentials, OAuthCredentials):
        return Introduction(tls, credentials, listener)
    return Introduction(tls, credentials, listener, _ChangedLogin(config, listener, credentials.mechanism).newest)


async def _credentials(world: World, config: BrokerConfig, listener: str, mechanism_key: str) -> Credentials | OAuthCredentials:
    mechanism: str = config[mechanism_key]
    if mechanism not in SERVER_MECHANISMS:
        known = ", ".join(SERVER_MECHANISMS)
        raise _refused(f"{mechanism_key}={mechanism} is not supported, and listener {listener} is between nodes; {known} are")
    if mechanism == OAUTHBEARER:
        return OAuthCredentials(await read_token_source(world, config, listener))
    if mechanism_key == CONTROLLERS and ScramMechanism.named(mechanism) is not None:
        why = "the users of SCRAM are in the metadata, which controllers get from each other: use PLAIN, or SSL with client certificates"
        raise _refused(f"{mechanism_key}={mechanism}: {why}")
    key = f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"
    secret = config.given.get(key)
    if secret is None:
        raise _refused(f"{key} is not set: it has the name and the password by which this node makes itself known to others")
    found = _login(secret, mechanism)
    if found is None:
        raise _refused(f"{key}: username and password are expected, of the module {LoginModule.of_mechanism(mechanism)}")
    return found


def _login(secret: Secret, mechanism: str) -> Credentials | None:
    login = parse_jaas(secret.reveal())
    name, password = login.option("username"), login.options.get("password")
    if login.module is not LoginModule.of_mechanism(mechanism) or not name or password is None:
        return None
    return Credentials(mechanism, name, password)


class _ChangedLogin:
    """The name and the password of this node, where they change while it runs: connections from then on are made by them."""

    def __init__(self, config: BrokerConfig, listener: str, mechanism: str) -> None:
        self._config = config
        self._listener = listener
        self._mechanism = mechanism
        self._read: tuple[Secret | None, Credentials | None] = (None, None)

    def newest(self) -> Credentials | None:
        """Returns what is set now; None where that has no name and no password."""
        secret: Secret | None = self._config.of_listener(self._listener, f"{self._mechanism.lower()}.{JAAS}")
        if secret is not self._read[0]:
            self._read = secret, None if secret is None else _login(secret, self._mechanism)
        return self._read[1]


def _refused(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, why)
