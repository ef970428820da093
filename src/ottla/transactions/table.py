"""What the coordinator does, by what is asked and by the state that the transaction is in.

In a prepared state requests wait before their id and epoch are looked at: a client that is quicker than its own markers, or whose next
epoch is not recorded yet, would be fenced by itself otherwise (KAFKA-18464, KAFKA-18660). Source: KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.errors import ErrorCode
from ottla.messages.transaction_records import LAST_EPOCH_UNKNOWN
from ottla.transactions.commands import AddPartitions, Asked, EndTransaction, InitProducerId, VerifyPartitions
from ottla.transactions.transaction import EPOCH_MAX, NO_PRODUCER_ID, Transaction, TransactionState


class Do(Enum):
    """An action of the table that is more than an error code."""

    CREATE = "a new producer id at epoch 0"
    RENEW = "the next epoch, or a new producer id where epochs are exhausted"
    FENCE = "the open transaction is aborted under the next epoch; then it is decided again"
    REPEAT = "the answer that was lost"
    BEGIN = "a transaction with these partitions"
    EXTEND = "these partitions too, where they are not part of it yet"
    COMPARE = "whether the partitions are part of it"
    COMMIT = "it is decided: committed"
    ABORT = "it is decided: aborted"
    ABORT_NOTHING = "the next epoch, as after an abort; no partition has to learn of it"
    WAIT = "decided again when the markers are written"


class Row(Enum):
    """A kind of request. "Current" is the id and epoch of the state; "before" what the client had before an answer that it did not get."""

    INIT = "InitProducerId without an id"
    INIT_CURRENT = "InitProducerId with the current id and epoch"
    INIT_BEFORE = "InitProducerId with what it had before"
    INIT_OTHER = "InitProducerId with any other id or epoch"
    ADD_CURRENT = "partitions or offsets are added"
    ADD_OTHER = "partitions or offsets are added, with another epoch"
    ADD_UNMAPPED = "partitions or offsets are added, with another id"
    VERIFY_CURRENT = "partitions are verified"
    VERIFY_OTHER = "partitions are verified, with another epoch"
    VERIFY_UNMAPPED = "partitions are verified, with another id"
    COMMIT_0 = "EndTxn 0-4: commit"
    ABORT_0 = "EndTxn 0-4: abort"
    COMMIT_2 = "EndTxn 5: commit"
    ABORT_2 = "EndTxn 5: abort"
    COMMIT_2_BEFORE = "EndTxn 5: commit, with what it had before"
    ABORT_2_BEFORE = "EndTxn 5: abort, with what it had before"
    END_OTHER = "EndTxn with any other epoch"
    END_UNMAPPED = "EndTxn with another id"


Cell = Do | ErrorCode

_CREATE, _RENEW, _FENCE, _REPEAT, _BEGIN, _EXTEND = Do.CREATE, Do.RENEW, Do.FENCE, Do.REPEAT, Do.BEGIN, Do.EXTEND
_COMPARE, _COMMIT, _ABORT, _NOTHING, _WAIT = Do.COMPARE, Do.COMMIT, Do.ABORT, Do.ABORT_NOTHING, Do.WAIT
_MAPPING, _FENCED, _INVALID = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE
_ABORTABLE, _BUSY = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.CONCURRENT_TRANSACTIONS

_COLUMNS: Final = (
    None, TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT,
)  # fmt: skip
"""None is an id that is not known."""

_TABLE: Final[dict[Row, tuple[Cell, ...]]] = {
    #                     unknown   Empty       Ongoing   PrepareCommit PrepareAbort CompleteCommit CompleteAbort
    Row.INIT:            (_CREATE,  _RENEW,     _FENCE,     _WAIT,      _WAIT,       _RENEW,        _RENEW),
    Row.INIT_CURRENT:    (_CREATE,  _RENEW,     _FENCE,     _WAIT,      _WAIT,       _RENEW,        _RENEW),
    Row.INIT_BEFORE:     (_CREATE,  _REPEAT,    _FENCED,    _WAIT,      _WAIT,       _REPEAT,       _REPEAT),
    Row.INIT_OTHER:      (_CREATE,  _FENCED,    _FENCED,    _WAIT,      _WAIT,       _FENCED,       _FENCED),
    Row.ADD_CURRENT:     (_MAPPING, _BEGIN,     _EXTEND,    _WAIT,      _WAIT,       _BEGIN,        _BEGIN),
    Row.ADD_OTHER:       (_MAPPING, _FENCED,    _FENCED,    _WAIT,      _WAIT,       _FENCED,       _FENCED),
    Row.ADD_UNMAPPED:    (_MAPPING, _MAPPING,   _MAPPING,   _WAIT,      _WAIT,       _MAPPING,      _MAPPING),
    Row.VERIFY_CURRENT:  (_MAPPING, _ABORTABLE, _COMPARE,   _BUSY,      _BUSY,       _ABORTABLE,    _ABORTABLE),
    Row.VERIFY_OTHER:    (_MAPPING, _FENCED,    _FENCED,    _BUSY,      _BUSY,       _FENCED,       _FENCED),
    Row.VERIFY_UNMAPPED: (_MAPPING, _MAPPING,   _MAPPING,   _BUSY,      _BUSY,       _MAPPING,      _MAPPING),
    # Partitions of the next transaction may be waiting to be added: what ends it was sent after them, and must not overtake them.
    Row.COMMIT_0:        (_MAPPING, _INVALID,   _COMMIT,    _WAIT,      _WAIT,       _REPEAT,       _INVALID),
    Row.ABORT_0:         (_MAPPING, _INVALID,   _ABORT,     _WAIT,      _WAIT,       _INVALID,      _REPEAT),
    Row.COMMIT_2:        (_MAPPING, _INVALID,   _COMMIT,    _WAIT,      _WAIT,       _INVALID,      _INVALID),
    Row.ABORT_2:         (_MAPPING, _NOTHING,   _ABORT,     _WAIT,      _WAIT,       _NOTHING,      _NOTHING),
    # A commit that comes after a timeout is fenced: INVALID_TXN_STATE would be fatal (KAFKA-20785).
    Row.COMMIT_2_BEFORE: (_MAPPING, _FENCED,    _FENCED,    _WAIT,      _FENCED,     _REPEAT,       _FENCED),
    Row.ABORT_2_BEFORE:  (_MAPPING, _FENCED,    _FENCED,    _INVALID,   _WAIT,       _INVALID,      _REPEAT),
    Row.END_OTHER:       (_MAPPING, _FENCED,    _FENCED,    _WAIT,      _WAIT,       _FENCED,       _FENCED),
    Row.END_UNMAPPED:    (_MAPPING, _MAPPING,   _MAPPING,   _WAIT,      _WAIT,       _MAPPING,      _MAPPING),
}  # fmt: skip

TABLE: Final[dict[Row, dict[TransactionState | None, Cell]]] = {
    row: dict(zip(_COLUMNS, cells, strict=True)) for row, cells in _TABLE.items()
}


def row_of(command: Asked, known: Transaction | None) -> Row:
    """Returns what is asked, seen from the state."""
    if isinstance(command, InitProducerId):
        return _init_row(command, known)
    if isinstance(command, EndTransaction):
        return _end_row(command, known)
    is_mapped = known is not None and command.producer_id == known.producer_id
    is_current = is_mapped and known is not None and command.producer_epoch == known.producer_epoch
    if isinstance(command, AddPartitions):
        return Row.ADD_CURRENT if is_current else Row.ADD_OTHER if is_mapped else Row.ADD_UNMAPPED
    assert isinstance(command, VerifyPartitions), "there are no other commands of clients and brokers"
    return Row.VERIFY_CURRENT if is_current else Row.VERIFY_OTHER if is_mapped else Row.VERIFY_UNMAPPED


def _init_row(command: InitProducerId, known: Transaction | None) -> Row:
    if command.producer_id == NO_PRODUCER_ID:
        return Row.INIT
    if known is None:
        return Row.INIT_OTHER
    asked = (command.producer_id, command.producer_epoch)
    if asked == (known.producer_id, known.producer_epoch):
        return Row.INIT_CURRENT
    if asked == (known.producer_id, known.last_epoch):
        return Row.INIT_BEFORE
    if command.producer_id == known.previous_producer_id and known.producer_epoch == 0:
        # What the client had last is not in the records of Kafka's coordinators: there only an exhausted epoch can be what it had.
        is_last = command.producer_epoch == (EPOCH_MAX if known.last_epoch == LAST_EPOCH_UNKNOWN else known.last_epoch)
        return Row.INIT_BEFORE if is_last else Row.INIT_OTHER
    return Row.INIT_OTHER


def _end_row(command: EndTransaction, known: Transaction | None) -> Row:
    asked = (command.producer_id, command.producer_epoch)
    if known is not None and asked == (known.producer_id, known.producer_epoch):
        if command.transaction_version < 2:
            return Row.COMMIT_0 if command.is_commit else Row.ABORT_0
        return Row.COMMIT_2 if command.is_commit else Row.ABORT_2
    if known is not None and command.transaction_version >= 2 and _was_raised_from(asked, known):
        return Row.COMMIT_2_BEFORE if command.is_commit else Row.ABORT_2_BEFORE
    is_mapped = known is not None and command.producer_id == known.producer_id
    return Row.END_OTHER if is_mapped else Row.END_UNMAPPED


def _was_raised_from(asked: tuple[int, int], known: Transaction) -> bool:
    """True when the end of the last transaction has raised this id and epoch to the present ones.

    Below version 2 an end raises nothing: there a zombie has the epoch before.
    """
    if known.version < 2:
        return False
    is_next_epoch = asked == (known.producer_id, known.producer_epoch - 1)
    return is_next_epoch or (known.producer_epoch == 0 and asked == (known.previous_producer_id, EPOCH_MAX))
