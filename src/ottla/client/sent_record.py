"""The future of one record."""

from __future__ import annotations

import asyncio

from ottla.client.accumulator import RecordMetadata


class SentRecord(asyncio.Future[RecordMetadata]):
    """The place where the record landed, once it is acknowledged; or a KafkaError."""

    @property
    def is_unseen(self) -> bool:
        """It has failed, and no caller has looked at its exception."""
        return self._log_traceback  # which asyncio itself checks when it warns of such futures
