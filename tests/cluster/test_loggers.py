"""Levels of loggers are a broker's own: whichever node is the active controller, each broker changes those of its process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cluster.loop_clients import asking
from tests.cluster.one_loop import cluster_on_loop

from ottla import loggers
from ottla.client.admin import BrokerLoggers


def test_each_broker_changes_its_own_loggers_also_without_a_controller(tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster_on_loop(tmp_path) as cluster:
            for node_id in (1, 2, 3):
                async with asking(cluster, node_id) as admin:
                    await admin.alter_configs({BrokerLoggers(node_id): {"ottla.broker.homes": "WARN"}})
                    assert (await admin.describe_configs(BrokerLoggers(node_id)))["ottla.broker.homes"].value == "WARN"
                    await admin.alter_configs({BrokerLoggers(node_id): {"ottla.broker.homes": None}})
            await cluster.stop(2, 3)
            async with asking(cluster, 1) as admin:
                await admin.alter_configs({BrokerLoggers(1): {"ottla.broker.homes": "WARN"}})

    before = dict(loggers._levels)
    try:
        asyncio.run(body())
    finally:
        loggers._levels.clear()
        loggers.set_levels(before.items())
