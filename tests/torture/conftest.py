"""Kafka's Java client and tools, as tests/interop has them, for the runs that they take part in."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.conftest import java
from tests.interop.conftest import java_client as interop_java_client

__all__ = ["interop_java_client", "java"]


@pytest.fixture
def java_client(tmp_path: Path, interop_java_client: list[str]) -> list[str]:
    """The command of interop.Client. What the client logs is kept beside the nodes' files, in ``java.log``."""
    java, *rest = interop_java_client
    return [java, f"-Dorg.slf4j.simpleLogger.logFile={tmp_path / 'java.log'}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info", *rest]
