"""What an application's ``on_connectivity`` raises: it is logged, and the function is called for the next change all the same."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.simulated import with_broker

from ottla.client.watch import watch
from ottla.errors import ErrorCode, KafkaError
from ottla.sim.cluster import SimBroker


def test_what_on_connectivity_raises_is_logged_and_ends_no_watch(caplog: pytest.LogCaptureFixture) -> None:
    """It ended the watch without a word: neither the function nor a warning said anything from then on."""
    states = [None, KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker at h:1"), None]
    seen: list[KafkaError | None] = []

    async def reach() -> None:
        if not states:
            raise asyncio.CancelledError
        if (problem := states.pop(0)) is not None:
            raise problem

    def on_connectivity(error: KafkaError | None) -> None:
        seen.append(error)
        raise ZeroDivisionError("the application's own")

    async def body(_: SimBroker) -> None:
        with pytest.raises(asyncio.CancelledError):
            await watch(reach, on_connectivity)

    with_broker(body)
    assert [None if error is None else error.code for error in seen] == [ErrorCode.NETWORK_EXCEPTION, None]
    logged = [record for record in caplog.records if record.name == "ottla.client"]
    texts = [record.getMessage() for record in logged]
    whys = ("no broker can be reached: NETWORK_EXCEPTION: no broker at h:1", "a broker can be reached again")
    assert texts == [f"on_connectivity raised ZeroDivisionError: the application's own; it was called since {why}" for why in whys]
    assert all(record.exc_info is not None for record in logged)
