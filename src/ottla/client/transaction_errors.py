"""What may become of a transaction, by what the application does next.

After a ``TransactionAbortableError`` it aborts, and goes on; after a ``TransactionFatalError`` it closes the producer. After a
``CommitOutcomeUnknownError`` it calls ``commit_transaction`` again. What may pass is repeated by the client and raised as neither.
"""

from __future__ import annotations

from typing import Final

from ottla.errors import ErrorCode, KafkaError


class TransactionAbortableError(KafkaError):
    """The transaction cannot be committed. ``abort_transaction`` ends it, and the producer can be used again."""


class TransactionFatalError(KafkaError):
    """The producer can only be closed."""


class ProducerFencedError(TransactionFatalError):
    """Another producer has the transactional id now, or the coordinator ended this one's transaction when its time was over."""


class CommitOutcomeUnknownError(KafkaError):
    """The coordinator did not answer in time: the transaction may be committed. ``commit_transaction`` again settles it."""


FENCED: Final = (
    "another producer has taken this transactional_id, or the transaction was open for longer than transaction_timeout_ms; "
    "what was open is aborted: close this producer, and make a new one to go on"
)
_PERHAPS_FENCED: Final = (
    "the transaction was open for longer than transaction_timeout_ms, or another producer has taken this transactional_id: "
    "abort it, as the end of `with transaction()` does, which raises ProducerFencedError where the producer cannot go on"
)
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED})
_FENCED_BY_COORDINATOR: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FATAL: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    }
)
_ABORTABLE_AT_THE_END: Final = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING})


def of_produce(problem: KafkaError) -> KafkaError:
    """Returns what a batch that was not stored means for its transaction."""
    return _as(problem, fenced=_FENCED)


def of_addition(problem: KafkaError) -> KafkaError:
    """Returns the meaning of a failed addition of partitions or offsets: nothing is decided, so most transactions can be aborted."""
    return _as(problem, fenced=_FENCED_BY_COORDINATOR)


def of_decision(problem: KafkaError) -> KafkaError:
    """Returns the meaning of a refused producer id, or a refused end of a transaction."""
    if problem.code in _FENCED_BY_COORDINATOR or problem.code in _ABORTABLE_AT_THE_END:
        return of_addition(problem)
    return TransactionFatalError(problem.code, problem.message)


def _as(problem: KafkaError, *, fenced: frozenset[ErrorCode]) -> KafkaError:
    if isinstance(problem, TransactionAbortableError | TransactionFatalError):
        return problem
    if problem.code in fenced:
        return ProducerFencedError(problem.code, f"{problem.message}: {FENCED}" if problem.message else FENCED)
    if problem.code == ErrorCode.INVALID_PRODUCER_EPOCH:
        return TransactionAbortableError(problem.code, f"{problem.message or 'the epoch is not the newest one'}: {_PERHAPS_FENCED}")
    kind = TransactionFatalError if problem.code in _FATAL else TransactionAbortableError
    return kind(problem.code, problem.message)
