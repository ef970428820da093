"""Kafka's Java client, as tests/interop has it, for the runs that it takes part in."""

from tests.interop.conftest import java_client

__all__ = ["java_client"]
