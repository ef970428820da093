"""Answers leave in the order of their requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.net.response_queue import ResponseQueue


@given(st.permutations(list(range(8))))
def test_answers_leave_in_order_whatever_is_ready_first(ready: list[int]) -> None:
    line = ResponseQueue()
    places = [line.enter() for _ in range(8)]
    out: list[int] = []
    done: set[int] = set()
    for index in ready:
        places[index].answer = [index]
        done.add(index)
        line.leave(out)
        whole = next((at for at in range(8) if at not in done), 8)
        assert out == list(range(whole))
        assert len(line) == 8 - whole


def test_a_request_without_an_answer_delays_no_other() -> None:
    line = ResponseQueue()
    first, second = line.enter(), line.enter()
    out: list[str] = []
    second.answer = ["b"]
    line.leave(out)
    assert out == []
    first.answer = ()
    line.leave(out)
    assert out == ["b"]
