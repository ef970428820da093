"""Which partition a record goes to.

A record with a key goes where murmur2 of the key says, as with Kafka's Java client, so that equal keys of all such
clients meet in one partition. A record without one sticks to a partition for the length of a batch and then moves on to a
random other one, which spreads evenly and keeps batches full. Source: KIP-480, Kafka's default partitioner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.errors import ErrorCode, KafkaError
from ottla.ports import Random

Partitioner = Callable[[str, bytes | None, int], int | None]
"""An application's choice: a function of topic, key and number of partitions that returns a partition; None for the default choice."""

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Returns Kafka's 32-bit murmur2 (unsigned)."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & 0xFFFFFFFF
        k = (k ^ (k >> 24)) * _M & 0xFFFFFFFF
        h = (h * _M & 0xFFFFFFFF) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * _M & 0xFFFFFFFF
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def chosen_by(partitioner: Partitioner, topic: str, key: bytes | None, partition_count: int) -> int | None:
    """Returns the partition that the application's function chooses. INVALID_REQUEST when it does not exist, or the function fails."""
    try:
        chosen: object = partitioner(topic, key, partition_count)
    except Exception as error:  # the application's code
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the partitioner failed for a record of topic {topic!r}: {error!r}") from error
    if chosen is None or (isinstance(chosen, int) and 0 <= chosen < partition_count):
        return chosen
    has = f"{partition_count} partition{'s'[: partition_count != 1]}"
    text = f"the partitioner returned {chosen!r} for a record of topic {topic!r}, which has {has}, from 0 on"
    raise KafkaError(ErrorCode.INVALID_REQUEST, text)


class StickyPartitioner:
    """Partitions for records without a key."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._current: dict[str, int] = {}

    def partition(self, topic: str, partition_count: int) -> int:
        """Returns the topic's current partition."""
        current = self._current.get(topic)
        if current is None or current >= partition_count:
            current = self._current[topic] = self._random.randrange(partition_count)
        return current

    def on_batch_closed(self, topic: str, partition: int, partition_count: int) -> None:
        """Moves the topic to another partition, for this one's batch is full or was sent."""
        if self._current.get(topic) == partition and partition_count > 1:
            step = 1 + self._random.randrange(partition_count - 1)
            self._current[topic] = (partition + step) % partition_count
