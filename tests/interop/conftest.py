"""Apache Kafka 4.3.0 and its Java client, for all tests that ask for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from bench.peers import Kafka, Peer
from tests.interop.both_brokers import both_brokers
from tests.interop.tools import HERE, TARGET, maven, program

from ottla.aio import Admin, KafkaError

SERVED_SECONDS_MAX = 90.0


@pytest.fixture(scope="session")
def kafka() -> Iterator[Peer]:
    assert Kafka.why_not() is None, Kafka.why_not()
    with Kafka() as started:
        asyncio.run(until_served(started.bootstrap))
        yield started


async def until_served(bootstrap: str) -> None:
    """It listens before it serves."""
    async with asyncio.timeout(SERVED_SECONDS_MAX), Admin(bootstrap) as admin:
        while True:
            try:
                await admin.describe_cluster()
            except KafkaError:
                await asyncio.sleep(0.05)
            else:
                return


@pytest.fixture(scope="session")
def java_client() -> list[str]:
    """The command that runs a task of interop.Client."""
    maven("compile", cwd=HERE / "java")
    classpath = f"{TARGET}/java/classes:{TARGET}/java/lib/*"
    return [program("java", way_to_get_it="apt install openjdk-17-jdk-headless"), "-cp", classpath, "interop.Client"]


@pytest.fixture(scope="session")
def java() -> list[str]:
    """The command that runs a class of Kafka's tools."""
    maven("package", cwd=HERE / "java_tools")
    return [program("java", way_to_get_it="apt install openjdk-17-jdk-headless"), "-cp", f"{TARGET}/java_tools/lib/*"]


@pytest.fixture(scope="session")
def java_of_3_9() -> list[str]:
    """The command that runs a class of Kafka 3.9, or one of java_zookeeper."""
    maven("compile", cwd=HERE / "java_zookeeper")
    class_path = f"{TARGET}/java_zookeeper/classes:{TARGET}/java_zookeeper/lib/*"
    return [program("java", way_to_get_it="apt install openjdk-17-jdk-headless"), "-cp", class_path]


@pytest.fixture(scope="session")
def both_ports() -> Iterator[tuple[int, int]]:
    """Of Apache Kafka and of ottla, which are asked the same."""
    with both_brokers() as ports:
        yield ports
