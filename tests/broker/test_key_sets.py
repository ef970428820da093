"""When the keys of tokens are read again: soon for a key that is new, and seldom for those that strangers invent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import structlog
from tests.broker.principals import until
from tests.security.issuer import key_set, rsa_jwk, rsa_key

from ottla.broker.requests.key_sets import AGAIN_MS, APART_MS, BACKOFF, BACKOFF_MAX, MISSED_MAX, REFRESH, KeySet
from ottla.ports import World


class Issuer:
    """A key set whose reads are counted, in a world whose time stands still; ``is_away`` for one that cannot be read."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.reads = 0
        self.served = key_set()
        self.is_away = False
        self.timers: list[tuple[int, Any]] = []
        world = SimpleNamespace(clock=self, timers=self, disk=self)
        config = {REFRESH: 3_600_000, BACKOFF: 100, BACKOFF_MAX: 10_000}
        self.keys = KeySet(cast(World, world), cast(Any, config), "file:/keys.json")

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_later_ms(self, delay_ms: int, callback: Any) -> Any:
        self.timers.append((delay_ms, callback))
        return SimpleNamespace(cancel=lambda: None)

    async def read_given_file(self, path: str, *, bytes_max: int) -> bytes:
        self.reads += 1
        if self.is_away:
            raise FileNotFoundError(path)
        return self.served

    @property
    def key_ids(self) -> set[str | None]:
        return {key.key_id for key in self.keys.keys}


def run(body: Any) -> None:
    async def main() -> None:
        issuer = Issuer()
        await issuer.keys.begin()
        issuer.reads = 0
        await body(issuer)

    asyncio.run(main())


def test_a_new_key_is_found_right_after_one_that_a_stranger_has_invented() -> None:
    async def body(issuer: Issuer) -> None:
        issuer.keys.look_again("invented")
        issuer.served = key_set(rsa_jwk(rsa_key(), kid="new"))
        issuer.now_ms += APART_MS
        issuer.keys.look_again("new")
        assert issuer.reads == 2
        assert "new" in issuer.key_ids

    run(body)


def test_one_unknown_key_is_looked_for_once_a_minute() -> None:
    async def body(issuer: Issuer) -> None:
        for _ in range(AGAIN_MS // 1000):
            issuer.keys.look_again("invented")
            issuer.now_ms += 1000
        assert issuer.reads == 1
        issuer.keys.look_again("invented")
        assert issuer.reads == 2

    run(body)


def test_any_number_of_invented_keys_has_the_set_read_at_a_fixed_rate_and_takes_no_memory() -> None:
    async def body(issuer: Issuer) -> None:
        for number in range(6_000):
            issuer.keys.look_again(f"invented-{number}")
            issuer.now_ms += 10
        assert issuer.reads == 60_000 // APART_MS
        assert len(issuer.keys._missed) <= MISSED_MAX

    run(body)


def test_an_issuer_that_is_away_when_a_key_is_looked_for_is_asked_again_soon_and_the_old_keys_stay() -> None:
    async def body(issuer: Issuer) -> None:
        issuer.is_away = True
        issuer.keys.look_again("new")
        assert issuer.key_ids == {"rsa", "ec"}
        delay_ms, again = issuer.timers[-1]
        assert delay_ms == 100
        issuer.is_away, issuer.served = False, key_set(rsa_jwk(rsa_key(), kid="new"))
        again()
        assert issuer.key_ids == {"rsa", "ec", "new"}
        assert issuer.timers[-1][0] == 3_600_000

    run(body)


def test_a_read_that_the_stop_of_the_node_ends_is_no_error() -> None:
    """The log had an error at each stop while the issuer did not answer."""

    async def body(issuer: Issuer) -> None:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        issuer.read_given_file = lambda path, bytes_max: answer  # type: ignore[method-assign,assignment,misc]
        with structlog.testing.capture_logs() as events:
            issuer.keys.look_again("new")
            issuer.keys.stop()
            answer.set_exception(OSError("the loop ends"))
            await until(lambda: not issuer.keys._is_reading)
        assert events == []

    run(body)
