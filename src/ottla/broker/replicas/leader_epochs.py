"""The leader epoch that a client knows, beside that of the replica that it asks (KIP-320)."""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition


def check_known_epoch(partition: TopicPartition, own: int, known: int) -> None:
    """Raises FENCED_LEADER_EPOCH for an earlier epoch of a client, UNKNOWN_LEADER_EPOCH for a later one; below 0 it does not say."""
    if known < 0 or known == own:
        return
    if known < own:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{partition} is at leader epoch {own}, not {known}")
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{partition} is at leader epoch {own}, not yet {known}")
