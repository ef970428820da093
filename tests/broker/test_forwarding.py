"""What a broker makes of the controller's answer to a request that it has passed on, when it is slow to follow."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Final

import pytest

from ottla.broker.handlers import SERVICES
from ottla.broker.peers.controller_channel import NO_CONTROLLER, ControllerChannel
from ottla.broker.requests.forwarding import LEADERLESS_MS_MAX, SHOWN_MS_MAX, UNANSWERED, UNDECIDED, Forwarding
from ottla.broker.roles import Role
from ottla.errors import ErrorCode
from ottla.messages import alter_client_quotas, alter_user_scram_credentials, create_topics, describe_quorum, incremental_alter_configs
from ottla.messages.envelope import EnvelopeResponse
from ottla.messages.headers import RequestHeader, encode_request_header
from ottla.messages.registry import API_BY_NAME, API_OF_REQUEST, Api
from ottla.security.principal import ANONYMOUS
from ottla.sim.loop import run
from ottla.wire.compiler import decode, encode

WAIT_MS: Final = 30_000


class Client:
    """A request's context: what becomes of it, and after how many seconds."""

    def __init__(self, api: str) -> None:
        self.api = API_BY_NAME[api]
        self.principal = ANONYMOUS
        self.end: asyncio.Future[tuple[str, float]] = asyncio.get_running_loop().create_future()
        self.connection = SimpleNamespace(client_host="127.0.0.1", transport=SimpleNamespace(abort=lambda: self._ended("aborted")))

    def complete(self, _: Any) -> None:
        self._ended("answered")

    def _ended(self, how: str) -> None:
        self.end.set_result((how, asyncio.get_running_loop().time()))


async def passed_on(api: str, *, shown_after_s: float) -> tuple[str, float]:
    async def decided(*_: Any, **__: Any) -> EnvelopeResponse:
        await asyncio.sleep(0)  # an answer never comes at once
        return EnvelopeResponse(b"answer", metadata_end_offset=7)

    async def shown(end_offset: int) -> None:
        assert end_offset == 7
        await asyncio.sleep(shown_after_s)

    channel: Any = SimpleNamespace(ask_until=decided)
    client: Any = Client(api)
    Forwarding(channel, shown, wait_ms_max=WAIT_MS).forward(client, b"frame")
    found: tuple[str, float] = await client.end
    return found


@pytest.mark.parametrize("api", ["CreateTopics", "CreateAcls", "DeleteAcls", "AlterUserScramCredentials"])
def test_an_answer_waits_until_the_broker_shows_what_was_decided(api: str) -> None:
    assert run(passed_on(api, shown_after_s=0.5)) == ("answered", 0.5)


def test_a_topic_that_takes_long_to_open_is_shown_later() -> None:
    assert run(passed_on("CreateTopics", shown_after_s=5)) == ("answered", SHOWN_MS_MAX / 1000)


@pytest.mark.parametrize("api", ["CreateAcls", "DeleteAcls", "AlterUserScramCredentials"])
def test_rights_are_not_answered_before_they_are_enforced(api: str) -> None:
    """A client that lost its connection knows that it does not know."""
    assert run(passed_on(api, shown_after_s=5)) == ("answered", 5)
    assert run(passed_on(api, shown_after_s=100)) == ("aborted", WAIT_MS / 1000)


FORWARDED: Final = sorted({service.api.name for service in SERVICES[Role.BROKER].values() if service.is_forwarded})


def asked(api: Api, request: Any, version: int, leaders: list[bool]) -> tuple[Any, float]:
    """Returns the answer as it comes out of the wire, and after how many seconds. The leader of each try, the last one's for all others."""

    async def scenario() -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        clock = SimpleNamespace(monotonic_ms=lambda: int(loop.time() * 1000))
        peers = SimpleNamespace(send=lambda address, request, on_answer: loop.call_soon(on_answer, None))
        tries = iter(leaders)
        last = [leaders[-1]] * 2

        def leader() -> Any:
            return ("host", 1) if next(tries, last[0]) else None

        channel: Any = ControllerChannel(SimpleNamespace(clock=clock), leader, peers)  # type: ignore[arg-type]
        client: Any = Client(api.name)
        client.version = version
        answers: list[Any] = []

        def reply(response: Any) -> None:
            answers.append(response)
            client._ended("refused")

        client.reply = reply
        is_flexible = version >= api.flexible
        header = encode_request_header(RequestHeader(api.key, version, 1, "client"), is_flexible=is_flexible)
        Forwarding(channel, lambda _: asyncio.sleep(0), wait_ms_max=WAIT_MS).forward(client, header + encode(request, version))
        how, after_s = await client.end
        assert how == "refused"
        return decode(api.response, version, memoryview(encode(answers[0], version))), after_s

    return run(scenario())


def test_without_a_controller_a_client_learns_within_seconds_that_nothing_was_decided() -> None:
    api = API_BY_NAME["CreateTopics"]
    request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("a"), create_topics.CreatableTopic("b")])
    answer, after_s = asked(api, request, 7, [False])
    found = [(topic.name, topic.error_code, topic.error_message) for topic in answer.topics]
    assert found == [(name, ErrorCode.NOT_CONTROLLER, NO_CONTROLLER) for name in ("a", "b")]
    assert LEADERLESS_MS_MAX <= after_s * 1000 <= LEADERLESS_MS_MAX + 400


def test_what_a_controller_may_have_decided_is_not_said_to_be_undecided() -> None:
    """The first controller was asked, and failed before it answered."""
    request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("a")])
    answer, after_s = asked(API_BY_NAME["CreateTopics"], request, 7, [True, True, False])
    assert [(topic.error_code, topic.error_message) for topic in answer.topics] == [(ErrorCode.REQUEST_TIMED_OUT, UNDECIDED)]
    assert after_s * 1000 <= LEADERLESS_MS_MAX + 400


def test_a_question_without_an_answer_is_not_said_to_be_a_change() -> None:
    api = API_BY_NAME["DescribeQuorum"]
    request = describe_quorum.DescribeQuorumRequest([])
    answer, _ = asked(api, request, 2, [True])
    assert (answer.error_code, answer.error_message) == (ErrorCode.REQUEST_TIMED_OUT, UNANSWERED)


def test_a_controller_that_is_known_and_silent_has_all_the_time() -> None:
    request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("a")])
    answer, after_s = asked(API_BY_NAME["CreateTopics"], request, 7, [True])
    assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert WAIT_MS - 400 <= after_s * 1000 <= WAIT_MS


@pytest.mark.parametrize("name", FORWARDED)
def test_each_request_that_brokers_pass_on_has_a_refusal_in_each_version(name: str) -> None:
    api = API_BY_NAME[name]
    for version in range(api.version_min, api.version_max + 1):
        assert isinstance(asked(api, api.request(), version, [False])[0], api.response)


def test_refusals_name_what_was_asked() -> None:
    scram = alter_user_scram_credentials
    users = scram.AlterUserScramCredentialsRequest([scram.ScramCredentialDeletion("a", 1)], [scram.ScramCredentialUpsertion("b", 1)])
    answer, _ = asked(API_OF_REQUEST[type(users)], users, 0, [False])
    assert [(each.user, each.error_code) for each in answer.results] == [("a", 41), ("b", 41)]
    quotas = alter_client_quotas
    entry = quotas.EntryData([quotas.EntityData("user", "a")])
    request = quotas.AlterClientQuotasRequest([entry])
    answer, _ = asked(API_OF_REQUEST[type(request)], request, 1, [False])
    assert [(each.entity, each.error_code) for each in answer.entries] == [(entry.entity, 41)]
    changing = incremental_alter_configs
    resource = changing.AlterConfigsResource(2, "t", [])
    answer, _ = asked(API_BY_NAME["IncrementalAlterConfigs"], changing.IncrementalAlterConfigsRequest([resource]), 1, [False])
    assert [(each.resource_type, each.resource_name, each.error_code) for each in answer.responses] == [(2, "t", 41)]
