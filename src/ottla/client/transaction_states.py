"""The states of a transactional producer, and what may be called in each.

CALLS says which state each call leads to, from where; a call that is not listed for the state raises before anything is sent.
EVENTS says the same of what comes back. Failures are events, too: one that can be aborted moves only where a transaction is open, a
fatal one moves from everywhere, and nothing leads out of FATAL.

SETTLING is the state after an EndTxn that commits went out and its answer was lost: the transaction may be committed, so nothing that
comes later makes it one that can be aborted. Source: KIP-98, KIP-691.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from ottla.client.transaction_errors import ProducerFencedError, TransactionAbortableError, TransactionFatalError
from ottla.errors import ErrorCode, KafkaError


class State(Enum):
    UNINITIALIZED = "init_transactions has not been called"
    INITIALIZING = "init_transactions has not returned yet"
    READY = "no transaction is open"
    BEGINNING = "begin_transaction has not returned yet"
    IN_TRANSACTION = "a transaction is open"
    COMMITTING = "commit_transaction has not returned yet"
    SETTLING = "commit_transaction asks again"
    OUTCOME_UNKNOWN = "the last commit_transaction was not answered; call it again"
    ABORTABLE = "the transaction has failed; call abort_transaction"
    ABORTING = "abort_transaction has not returned yet"
    FATAL = "the producer has failed; close it"


class Call(Enum):
    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


class Event(Enum):
    INITIALIZED = "the coordinator has given an id and an epoch"
    NOT_INITIALIZED = "the coordinator has given no id in time"
    BEGUN = "the transaction has the epoch that it needs"
    NOT_BEGUN = "the coordinator has given no new epoch in time"
    CALLED_OFF = "commit_transaction was cancelled before the end of the transaction was asked for"
    LOST = "the answer to a commit was lost"
    UNANSWERED = "the coordinator was asked to end the transaction, and did not answer in time"
    FAILED = "something of the transaction failed"
    ENDED = "the transaction is committed or aborted"


CALLS: Final = {
    Call.INIT: {State.UNINITIALIZED: State.INITIALIZING},
    Call.BEGIN: {State.READY: State.BEGINNING},
    Call.SEND: {State.IN_TRANSACTION: State.IN_TRANSACTION},
    Call.SEND_OFFSETS: {State.IN_TRANSACTION: State.IN_TRANSACTION},
    Call.COMMIT: {State.IN_TRANSACTION: State.COMMITTING, State.OUTCOME_UNKNOWN: State.SETTLING},
    Call.ABORT: {State.IN_TRANSACTION: State.ABORTING, State.ABORTABLE: State.ABORTING},
}
EVENTS: Final = {
    Event.INITIALIZED: {State.INITIALIZING: State.READY},
    Event.NOT_INITIALIZED: {State.INITIALIZING: State.UNINITIALIZED},
    Event.BEGUN: {State.BEGINNING: State.IN_TRANSACTION},
    Event.NOT_BEGUN: {State.BEGINNING: State.READY},
    Event.CALLED_OFF: {State.COMMITTING: State.IN_TRANSACTION, State.ABORTABLE: State.ABORTABLE},
    Event.LOST: {State.COMMITTING: State.SETTLING, State.SETTLING: State.SETTLING},
    Event.UNANSWERED: {
        State.COMMITTING: State.OUTCOME_UNKNOWN,
        State.SETTLING: State.OUTCOME_UNKNOWN,
        State.ABORTING: State.ABORTABLE,
    },
    Event.FAILED: {
        State.IN_TRANSACTION: State.ABORTABLE,
        State.COMMITTING: State.ABORTABLE,
        State.ABORTABLE: State.ABORTABLE,
        State.ABORTING: State.ABORTING,
    },
    Event.ENDED: {State.COMMITTING: State.READY, State.SETTLING: State.READY, State.ABORTING: State.READY},
}
_BEGIN_FIRST: Final = {State.READY: f"{State.READY.value}: call begin_transaction, or use `with producer.transaction():`"}
_WAYS_OUT: Final[dict[Call, dict[State, str]]] = {
    **dict.fromkeys((Call.SEND, Call.SEND_OFFSETS, Call.COMMIT, Call.ABORT), _BEGIN_FIRST),
    Call.INIT: {state: f"it was called already, and {state.value}" for state in State if state is not State.INITIALIZING},
}
"""What is said in place of the state."""
TAKES_BATCHES: Final = frozenset({State.IN_TRANSACTION, State.COMMITTING})
DROPS_BATCHES: Final = frozenset({State.ABORTABLE, State.ABORTING, State.FATAL})


class TransactionStates:
    """The state, and why it is one of failure."""

    def __init__(self) -> None:
        self.state = State.UNINITIALIZED
        self.problem: KafkaError | None = None  # set in ABORTABLE after a failure, and in FATAL

    def check(self, call: Call) -> State:
        """Returns the state after the call; TransactionFatalError, TransactionAbortableError or INVALID_TXN_STATE if out of place."""
        following = CALLS[call].get(self.state)
        if following is None:
            self.raise_problem()
            why = _WAYS_OUT.get(call, {}).get(self.state, self.state.value)
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{call.value} is out of place: {why}")
        return following

    def call(self, call: Call) -> None:
        """Starts the call; raises as ``check``, and nothing has changed then."""
        self.state = self.check(call)

    def on(self, event: Event) -> None:
        """Moves to the state that the event leads to. After a fatal failure no event changes anything."""
        if self.state is State.FATAL:
            return
        following = EVENTS[event].get(self.state)
        assert following is not None, f"{event.name} does not come in {self.state.name}"
        self.state = following
        if following is State.READY:
            self.problem = None

    def fail(self, problem: KafkaError) -> None:
        """Allows only an abort from now on, or, after a fatal problem, only a close. The first problem of each kind is kept."""
        if self.state is State.FATAL:
            return
        is_fatal = isinstance(problem, TransactionFatalError)
        if not is_fatal and self.state in EVENTS[Event.FAILED]:
            if self.state is not State.ABORTING:
                self.problem = self.problem or problem
            self.state = EVENTS[Event.FAILED][self.state]
            return
        text = problem.message
        if self.state is State.SETTLING:
            text = f"the transaction may be committed or not: {text or problem.code.name}"
        kind = type(problem) if is_fatal else TransactionFatalError
        self.state, self.problem = State.FATAL, kind(problem.code, text)

    def raise_problem(self) -> None:
        """Raises why the transaction, or the producer, has failed, where it has."""
        problem = self.problem
        if self.state is State.FATAL:
            assert isinstance(problem, TransactionFatalError), "a fatal failure says why"
            raise type(problem)(problem.code, problem.message)
        if self.state is State.ABORTABLE and problem is not None:
            raise TransactionAbortableError(problem.code, problem.message)

    @property
    def is_fenced(self) -> bool:
        """Whether another producer has taken the place of this one."""
        return isinstance(self.problem, ProducerFencedError)

    def fenced(self) -> ProducerFencedError:
        """Returns the error of a fenced producer."""
        assert self.problem is not None, "it is fenced"
        return ProducerFencedError(self.problem.code, self.problem.message)

    @property
    def takes_batches(self) -> bool:
        """Whether batches may be sent: the transaction is open, or its commit waits for them."""
        return self.state in TAKES_BATCHES

    @property
    def drops_batches(self) -> bool:
        """Whether a batch that has not been sent must never be."""
        return self.state in DROPS_BATCHES
