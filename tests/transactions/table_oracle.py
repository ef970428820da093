"""What the coordinator has to decide, once more and in another way: sentences of the KIPs, one after the other, in place of a table.

Nothing of the machine is used here but its values. Source: KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.errors import ErrorCode
from ottla.transactions.commands import (
    AddPartitions,
    EndResult,
    EndTransaction,
    InitProducerId,
    InitResult,
    PartitionsResult,
    VerifyPartitions,
)
from ottla.transactions.transaction import Transaction, TransactionState

State = TransactionState
EXHAUSTED = 32_766
UNKNOWN, NOBODY = -1, -2
Seen = tuple[State, int, int, frozenset[Any], int, int, int]
"""State, producer id and epoch, partitions, previous and next producer id, version."""


@dataclass
class Expected:
    written: list[Seen] = field(default_factory=list)
    reply: Any = None
    waits: bool = False
    takes_producer_id: bool = False


def seen(found: Transaction) -> Seen:
    ids = (found.previous_producer_id, found.next_producer_id)
    return (found.state, found.producer_id, found.producer_epoch, found.partitions, *ids, found.version)


def expected(found: Transaction | None, command: Any, *, is_late: bool) -> Expected:
    """``is_late``: a marker was tried in vain."""
    if isinstance(command, InitProducerId):
        return _init(found, command)
    if isinstance(command, EndTransaction):
        return _end(found, command)
    return _partitions(found, command, is_late=is_late)


def _init(found: Transaction | None, command: InitProducerId) -> Expected:
    fresh = command.fresh_producer_id
    if found is None:
        if fresh < 0:
            return Expected(takes_producer_id=True)
        previous = command.producer_id
        return Expected([(State.EMPTY, fresh, 0, frozenset(), previous, -1, 0)], InitResult(0, fresh, 0))
    if found.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        return Expected(waits=True)
    goes_on = command.producer_id >= 0
    is_current = (command.producer_id, command.producer_epoch) == (found.producer_id, found.producer_epoch)
    if found.state == State.ONGOING:
        if goes_on and not is_current:
            return Expected(reply=InitResult(ErrorCode.PRODUCER_FENCED))
        return _aborted(found, fresh)
    if goes_on and not is_current:
        if command.producer_id == found.producer_id and command.producer_epoch == found.last_epoch:
            return Expected(reply=InitResult(0, found.producer_id, found.producer_epoch))
        had = EXHAUSTED if found.last_epoch == UNKNOWN else found.last_epoch
        if found.producer_epoch == 0 and (command.producer_id, command.producer_epoch) == (found.previous_producer_id, had):
            return Expected(reply=InitResult(0, found.producer_id, 0))
        return Expected(reply=InitResult(ErrorCode.PRODUCER_FENCED))
    if found.producer_epoch >= EXHAUSTED:
        if fresh < 0:
            return Expected(takes_producer_id=True)
        return Expected([(State.EMPTY, fresh, 0, frozenset(), found.producer_id, -1, 0)], InitResult(0, fresh, 0))
    epoch = found.producer_epoch + 1
    written = (State.EMPTY, found.producer_id, epoch, frozenset[Any](), found.previous_producer_id, -1, 0)
    return Expected([written], InitResult(0, found.producer_id, epoch))


def _aborted(found: Transaction, fresh: int) -> Expected:
    """A fence: who asks waits for the markers."""
    is_last = found.producer_epoch >= EXHAUSTED
    if is_last and fresh < 0:
        return Expected(takes_producer_id=True)
    next_id = fresh if is_last else -1
    ids = (found.previous_producer_id, next_id)
    written = (State.PREPARE_ABORT, found.producer_id, found.producer_epoch + 1, found.partitions, *ids, found.version)
    return Expected([written], waits=True)


def _partitions(found: Transaction | None, command: AddPartitions | VerifyPartitions, *, is_late: bool) -> Expected:
    count = len(command.partitions)
    if found is None:
        return Expected(reply=PartitionsResult((ErrorCode.INVALID_PRODUCER_ID_MAPPING,) * count))
    if found.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        waits = isinstance(command, AddPartitions) and not (is_late and command.transaction_version == 2)
        return Expected(waits=True) if waits else Expected(reply=PartitionsResult((ErrorCode.CONCURRENT_TRANSACTIONS,) * count))
    if command.producer_id != found.producer_id:
        return Expected(reply=PartitionsResult((ErrorCode.INVALID_PRODUCER_ID_MAPPING,) * count))
    if command.producer_epoch != found.producer_epoch:
        return Expected(reply=PartitionsResult((ErrorCode.PRODUCER_FENCED,) * count))
    known = found.partitions if found.state == State.ONGOING else frozenset()
    if isinstance(command, VerifyPartitions):
        return Expected(reply=PartitionsResult(tuple(0 if one in known else ErrorCode.TRANSACTION_ABORTABLE for one in command.partitions)))
    done = Expected(reply=PartitionsResult((0,) * count))
    if found.state == State.ONGOING and known >= set(command.partitions):
        return done
    every = known | set(command.partitions)
    version = command.transaction_version
    done.written = [
        (State.ONGOING, found.producer_id, found.producer_epoch, every, found.previous_producer_id, found.next_producer_id, version)
    ]
    return done


def _end(found: Transaction | None, command: EndTransaction) -> Expected:
    if found is None:
        return Expected(reply=EndResult(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    asked = (command.producer_id, command.producer_epoch)
    is_current = asked == (found.producer_id, found.producer_epoch)
    raises = command.transaction_version == 2
    is_before = raises and found.version == 2 and found.state not in (State.EMPTY, State.ONGOING) and (
        asked == (found.producer_id, found.producer_epoch - 1)
        or (found.producer_epoch == 0 and asked == (found.previous_producer_id, EXHAUSTED))
    )  # fmt: skip
    committed = found.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
    is_decided = found.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)
    of_last = is_before or (not raises and is_current and found.state not in (State.EMPTY, State.ONGOING))
    if of_last and committed != command.is_commit and (is_before or not is_decided):
        fenced = raises and command.is_commit
        return Expected(reply=EndResult(ErrorCode.PRODUCER_FENCED if fenced else ErrorCode.INVALID_TXN_STATE))
    if is_decided:
        return Expected(waits=True)
    if of_last:
        return Expected(reply=EndResult(0, found.producer_id, found.producer_epoch))
    if not is_current:
        same_id = command.producer_id == found.producer_id
        return Expected(
            reply=EndResult(
                ErrorCode.PRODUCER_FENCED if same_id or _was_before(found, asked, raises) else ErrorCode.INVALID_PRODUCER_ID_MAPPING
            )
        )
    if found.state != State.ONGOING and (command.is_commit or not raises):
        return Expected(reply=EndResult(ErrorCode.INVALID_TXN_STATE))
    return _decided(found, command, raises=raises)


def _was_before(found: Transaction, asked: tuple[int, int], raises: bool) -> bool:
    """The end of the transaction before has given the producer its next id, and it is at work there."""
    return raises and found.version == 2 and found.producer_epoch == 0 and asked == (found.previous_producer_id, EXHAUSTED)


def _decided(found: Transaction, command: EndTransaction, *, raises: bool) -> Expected:
    fresh = command.fresh_producer_id
    is_last = raises and found.producer_epoch >= EXHAUSTED
    if is_last and fresh < 0:
        return Expected(takes_producer_id=True)
    version = command.transaction_version
    epoch = found.producer_epoch + raises
    next_id = fresh if is_last else found.next_producer_id if not raises else -1
    prepare, complete = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT) if command.is_commit else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
    partitions = found.partitions if found.state == State.ONGOING else frozenset[Any]()
    written: list[Seen] = [(prepare, found.producer_id, epoch, partitions, found.previous_producer_id, next_id, version)]
    reply = EndResult(0, fresh, 0) if is_last else EndResult(0, found.producer_id, epoch)
    if not partitions:
        previous = found.producer_id if is_last else found.previous_producer_id
        written.append((complete, reply.producer_id, reply.producer_epoch, frozenset(), previous, -1, version))
    return Expected(written, reply)
