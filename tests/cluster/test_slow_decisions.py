"""A controller that needs long for what it decides: it is asked once."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.cluster.in_simulation import SimNodes, play

from ottla.client.admin import Admin, NewTopic
from ottla.client.cluster import Cluster

DECIDING_SECONDS = 8
"""Longer than any other answer of a controller is waited for."""


def test_a_slow_decision_is_asked_for_once() -> None:
    """Asked for again, a topic that was made would be there already, and its maker would be told that he failed."""

    async def body(nodes: SimNodes) -> None:
        active = next(node.broker for node in nodes.nodes.values() if node.broker and node.broker.controller.is_active)
        decide, asked = active.controller.decide, 0

        async def decide_slowly(decisions: Any, **how: Any) -> Any:
            nonlocal asked
            results = await decide(decisions, **how)
            if "validate_only" in how:  # a client asks for it
                asked += 1
                await asyncio.sleep(DECIDING_SECONDS)
            return results

        active.controller.decide = decide_slowly  # type: ignore[method-assign]

        nodes.bootstrap = next(node.bootstrap for node in nodes.nodes.values() if node.broker is not active)

        async def create(cluster: Cluster) -> None:
            assert await Admin(cluster).create_topics([NewTopic("slow", 3, 3)]) == {"slow": None}

        await nodes.act(create)
        assert asked == 1

    play(body)
