"""What a KRaft file may say to a node, and where it then listens."""

from __future__ import annotations

import pytest
from tests.config.test_sources import COMBINED_NODE

from ottla.broker.requests.listeners import ListenerAddress, advertised, controller_listeners, listeners
from ottla.broker.roles import HomeKind, Role, read_roles
from ottla.config import BrokerConfig, parse_properties
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.image import EndpointImage

QUORUM = "1@a:1,2@b:2,3@c:3"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"process.roles": "broker,controller"},
        {"process.roles": "broker,controller", "node.id": "3", "controller.quorum.voters": "3@localhost:9093"},
        {"controller.quorum.bootstrap.servers": "localhost:9093"},
    ],
)
def test_a_broker_without_others_is_its_own_controller(given: dict[str, str]) -> None:
    assert read_roles(BrokerConfig(given)).home is HomeKind.LONE


@pytest.mark.parametrize(("roles", "node"), [("broker,controller", 2), ("controller", 3), ("broker", 4)])
def test_a_node_of_a_cluster_plays_its_configured_roles(roles: str, node: int) -> None:
    given = {"process.roles": roles, "node.id": str(node), "controller.quorum.voters": QUORUM, "controller.listener.names": "C"}
    given |= {} if roles == "broker" else {"listeners": "PLAINTEXT://:9092,C://:9093"}
    found = read_roles(BrokerConfig(given))
    assert found.home is HomeKind.QUORUM
    assert (found.is_broker, found.is_controller) == ("broker" in roles, "controller" in roles)
    assert found.voters == {1: ("a", 1), 2: ("b", 2), 3: ("c", 3)}


@pytest.mark.parametrize(
    "given",
    [{"controller.quorum.voters": "1@a:9093"}, {"controller.quorum.bootstrap.servers": "a:9093", "process.roles": "broker,controller"}],
)
def test_the_only_voter_can_be_joined_by_others_where_it_has_a_listener_for_them(given: dict[str, str]) -> None:
    listening = {"controller.listener.names": "CONTROLLER", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
    found = read_roles(BrokerConfig(given | listening))
    assert (found.home, found.is_broker, found.is_controller, found.formats_itself) == (HomeKind.QUORUM, True, True, True)
    assert found.voters == {1: ("a", 9093)}
    assert read_roles(BrokerConfig(given)).home is HomeKind.LONE


def test_a_broker_may_ask_servers_for_the_voters() -> None:
    given = {
        "process.roles": "broker",
        "controller.quorum.bootstrap.servers": "a:1,[::1]:2",
        "controller.listener.names": "C",
        "node.id": "4",
    }
    found = read_roles(BrokerConfig(given))
    assert (found.home, found.is_controller, found.voters) == (HomeKind.QUORUM, False, {})
    assert found.bootstrap == (("a", 1), ("::1", 2))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"process.roles": "controller"}, "needs controller.quorum.voters"),
        ({"process.roles": "broker", "node.id": "4"}, "needs controller.quorum.voters, .* begin a cluster of its own"),
        ({"controller.quorum.voters": "2@a:1"}, "whose node.id is 1"),
        ({"controller.quorum.voters": QUORUM, "node.id": "7"}, "does not have this node"),
        (
            {"controller.quorum.voters": QUORUM, "process.roles": "broker", "node.id": "1"},
            "has this node, whose node.id is 1, which is no controller",
        ),
        ({"controller.quorum.voters": QUORUM, "node.id": "1"}, "controller.listener.names is not set"),
        (
            {"controller.quorum.voters": QUORUM, "node.id": "1", "controller.listener.names": "C", "listeners": "PLAINTEXT://:9092"},
            "listeners has no listener of controller.listener.names=C; a controller is reached by one: add C://HOST:PORT",
        ),
        ({"controller.quorum.voters": "a:1"}, "id@host:port"),
        ({"controller.quorum.voters": "1@a:1;2@b:1;3@c:1"}, "id@host:port, with commas between voters"),
        ({"controller.quorum.voters": "1@a:1 2@b:1"}, "id@host:port, with commas between voters"),
        ({"controller.quorum.voters": "1@a:1,1@b:1"}, "lists an id twice"),
        ({"controller.quorum.voters": "1@a:1,01@b:1"}, "lists an id twice"),
        ({"controller.quorum.bootstrap.servers": "a:1,b:1"}, "several servers"),
        ({"controller.quorum.bootstrap.servers": "a:1", "process.roles": "broker"}, "controller.listener.names is not set"),
        (
            {"controller.quorum.bootstrap.servers": "a", "process.roles": "broker", "controller.listener.names": "C", "node.id": "4"},
            "controller.quorum.bootstrap.servers=a is not of the form host:port",
        ),
    ],
)
def test_roles_that_contradict_each_other_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(KafkaError, match=why) as refused:
        read_roles(BrokerConfig(given))
    assert refused.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    "given",
    [
        {"controller.quorum.voters": QUORUM, "process.roles": "broker,controller"},
        {"controller.quorum.voters": QUORUM},
        {"controller.quorum.voters": QUORUM, "process.roles": "broker"},
        {"controller.quorum.voters": "2@a:1", "process.roles": "broker"},
        {"controller.quorum.bootstrap.servers": "a:1,b:2", "process.roles": "broker"},
    ],
)
def test_a_node_of_several_needs_an_id_of_its_own(given: dict[str, str]) -> None:
    with pytest.raises(KafkaError, match=r"node\.id is not set, and controller\.quorum\.[a-z.]+ names other nodes: set it"):
        read_roles(BrokerConfig(given | {"controller.listener.names": "C"}))


def test_the_controllers_listener_is_not_advertised_to_clients_of_the_broker() -> None:
    config = BrokerConfig(parse_properties(COMBINED_NODE))
    assert controller_listeners(config) == [ListenerAddress("CONTROLLER", "", 9093, Role.CONTROLLER)]
    assert listeners(config) == [ListenerAddress("PLAINTEXT", "", 9092)]
    assert advertised(config, {"PLAINTEXT": ("0.0.0.0", 9092)}) == [EndpointImage("PLAINTEXT", "localhost", 9092)]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"listeners": "INSIDE://:9093"}, "no protocol for the listener INSIDE"),
        (
            {"listeners": "INSIDE://:9093", "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT"},
            "sasl.enabled.mechanisms=GSSAPI is not",
        ),
    ],
)
def test_a_listener_that_should_be_guarded_is_not_opened_without_its_guard(given: dict[str, str], why: str) -> None:
    with pytest.raises(KafkaError, match=why):
        listeners(BrokerConfig(given))


def test_a_listener_has_the_name_it_was_given() -> None:
    config = BrokerConfig({"listeners": "inside://host:1", "listener.security.protocol.map": "INSIDE:PLAINTEXT"})
    assert listeners(config) == [ListenerAddress("INSIDE", "host", 1)]
