"""A rebalance that is called off before the member has given anything up, while the commit before it has no answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from ottla.client.rebalances import Rebalances


def test_records_are_handed_out_again() -> None:
    """The group's next answer gives the member what it has, so that there is no round which would end the wait."""

    async def main() -> None:
        async def commit_by(deadline_ms: int) -> bool:
            return False

        membership, fetcher = SimpleNamespace(needs_rejoin=True), SimpleNamespace(is_held=False)
        clock: Any = None
        parts: Any = (membership, {}, SimpleNamespace(commit_by=commit_by), fetcher, list)
        rebalances = Rebalances(clock, *parts)
        subscription: Any = SimpleNamespace(is_ended=False)
        assert not await rebalances.run(subscription, 100)
        assert fetcher.is_held
        membership.needs_rejoin = False
        assert await rebalances.run(subscription, 200)
        assert not fetcher.is_held

    asyncio.run(main())
