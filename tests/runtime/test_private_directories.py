"""Who may read what the broker writes: the metadata log only the user that the broker runs as."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.broker.test_node import properties

from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.controller.topics import NewTopic
from ottla.runtime.world import real_world


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


def modes(directory: Path) -> set[str]:
    return {mode(path) for path in directory.iterdir()}


def test_the_metadata_log_is_for_its_user_alone_and_so_is_one_of_before(tmp_path: Path) -> None:
    async def run() -> None:
        broker = Broker(real_world(), BrokerConfig(properties(tmp_path) | {"metadata.log.max.record.bytes.between.snapshots": "1"}))
        await broker.start()
        await broker.controller.create_topics([NewTopic("t", 1, 1)])
        await broker.stop()

    before = os.umask(0o022)
    try:
        asyncio.run(run())
        [directory] = tmp_path.rglob("__cluster_metadata-0")
        names = {path.suffix or path.name for path in directory.iterdir()}
        assert {".log", ".index", ".checkpoint", "quorum-state"} <= names
        assert (mode(directory), modes(directory)) == ("0o700", {"0o600"})
        os.chmod(directory, 0o755)
        for path in directory.iterdir():
            os.chmod(path, 0o644)
        asyncio.run(run())
        assert (mode(directory), modes(directory)) == ("0o700", {"0o600"})
        assert (mode(directory.parent / "t-0"), modes(directory.parent / "t-0")) == ("0o755", {"0o644"}), "what others may have to back up"
    finally:
        os.umask(before)
