"""Spark's own Kafka connector, whose jars PySpark does not bring: Maven fetches them into an ignored directory, for tests and ``bench``."""

from __future__ import annotations

from pathlib import Path

from tests.interop.tools import HERE, TARGET, maven

JARS = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:3.5.1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
]
DIRECTORY = TARGET / "spark-jars"


def jars() -> str:
    """For ``spark.jars``."""
    return ",".join(str(_jar(coordinates)) for coordinates in JARS)


def _jar(coordinates: str) -> Path:
    """Fetched alone, without what its description asks for: PySpark brings that."""
    _, artifact, version = coordinates.split(":")
    path = DIRECTORY / f"{artifact}-{version}.jar"
    if not path.exists():
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
        maven(plugin, f"-Dartifact={coordinates}", f"-DoutputDirectory={DIRECTORY}", cwd=HERE)
    assert path.exists(), f"{coordinates} was not fetched"
    return path
