"""The checkers of simulations: what is planted is found, and what is allowed is not."""

from __future__ import annotations

from ottla.sim.checkers import (
    acknowledged_are_kept,
    commits_are_kept,
    idempotent_producers_store_once_and_in_order,
    logs_are_dense,
    nothing_is_invented,
)
from ottla.sim.workload import Acknowledged, History
from ottla.types import TopicPartition

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
LOG = [(0, b"p-0"), (1, b"p-1"), (2, b"p-2")]


def history(*acknowledged: tuple[TopicPartition, int, bytes, int]) -> History:
    made = History(sent={value: ("p", ONE) for _, value in LOG}, idempotent={"p"})
    made.acknowledged = [Acknowledged(*ack) for ack in acknowledged]
    return made


def test_a_record_that_is_not_where_it_was_acknowledged_is_found() -> None:
    kept = history((ONE, 0, b"p-0", 0), (ONE, 1, b"p-1", 1))
    assert acknowledged_are_kept(kept, {ONE: LOG}) == []
    assert len(acknowledged_are_kept(kept, {ONE: LOG[:1]})) == 1
    assert len(acknowledged_are_kept(kept, {ONE: [LOG[0], LOG[2]]})) == 1
    assert len(acknowledged_are_kept(kept, {ONE: [(0, b"p-1"), (1, b"p-0")]})) == 2
    assert len(acknowledged_are_kept(kept, {TWO: LOG})) == 2
    assert acknowledged_are_kept(kept, {ONE: []}, since_crash=2) == [], "older ones were allowed to be lost"
    assert len(acknowledged_are_kept(kept, {}, since_crash=1)) == 1
    assert acknowledged_are_kept(history((ONE, -1, b"p-0", 0)), {ONE: []}) == [], "acks=0"
    many = history(*((ONE, offset, b"p-%d" % offset, 0) for offset in range(10)))
    assert acknowledged_are_kept(many, {ONE: []})[-1] == "... and 7 more"


def test_holes_and_what_was_never_sent_are_found() -> None:
    assert logs_are_dense({ONE: LOG}) == []
    assert len(logs_are_dense({ONE: [(0, b"p-0"), (2, b"p-1")]})) == 1
    assert nothing_is_invented(history(), {ONE: LOG}) == []
    assert len(nothing_is_invented(history(), {ONE: [*LOG, (3, b"q-0")]})) == 1
    assert len(nothing_is_invented(history(), {TWO: LOG[:1]})) == 1, "it was sent to another partition"
    assert len(nothing_is_invented(History(), {ONE: LOG[:1]})) == 1, "nobody has sent anything"


def test_what_idempotent_producers_have_stored_twice_or_out_of_order_is_found() -> None:
    assert idempotent_producers_store_once_and_in_order(history(), {ONE: LOG}) == []
    twice = {ONE: [*LOG, (3, b"p-1")]}
    assert len(idempotent_producers_store_once_and_in_order(history(), twice)) == 1
    assert len(idempotent_producers_store_once_and_in_order(history(), {ONE: [(0, b"p-1"), (1, b"p-0")]})) == 1
    others = history()
    others.idempotent.clear()
    assert idempotent_producers_store_once_and_in_order(others, twice) == []


def test_a_commit_that_was_confirmed_and_is_not_there_is_found() -> None:
    made = History(commits=[(ONE, 3, 0), (ONE, 5, 0), (TWO, 2, 1)])
    assert commits_are_kept(made, {ONE: 5, TWO: 2}) == []
    assert commits_are_kept(made, {ONE: 7, TWO: 2}) == [], "a later one may have come through"
    assert len(commits_are_kept(made, {ONE: 4, TWO: 2})) == 1
    assert len(commits_are_kept(made, {})) == 2
    assert len(commits_are_kept(made, {}, since_crash=1)) == 1
