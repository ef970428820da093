"""A node's list of parts: what happens to the node happens to each of them, in order; and which homes a start needs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.part import Part, PartList
from ottla.metadata.delta import ImageDelta
from ottla.metadata.image import EMPTY_IMAGE

LATE = """
import asyncio, sys
from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.runtime.world import real_world

async def main():
    broker = Broker(real_world(), BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]}))
    await broker.start()
    await broker.stop()

asyncio.run(main())
print(*sorted(name for name in sys.modules if name.startswith("ottla.broker.")))
"""


DATACLASSES = """
import dataclasses, sys, ottla.cli.main, ottla.cli.broker, ottla.runtime.serve, ottla.broker.node
modules = [module for name, module in sys.modules.items() if name.startswith("ottla")]
classes = {found for module in modules for found in vars(module).values() if isinstance(found, type)}
print(*sorted(found.__qualname__ for found in classes if dataclasses.is_dataclass(found) and found.__module__.startswith("ottla")))
"""


class Noted(Part):
    """A part that notes what happens to it."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self._name = name
        self._notes = notes

    async def start(self) -> None:
        self._notes.append(f"{self._name} starts")

    async def on_image(self, delta: ImageDelta) -> None:
        self._notes.append(f"{self._name} follows {delta.new.end_offset}")

    def on_role(self, partition: str) -> None:
        self._notes.append(f"{self._name} has {partition}")

    async def stop(self) -> None:
        self._notes.append(f"{self._name} stops")


class Other(Noted):
    """A part of another kind."""


def test_parts_start_in_the_order_of_the_list_and_stop_in_the_opposite_one() -> None:
    async def body() -> None:
        await node.start()
        await node.on_image(ImageDelta(EMPTY_IMAGE, EMPTY_IMAGE))
        node.on_role("t-0")
        node.on_offline()
        await node.stop()

    notes: list[str] = []
    node = PartList()
    node.extend(Noted("a", notes), Part())
    node.extend(Other("b", notes))
    asyncio.run(body())
    assert notes == ["a starts", "b starts", "a follows 0", "b follows 0", "a has t-0", "b has t-0", "b stops", "a stops"]


def test_a_part_that_fails_keeps_no_other_from_the_image_nor_from_its_stop() -> None:
    class Failing(Part):
        async def on_image(self, delta: ImageDelta) -> None:
            raise RuntimeError("it cannot follow")

        async def stop(self) -> None:
            raise RuntimeError("it cannot stop")

    notes: list[str] = []
    node = PartList()
    node.extend(Noted("a", notes), Failing(), Noted("b", notes))
    with pytest.raises(RuntimeError, match="it cannot follow"):
        asyncio.run(node.on_image(ImageDelta(EMPTY_IMAGE, EMPTY_IMAGE)))
    with pytest.raises(RuntimeError, match="it cannot stop"):
        asyncio.run(node.stop())
    assert notes == ["a follows 0", "b follows 0", "b stops", "a stops"]


def test_a_part_is_found_by_its_kind() -> None:
    node = PartList()
    node.extend(Noted("a", []), other := Other("b", []))
    assert node.find(Other) is other
    with pytest.raises(LookupError, match="PartList"):
        node.find(PartList)


def test_a_lone_broker_starts_without_what_only_other_homes_need(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LATE, str(tmp_path / "data")], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert "ottla.broker.homes.lone" in loaded
    needless = ("homes.quorum", "homes.zookeeper", "homes.links", "zookeeper", "lifecycle", "peers.peers", "peers.sentinels", "tasks.waits")
    assert [name for name in loaded if name.removeprefix("ottla.broker.").startswith(needless)] == []


def test_a_start_defines_few_dataclasses() -> None:
    """Each takes half a millisecond, a struct fifteen microseconds: those left hide a field, or are of the API."""
    done = subprocess.run([sys.executable, "-c", DATACLASSES], capture_output=True, text=True, check=True)
    defined = done.stdout.split()
    assert "TopicPartition" in defined
    assert len(defined) <= 15, f"{defined}: the new one may be a struct (STYLE.md, Types)"
