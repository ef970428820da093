"""Requests that wait, by deadline."""

from __future__ import annotations

from ottla.replication.purgatory import Purgatory


class Waiting:
    def __init__(self) -> None:
        self.is_done = False

    def expire(self) -> None:
        self.is_done = True


def test_waiters_expire_at_their_deadline_in_order() -> None:
    purgatory = Purgatory()
    late, early, same = Waiting(), Waiting(), Waiting()
    assert purgatory.park(late, 200)
    assert purgatory.park(early, 100)
    assert not purgatory.park(same, 100)
    assert purgatory.next_deadline_ms() == 100
    assert purgatory.expired(99) == []
    assert purgatory.expired(100) == [early, same]
    assert purgatory.expired(1000) == [late]
    assert purgatory.next_deadline_ms() is None


def test_finished_requests_are_passed_over() -> None:
    purgatory = Purgatory()
    done, waiting = Waiting(), Waiting()
    purgatory.park(done, 100)
    purgatory.park(waiting, 200)
    done.is_done = True
    assert purgatory.next_deadline_ms() == 200
    assert purgatory.expired(300) == [waiting]
