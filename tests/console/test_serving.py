"""What the console says of its brokers: an outage once, however many clients the pages have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.console import serving
from ottla.errors import ErrorCode, KafkaError


class EndOfTestError(Exception):
    """The error of the first client that would be used."""


def test_one_client_says_that_no_broker_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    said: list[KafkaError | None] = []

    def probe(bootstrap: str, settings: dict[str, Any]) -> None:
        made.append(settings)

    def admin(bootstrap: str, **settings: Any) -> None:
        made.append(settings)
        raise EndOfTestError

    monkeypatch.setattr(serving, "Probe", probe)
    monkeypatch.setattr(serving, "Admin", admin)
    with pytest.raises(EndOfTestError):
        asyncio.run(serving.serve("127.0.0.1:1", {}, on_connectivity=said.append))
    problem = KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker")
    for settings in made:
        settings["on_connectivity"](problem)  # each has one: without, a client warns by Python's logging
    assert (len(made), said) == (2, [problem])
