"""What is asked of the transaction coordinator, and what it answers.

``producer_id`` and ``producer_epoch`` are the client's. ``transaction_version`` is 2 for requests that only clients of
transaction.version 2 send (EndTxn 5, AddPartitionsToTxn 4 and 5), else 0. ``fresh_producer_id`` is filled by the runner when the machine
asks for it (``TakeProducerId``). Codes are as in each API's newest version; handlers know what older ones have in their place.
"""

from __future__ import annotations

import msgspec

from ottla.errors import ErrorCode
from ottla.machine import Command
from ottla.transactions.transaction import NO_PRODUCER_ID, Transaction
from ottla.types import NO_EPOCH, TopicPartition


class InitProducerId(Command["InitResult"], msgspec.Struct, frozen=True):
    """``producer_id`` is -1 of a producer that starts; it fences the one before it. One that goes on names its id and epoch (KIP-360)."""

    token: int
    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    fresh_producer_id: int = NO_PRODUCER_ID


class InitResult(msgspec.Struct, frozen=True):
    error_code: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class AddPartitions(Command["PartitionsResult"], msgspec.Struct, frozen=True):
    """AddOffsetsToTxn adds the group's partition of ``__consumer_offsets``."""

    token: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0


class VerifyPartitions(Command["PartitionsResult"], msgspec.Struct, frozen=True):
    """A question whether the partitions are part of the open transaction."""

    token: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


class PartitionsResult(msgspec.Struct, frozen=True):
    """One code for each partition, in the order of the command."""

    error_codes: tuple[int, ...]


class EndTransaction(Command["EndResult"], msgspec.Struct, frozen=True):
    token: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    transaction_version: int = 0
    fresh_producer_id: int = NO_PRODUCER_ID


class EndResult(msgspec.Struct, frozen=True):
    """The id and epoch that the producer has from now on."""

    error_code: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class DescribeTransaction(Command["DescribeResult"], msgspec.Struct, frozen=True):
    token: int
    transactional_id: str


class DescribeResult(msgspec.Struct, frozen=True):
    """The description of a transaction. Once it is prepared, ``partitions`` lists those without a marker. None when the id is not known."""

    transaction: Transaction | None


class ListTransactions(Command["ListResult"], msgspec.Struct, frozen=True):
    token: int


class ListResult(msgspec.Struct, frozen=True):
    transactions: tuple[tuple[str, Transaction], ...]


class AnswerMarkers(Command[None], msgspec.Struct, frozen=True):
    """Brokers have answered for these partitions of a transaction (KAFKA-16352: of this one, and not of an earlier epoch's).

    A partition whose broker did not answer has NETWORK_EXCEPTION. ``deleted`` are those that are missing in an image that has
    everything the controller had committed when the decision was made. A command that comes to nothing is decided again.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    answers: tuple[tuple[TopicPartition, int], ...]
    deleted: frozenset[TopicPartition] = frozenset()


class AbortTimedOut(Command[None], msgspec.Struct, frozen=True):
    """Open transactions whose time has passed are aborted; this one alone when it is named, because it takes a fresh producer id."""

    transactional_id: str | None = None
    fresh_producer_id: int = NO_PRODUCER_ID


class ExpireIds(Command[None], msgspec.Struct, frozen=True):
    """Transactional ids that were not used for too long are forgotten."""


Asked = InitProducerId | AddPartitions | VerifyPartitions | EndTransaction
"""What clients and brokers ask of one transaction."""


def refusal(command: Asked, code: ErrorCode) -> InitResult | PartitionsResult | EndResult:
    """Returns the answer that has only this code."""
    if isinstance(command, InitProducerId):
        return InitResult(code)
    if isinstance(command, EndTransaction):
        return EndResult(code)
    return PartitionsResult((code,) * len(command.partitions))
