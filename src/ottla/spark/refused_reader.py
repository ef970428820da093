"""A reader of a stream whose options are refused, which fails when Spark first asks it for something.

PySpark's runner of streaming sources stops its reader in any case. Where ``streamReader`` fails there is none yet, and the error that a
person sees last is then the runner's own: ``UnboundLocalError: cannot access local variable 'reader'``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that raises its error, whatever it is asked."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> NoReturn:
        raise self._error

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> NoReturn:
        raise self._error

    def latestOffset(self, start: dict[str, Any], limit: Any) -> NoReturn:
        raise self._error

    def reportLatestOffset(self) -> NoReturn:
        raise self._error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        raise self._error

    def read(self, partition: Any) -> Iterator[Any]:
        raise self._error
