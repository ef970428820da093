"""The future of one record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ottla.client.accumulator import RecordMetadata


class SentRecord(asyncio.Future[RecordMetadata]):
    """The place where the record landed, once it is acknowledged; or a KafkaError."""

    @staticmethod
    def land(records: Iterable[SentRecord], places: Iterable[RecordMetadata]) -> None:
        """Marks each record as landed at its place, unless it has failed before or its caller is gone."""
        for record, place in zip(records, places):
            if not record.done():
                record.set_result(place)

    @property
    def is_unseen(self) -> bool:
        """It has failed, and no caller has looked at its exception."""
        return self._log_traceback  # which asyncio itself checks when it warns of such futures
