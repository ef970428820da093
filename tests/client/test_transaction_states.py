"""The table of a transactional producer's states: what may be called, and what failures leave."""

from __future__ import annotations

import pytest

from ottla.client import transaction_errors
from ottla.client.transaction_errors import ProducerFencedError, TransactionAbortableError, TransactionFatalError
from ottla.client.transaction_states import CALLS, EVENTS, Call, Event, State, TransactionStates
from ottla.errors import ErrorCode, KafkaError

WHERE_CALLS_ARE_IN_PLACE = {
    Call.INIT: {State.UNINITIALIZED},
    Call.BEGIN: {State.READY},
    Call.SEND: {State.IN_TRANSACTION},
    Call.SEND_OFFSETS: {State.IN_TRANSACTION},
    Call.COMMIT: {State.IN_TRANSACTION, State.OUTCOME_UNKNOWN},
    Call.ABORT: {State.IN_TRANSACTION, State.ABORTABLE},
}


def in_state(state: State, problem: KafkaError | None = None) -> TransactionStates:
    states = TransactionStates()
    states.state, states.problem = state, problem
    if state is State.FATAL and problem is None:
        states.problem = TransactionFatalError(ErrorCode.INVALID_TXN_STATE, "because")
    return states


@pytest.mark.parametrize("call", Call)
@pytest.mark.parametrize("state", State)
def test_a_call_out_of_place_raises_and_changes_nothing(call: Call, state: State) -> None:
    states = in_state(state)
    if state in WHERE_CALLS_ARE_IN_PLACE[call]:
        states.call(call)
        assert states.state is CALLS[call][state]
        return
    with pytest.raises(KafkaError) as caught:
        states.call(call)
    assert caught.value.code == ErrorCode.INVALID_TXN_STATE
    assert states.state is state
    if state is not State.FATAL:
        assert call.value in str(caught.value)
        assert state.value in str(caught.value)


@pytest.mark.parametrize("state", State)
def test_a_fatal_failure_is_final_and_every_call_says_why(state: State) -> None:
    states = in_state(state)
    first = states.problem if state is State.FATAL else ProducerFencedError(ErrorCode.PRODUCER_FENCED, "another one")
    assert first is not None
    states.fail(ProducerFencedError(ErrorCode.PRODUCER_FENCED, "another one"))
    states.fail(TransactionAbortableError(ErrorCode.TRANSACTION_ABORTABLE, "later"))
    for event in Event:
        states.on(event)
    assert states.state is State.FATAL
    for call in Call:
        with pytest.raises(type(first), match=first.message):
            states.call(call)


@pytest.mark.parametrize("state", [State.IN_TRANSACTION, State.COMMITTING])
def test_a_failure_of_a_part_leaves_nothing_but_the_abort(state: State) -> None:
    states = in_state(state)
    states.fail(TransactionAbortableError(ErrorCode.TRANSACTION_ABORTABLE, "first"))
    states.fail(TransactionAbortableError(ErrorCode.REQUEST_TIMED_OUT, "second"))
    for call in (Call.SEND, Call.SEND_OFFSETS, Call.COMMIT, Call.BEGIN):
        with pytest.raises(TransactionAbortableError, match="TRANSACTION_ABORTABLE: first"):
            states.call(call)
    states.call(Call.ABORT)
    states.on(Event.ENDED)
    states.call(Call.BEGIN)
    assert states.problem is None


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (TransactionAbortableError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "text"), TransactionFatalError),
        (ProducerFencedError(ErrorCode.PRODUCER_FENCED, "text"), ProducerFencedError),
    ],
)
def test_a_failure_after_a_commit_that_may_have_been_made_says_so_and_cannot_be_aborted(
    problem: KafkaError, kind: type[KafkaError]
) -> None:
    states = in_state(State.COMMITTING)
    states.on(Event.LOST)
    states.fail(problem)
    assert states.state is State.FATAL
    with pytest.raises(kind, match="may be committed or not: text"):
        states.call(Call.ABORT)


def test_every_state_is_reached_and_left() -> None:
    steps = [(start, end) for moves in (*CALLS.values(), *EVENTS.values()) for start, end in moves.items()]
    reached = {State.UNINITIALIZED, State.FATAL} | {end for _, end in steps}
    left = {State.FATAL} | {start for start, end in steps if end is not start}
    assert reached == left == set(State)


@pytest.mark.parametrize(
    ("code", "of_produce", "of_addition", "of_decision"),
    [
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError, ProducerFencedError, ProducerFencedError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, TransactionAbortableError, ProducerFencedError, ProducerFencedError),
        (ErrorCode.INVALID_TXN_STATE, TransactionAbortableError, TransactionAbortableError, TransactionFatalError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, TransactionAbortableError, TransactionAbortableError, TransactionAbortableError),
        (ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortableError, TransactionAbortableError, TransactionAbortableError),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, TransactionAbortableError, TransactionAbortableError, TransactionFatalError),
        (ErrorCode.ILLEGAL_GENERATION, TransactionAbortableError, TransactionAbortableError, TransactionFatalError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, TransactionAbortableError, TransactionAbortableError, TransactionFatalError),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionFatalError, TransactionFatalError, TransactionFatalError),
        (ErrorCode.UNSUPPORTED_VERSION, TransactionFatalError, TransactionFatalError, TransactionFatalError),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, TransactionFatalError, TransactionFatalError, TransactionFatalError),
    ],
)
def test_each_judge_of_errors_turns_a_code_into_its_kind_of_error(
    code: ErrorCode, of_produce: type, of_addition: type, of_decision: type
) -> None:
    problem = KafkaError(code, "text")
    for judge, kind in (("of_produce", of_produce), ("of_addition", of_addition), ("of_decision", of_decision)):
        found = getattr(transaction_errors, judge)(problem)
        text = f"text: {transaction_errors.FENCED}" if kind is transaction_errors.ProducerFencedError else "text"
        if code == ErrorCode.INVALID_PRODUCER_EPOCH and kind is TransactionAbortableError:
            text = f"text: {transaction_errors._PERHAPS_FENCED}"
        assert (judge, type(found), found.code, found.message) == (judge, kind, code, text)
