"""What a broker makes of the controller's answer to a request that it has passed on, when it is slow to follow."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Final

import pytest

from ottla.broker.requests.forwarding import SHOWN_MS_MAX, Forwarding
from ottla.messages.envelope import EnvelopeResponse
from ottla.messages.registry import API_BY_NAME
from ottla.security.principal import ANONYMOUS
from ottla.sim.loop import run

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
