"""What guards rights and users in ZooKeeper mode: who is given the metadata log, what znodes others may read, when clients are let in."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from tests.broker.sasl import LISTENER
from tests.broker.test_threshold import is_served, port_of, started
from tests.foreign_clients.wire import RawClient

from ottla.broker.handlers import SERVICES
from ottla.broker.homes.zookeeper import services
from ottla.broker.homes.zookeeper.loading import security_paths
from ottla.broker.homes.zookeeper.settings import ZookeeperSettings
from ottla.broker.requests.gate import is_allowed, refuse
from ottla.broker.requests.listeners import check_between_nodes
from ottla.broker.roles import Role
from ottla.config import BrokerConfig
from ottla.consensus.calls import Fetch
from ottla.consensus.wire_form import to_message
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.api_keys import ApiKey
from ottla.messages.sasl_handshake import SaslHandshakeRequest
from ottla.metadata import security_znodes

PATH = "/kafka-acl/Topic/t"
NOTICE = f"{security_znodes.LITERAL_CHANGES}/{security_znodes.ACL_CHANGE}"


def test_paths_of_acls_and_tokens_are_made_where_they_are_used_and_guarded() -> None:
    def of(**more: str) -> list[str]:
        given = {"zookeeper.connect": "z:1", "zookeeper.set.acl": "true", "ottla.zookeeper.credentials": "a:b"}
        config = BrokerConfig(given | {key.replace("_", "."): value for key, value in more.items()})
        place = ZookeeperSettings.of(config)
        for path in ("/delegation_token/tokens", "/delegation_token/tokens/id", "/config/users/u"):
            assert not any(access.scheme == "world" for access in place.acl_of(path)), "others may not even read it"
        for path in ("/kafka-acl", PATH, "/kafka-acl-extended/prefixed/Topic/t", NOTICE, "/delegation_token/token_changes"):
            assert [access.permissions for access in place.acl_of(path) if access.scheme == "world"] == ["r"]
        return security_paths(config)

    assert of() == []
    assert PATH.rpartition("/")[0] in of(authorizer_class_name="kafka.security.authorizer.AclAuthorizer")
    assert of(delegation_token_secret_key="x") == list(security_znodes.PERSISTENT_OF_TOKENS)


def test_acls_in_another_zookeeper_are_refused() -> None:
    with pytest.raises(KafkaError, match="ACLs are where the cluster is"):
        ZookeeperSettings.of(BrokerConfig({"zookeeper.connect": "z:1", "authorizer.zookeeper.url": "other:1"}))


def test_a_listener_between_brokers_may_not_offer_scram() -> None:
    given = {
        "zookeeper.connect": "127.0.0.1:2181",
        "listeners": "INTERNAL://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.internal.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="n" password="p" user_n="p";'
        ),
    }
    with pytest.raises(KafkaError, match="listener INTERNAL of brokers offers SCRAM") as refused:
        check_between_nodes(BrokerConfig(given))
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    check_between_nodes(BrokerConfig(given | {"listener.name.internal.sasl.enabled.mechanisms": "PLAIN"}))


class Asking:
    """A request from a principal that may do everything on the cluster, or nothing."""

    def __init__(self, listener: str, *, may: bool) -> None:
        self.connection = SimpleNamespace(listener=listener)
        self.answers: list[Any] = []
        self.may = lambda *_: may
        self.reply = self.answers.append


@pytest.mark.parametrize(("listener", "may", "is_served"), [("INTERNAL", True, True), ("INTERNAL", False, False), ("CLIENTS", True, False)])
def test_the_metadata_log_is_given_to_brokers_on_their_own_listener(
    listener: str, may: bool, is_served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the credentials of every user."""
    served: list[Any] = []
    own = SERVICES[Role.CONTROLLER]
    controllers = {key: replace(service, handle=lambda parts, context, request: served.append(request)) for key, service in own.items()}
    monkeypatch.setitem(SERVICES, Role.CONTROLLER, controllers)
    monkeypatch.setattr(services, "_FETCH_METADATA", controllers[ApiKey.FETCH])
    made = services.Services(lambda client_id: None, "INTERNAL")
    for of in (made.of_joining, made.of_joined):
        for key in (ApiKey.FETCH, *services.OF_CONTROLLERS):
            served.clear()
            asking: Any = Asking(listener, may=may)
            service = of[Role.BROKER][key]
            request: Any = to_message(Fetch(1, 2, 0, -1)) if key == ApiKey.FETCH else object()
            if is_allowed(service, asking, request):  # as the gate does
                service.handle(None, asking, request)
            else:
                refuse(service, asking, request)
            assert bool(served) is is_served
            assert [answer.error_code for answer in asking.answers] == ([] if is_served else [ErrorCode.CLUSTER_AUTHORIZATION_FAILED])


def test_clients_whose_user_may_be_known_later_wait(tmp_path: Path) -> None:
    """They would be refused, and a client that is refused gives up."""
    with started(tmp_path) as broker:
        assert broker._broker is not None
        assert broker._loop is not None
        gate = broker._broker.gate
        closed = threading.Event()
        broker._loop.call_soon_threadsafe(partial(gate.open, knows_users=False))
        broker._loop.call_soon_threadsafe(closed.set)
        assert closed.wait(30)
        with RawClient(port_of(broker)) as waiting, RawClient(port_of(broker, "PLAINTEXT")) as other:
            waiting.send(SaslHandshakeRequest("PLAIN"), 1)
            assert is_served(other)
            assert is_served(other)
            assert gate.connection_counts[LISTENER] == 0
            broker._loop.call_soon_threadsafe(gate.open)
            assert waiting.receive().error_code == 0
