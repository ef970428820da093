"""What a node says when it starts with values that do not go together."""

from __future__ import annotations

import pytest
import structlog
from tests.cluster.in_simulation import SimNodes, play


@pytest.mark.parametrize(("session_ms", "warned"), [("4000", []), ("3999", ["broker.session.timeout.ms"])])
def test_a_node_with_a_session_shorter_than_two_heartbeats_says_so_and_starts(session_ms: str, warned: list[str]) -> None:
    async def body(nodes: SimNodes) -> None:
        with structlog.testing.capture_logs() as events:
            nodes.nodes[3].kill(power_cut=False)
            nodes.nodes[3].begin()
            starting = nodes.nodes[3].starting
            assert starting is not None
            await starting
        assert [event["key"] for event in events if event["event"] == "config_contradiction"] == warned
        assert any(event["event"] == "broker_started" for event in events)

    play(body, broker_session_timeout_ms=session_ms, broker_heartbeat_interval_ms="2000")
