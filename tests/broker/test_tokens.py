"""Delegation tokens: who may have one, whom it lets in, and until when (KIP-48, KIP-373)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.broker.principals import STANDARD, until
from tests.broker.sasl import GUARDED, LISTENER, authenticate, handshake, token
from tests.broker.test_node import properties
from tests.foreign_clients.wire import RawClient
from tests.waiting import eventually

from ottla.broker.handlers.describe_delegation_token import _described
from ottla.broker.requests.candidate import Candidate
from ottla.controller import delegation_tokens
from ottla.controller.delegation_tokens import create_token
from ottla.errors import ErrorCode, KafkaError
from ottla.messages.acl_codes import Operation, PatternType, Permission, ResourceType
from ottla.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.messages.create_delegation_token import CreatableRenewer, CreateDelegationTokenRequest
from ottla.messages.describe_delegation_token import DescribeDelegationTokenRequest, DescribedOwner
from ottla.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.messages.list_groups import ListGroupsRequest
from ottla.messages.metadata import MetadataRequest
from ottla.messages.metadata_records import DelegationTokenRecord
from ottla.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.metadata.image import EMPTY_IMAGE
from ottla.metadata.replay import replay
from ottla.runtime.serve import BrokerThread
from ottla.security.plain import plain_token
from ottla.security.scram import ScramClient, ScramMechanism
from ottla.security.tokens import TokenKeys
from ottla.sim.cluster import SimBroker, Simulation
from ottla.sim.loop import run
from ottla.sync import Admin
from ottla.types import Secret

SECRET: Final = "the-secret-of-all-nodes"
USERS: Final = ("admin", "alice", "bob", "carol")
JAAS: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required {};".format(
    " ".join(f'user_{name}="{name}-secret"' for name in USERS)
)
TOKENS: Final = GUARDED | {
    "listener.name.guarded.plain.sasl.jaas.config": JAAS,
    "delegation.token.secret.key": SECRET,
    "authorizer.class.name": STANDARD,
    "super.users": "User:admin",
    "connection.failed.authentication.delay.ms": "0",
}
HOUR_MS: Final = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(properties(tmp_path_factory.mktemp("tokens"), **TOKENS)) as thread:
        yield thread


def port_of(broker: BrokerThread, listener: str = LISTENER) -> int:
    return broker.addresses[listener][1]


def connected_as(broker: BrokerThread, user: str) -> RawClient:
    """By PLAIN."""
    client = RawClient(port_of(broker))
    assert authenticate(client, plain_token(user, Secret(f"{user}-secret"))).error_code == 0
    return client


def create(client: RawClient, *renewers: str, owner: str | None = None, life_ms: int = -1) -> Any:
    kind = None if owner is None else "User"
    request = CreateDelegationTokenRequest(kind, owner, [CreatableRenewer("User", name) for name in renewers], life_ms)
    return client.ask(request, 3)


def show(client: RawClient, name: str, hmac: bytes, mechanism: ScramMechanism, *, by_token: bool = True) -> Any:
    """The last answer to who shows a token."""
    handshake(client, mechanism.text)
    side = ScramClient(mechanism, name, Secret(base64.b64encode(hmac).decode()), nonce="nonce", by_token=by_token)
    first = token(client, side.first())
    assert first.error_code == 0, "whether the token is there is not answered yet"
    challenge = side.challenge(bytes(first.auth_bytes))
    last = token(client, side.final(challenge, side.salted(challenge)))
    if not last.error_code:
        side.verify(bytes(last.auth_bytes))
    return last


def shown(broker: BrokerThread, made: Any, mechanism: ScramMechanism = ScramMechanism.SHA_256) -> RawClient:
    client = RawClient(port_of(broker))
    assert show(client, made.token_id, bytes(made.hmac), mechanism).error_code == 0
    return client


def allow(broker: BrokerThread, user: str, operation: Operation, resource_type: ResourceType, name: str) -> None:
    with connected_as(broker, "admin") as client:
        creation = AclCreation(resource_type, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)
        assert [result.error_code for result in client.ask(CreateAclsRequest([creation]), 3).results] == [0]


def principals(broker: BrokerThread) -> set[tuple[str, bool]]:
    assert broker._broker is not None
    return {(str(one.principal), one.principal.by_token) for one in list(broker._broker.router.connections)}


def is_served(client: RawClient) -> bool:
    return client.ask(ListGroupsRequest(), 4).error_code == 0


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_token_lets_its_owner_in_until_it_ends(broker: BrokerThread, mechanism: ScramMechanism) -> None:
    with connected_as(broker, "alice") as client:
        made = create(client, "bob", life_ms=HOUR_MS)
    assert made.error_code == 0
    assert (made.principal_name, made.token_requester_principal_name) == ("alice", "alice")
    assert made.max_timestamp_ms - made.issue_timestamp_ms == HOUR_MS
    with RawClient(port_of(broker)) as client:
        last = show(client, made.token_id, bytes(made.hmac), mechanism)
        assert 0 < last.session_lifetime_ms <= HOUR_MS
        assert is_served(client)
        assert ("User:alice", True) in principals(broker)


def test_neither_an_anonymous_client_nor_one_with_a_token_gets_a_token(broker: BrokerThread) -> None:
    with connected_as(broker, "alice") as client:
        made = create(client)
    with RawClient(port_of(broker, "PLAINTEXT")) as plain, shown(broker, made) as by_token:
        for client in (plain, by_token):
            for request, version in (
                (CreateDelegationTokenRequest(None, None, [], -1), 3),
                (RenewDelegationTokenRequest(bytes(made.hmac), -1), 2),
                (ExpireDelegationTokenRequest(bytes(made.hmac), -1), 2),
                (DescribeDelegationTokenRequest(None), 3),
            ):
                assert client.ask(request, version).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert is_served(by_token)


def test_a_token_for_another_needs_a_right_and_is_a_users(broker: BrokerThread) -> None:
    with connected_as(broker, "bob") as client:
        assert create(client, owner="alice").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert create(client, owner="bob").error_code == 0
        allow(broker, "bob", Operation.CREATE_TOKENS, ResourceType.USER, "User:alice")
        made = create(client, owner="alice")
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "bob")
        allow(broker, "bob", Operation.CREATE_TOKENS, ResourceType.USER, "Group:alice")
        for request in (
            CreateDelegationTokenRequest("Group", "alice", [], -1),
            CreateDelegationTokenRequest(None, None, [CreatableRenewer("Group", "alice")], -1),
        ):
            assert client.ask(request, 3).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        many = [f"renewer-{number}" for number in range(101)]
        assert create(client, *many).error_code == ErrorCode.INVALID_REQUEST
        assert create(client, "x" * 2000).error_code == ErrorCode.INVALID_REQUEST
        assert create(client, "").error_code == ErrorCode.INVALID_REQUEST
    with shown(broker, made):
        assert ("User:alice", True) in principals(broker)


def test_owner_and_renewers_renew_and_expire_and_sessions_end_with_the_token(broker: BrokerThread) -> None:
    with connected_as(broker, "alice") as alice, connected_as(broker, "bob") as bob, connected_as(broker, "carol") as carol:
        made = create(alice, "bob", life_ms=HOUR_MS)
        hmac = bytes(made.hmac)
        assert carol.ask(RenewDelegationTokenRequest(hmac, -1), 2).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert carol.ask(ExpireDelegationTokenRequest(hmac, -1), 2).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        for other in (b"", hmac[:-1], bytes(64)):
            assert bob.ask(RenewDelegationTokenRequest(other, -1), 2).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert bob.ask(RenewDelegationTokenRequest(hmac, 10 * HOUR_MS), 2).expiry_timestamp_ms == made.max_timestamp_ms
        sooner = bob.ask(RenewDelegationTokenRequest(hmac, HOUR_MS // 2), 2).expiry_timestamp_ms
        assert sooner < made.max_timestamp_ms
        with shown(broker, made) as client, shown(broker, create(alice)) as other_session:
            assert is_served(client)
            assert bob.ask(ExpireDelegationTokenRequest(hmac, -1), 2).error_code == 0
            assert timers_of_ended(broker) == [None], "nothing looks at an ended session again and again"
            client.send(ListGroupsRequest(), 4)
            assert client.is_closed_by_broker()
            assert is_served(other_session)
        with RawClient(port_of(broker)) as client:
            assert show(client, made.token_id, hmac, ScramMechanism.SHA_512).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert alice.ask(ExpireDelegationTokenRequest(hmac, -1), 2).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_a_token_is_not_good_until_it_is_swept(broker: BrokerThread) -> None:
    with connected_as(broker, "alice") as alice:
        made, shortened = create(alice), create(alice)
        with shown(broker, made) as client, shown(broker, shortened) as other:
            assert is_served(client)
            assert is_served(other)
            for one in (made, shortened):
                assert alice.ask(ExpireDelegationTokenRequest(bytes(one.hmac), 200), 2).error_code == 0
            eventually(lambda: principals_by_token(broker), lambda names: not names)
            for ended in (other, client):
                ended.send(MetadataRequest(None), 9)
                assert ended.is_closed_by_broker()
        assert broker._broker is not None
        for expired in (made, shortened):
            assert expired.token_id in broker._broker.image.delegation_tokens
            with RawClient(port_of(broker)) as client:
                last = show(client, expired.token_id, bytes(expired.hmac), ScramMechanism.SHA_256)
                assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            for request in (RenewDelegationTokenRequest(bytes(expired.hmac), -1), ExpireDelegationTokenRequest(bytes(expired.hmac), 200)):
                assert alice.ask(request, 2).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        with connected_as(broker, "bob") as bob:  # whose token it is not: he is told nothing else of it
            stranger = ExpireDelegationTokenRequest(bytes(made.hmac), 200)
            assert bob.ask(stranger, 2).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        removed = alice.ask(ExpireDelegationTokenRequest(bytes(made.hmac), -1), 2)
        assert removed.error_code == 0, "one that has expired is removed all the same, as in Kafka"
        assert made.issue_timestamp_ms < removed.expiry_timestamp_ms < made.max_timestamp_ms, "the answer says when it ended: now"
        assert made.token_id not in broker._broker.image.delegation_tokens


def timers_of_ended(broker: BrokerThread) -> list[object]:
    """Of sessions that may only authenticate again."""
    assert broker._broker is not None
    standings = broker._broker.gate.threshold._standings
    return [standing.timer for connection, standing in list(standings.items()) if isinstance(connection.pipeline, Candidate)]


def principals_by_token(broker: BrokerThread) -> list[str]:
    """Of connections that may ask for something."""
    assert broker._broker is not None
    router = broker._broker.router
    return [str(one.principal) for one in list(router.connections) if one.principal.by_token and one.pipeline is router]


def test_tokens_are_shown_to_owners_renewers_and_users_allowed_to_describe_them(broker: BrokerThread) -> None:
    def seen(client: RawClient, *owners: str, everybody: bool = False) -> list[str]:
        asked = None if everybody else [DescribedOwner("User", owner) for owner in owners]
        return [found.token_id for found in client.ask(DescribeDelegationTokenRequest(asked), 3).tokens]

    with connected_as(broker, "admin") as admin, connected_as(broker, "carol") as carol, connected_as(broker, "bob") as bob:
        made = create(carol, "bob")
        other = create(admin)
        assert seen(carol, everybody=True) == [made.token_id]
        assert seen(carol, "carol") == [made.token_id]
        assert seen(carol, "admin") == []
        assert seen(carol) == []
        assert made.token_id in seen(bob, everybody=True)
        assert {made.token_id, other.token_id} <= set(seen(admin, everybody=True))
        allow(broker, "carol", Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, other.token_id)
        assert set(seen(carol, everybody=True)) == {made.token_id, other.token_id}
        another = create(bob, owner="bob")
        assert another.token_id not in seen(carol, everybody=True)
        allow(broker, "carol", Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")
        assert another.token_id in seen(carol, "bob")
        [found] = [one for one in carol.ask(DescribeDelegationTokenRequest(None), 3).tokens if one.token_id == made.token_id]
        assert (bytes(found.hmac), [renewer.principal_name for renewer in found.renewers]) == (bytes(made.hmac), ["bob"])


def test_nothing_else_passes_for_a_token(broker: BrokerThread, capfd: pytest.CaptureFixture[str]) -> None:
    with connected_as(broker, "alice") as client:
        made, other = create(client), create(client)
    hmac = bytes(made.hmac)
    for name, proof, by_token in (
        (made.token_id, bytes(other.hmac), True),
        (made.token_id, b"", True),
        (made.token_id, hmac, False),
        ("alice", hmac, True),
        ("", hmac, True),
        ("no-such-token", hmac, True),
    ):
        with RawClient(port_of(broker)) as client:
            if not name:
                handshake(client, "SCRAM-SHA-256")
                assert token(client, b"n,,n=,r=x,tokenauth=true").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            else:
                last = show(client, name, proof, ScramMechanism.SHA_256, by_token=by_token)
                assert last.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    captured = capfd.readouterr()
    logged = captured.out + captured.err
    assert SECRET not in logged
    assert base64.b64encode(hmac).decode() not in logged
    assert hmac.hex() not in logged


def test_without_the_secret_there_are_none(tmp_path: Path) -> None:
    without = {key: value for key, value in TOKENS.items() if key != "delegation.token.secret.key"}
    with BrokerThread(properties(tmp_path, **without)) as broker, connected_as(broker, "alice") as client:
        disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert create(client).error_code == disabled
        assert client.ask(DescribeDelegationTokenRequest(None), 3).error_code == disabled
        assert client.ask(RenewDelegationTokenRequest(bytes(64), -1), 2).error_code == disabled
        assert client.ask(ExpireDelegationTokenRequest(bytes(64), -1), 2).error_code == disabled
        with RawClient(port_of(broker)) as stranger:
            assert show(stranger, "x", bytes(64), ScramMechanism.SHA_256).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_an_owner_of_many_tokens_leaves_room_for_others() -> None:
    image = replay(EMPTY_IMAGE, [DelegationTokenRecord("User:a", "User:a", [], 0, 9, 9, f"{number}") for number in range(1000)])
    make = partial(create_token, image, renewers=[], now_ms=0, max_ms=9, renew_ms=9)
    with pytest.raises(KafkaError) as caught:
        make("x", owner="User:a", requester="User:a")
    assert caught.value.code == ErrorCode.POLICY_VIOLATION
    assert make("x", owner="User:a", requester="User:b").records


def test_who_has_too_many_tokens_is_told_so(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has a code alone: POLICY_VIOLATION."""
    monkeypatch.setattr(delegation_tokens, "OF_REQUESTER_MAX", 0)
    own: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "bob", "sasl_plain_password": "bob-secret"}
    refused = pytest.raises(KafkaError, match="as many tokens as the cluster, or this user, may have: expire")
    with Admin(f"127.0.0.1:{port_of(broker)}", security_protocol="SASL_PLAINTEXT", **own) as admin, refused as caught:
        admin.create_token()
    assert caught.value.code == ErrorCode.POLICY_VIOLATION


def test_what_another_controller_has_recorded_ends_no_connection() -> None:
    keys = TokenKeys(Secret("s"), b"salt")
    tokens = {owner: DelegationTokenRecord(owner, owner, [owner], 0, 9, 9, owner) for owner in ("", "User", "User:", "Group:a")}
    for token_id, record in tokens.items():
        assert keys.user(tokens, token_id, ScramMechanism.SHA_256, 0) is None
        assert _described(record, b"").principal_name in ("", "a")
    for _ in range(3000):
        tokens = {**dict(list(tokens.items())[:4]), f"{len(keys._known)}": tokens["User"]}
        assert keys.find(tokens, keys.hmac_of(next(reversed(tokens)))) == next(reversed(tokens))
        assert keys.find(tokens, keys.hmac_of("gone")) is None
    assert len(keys._known) < 1100, "what was removed is forgotten some time"


def test_the_controller_removes_expired_ones() -> None:
    async def main() -> None:
        more = {"delegation.token.secret.key": SECRET, "delegation.token.expiry.check.interval.ms": "20000"}
        broker = SimBroker(Simulation(5), more)
        await broker.start()
        assert broker.broker is not None
        node = broker.broker
        now_ms = node.world.clock.now_ms()
        for token_id, life_ms in (("short", 30_000), ("long", 10 * HOUR_MS)):
            decision = partial(
                create_token, token_id=token_id, owner="User:a", requester="User:a", renewers=[], now_ms=now_ms, max_ms=life_ms,
                renew_ms=HOUR_MS,
            )  # fmt: skip
            await node.controller.decide([decision])
        assert set(node.image.delegation_tokens) == {"short", "long"}
        await until(lambda: set(node.image.delegation_tokens) == {"long"})
        assert node.world.clock.now_ms() >= now_ms + 39_000, "the second round"
        await broker.stop()

    run(asyncio.wait_for(main(), 600))
