from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ottla.net.admission import SHUT_OUT_MS, Admission, AdmissionLimits, ListenerLimits, RateGate

BOTH = ["CLIENTS", "BROKERS"]


def test_the_broker_takes_as_many_as_it_may_and_the_next_when_one_leaves() -> None:
    admission = Admission(AdmissionLimits(connections=2), BOTH)
    assert admission.admitted("CLIENTS", "a", 0)
    assert admission.has_room("BROKERS")
    assert admission.admitted("BROKERS", "a", 0)
    assert not admission.has_room("CLIENTS")
    assert not admission.has_room("BROKERS")
    admission.left("CLIENTS", "a")
    assert admission.has_room("BROKERS")


def test_a_listener_may_have_a_limit_of_its_own() -> None:
    admission = Admission(AdmissionLimits(by_listener={"CLIENTS": ListenerLimits(connections=1)}), BOTH)
    assert admission.admitted("CLIENTS", "a", 0)
    assert not admission.has_room("CLIENTS")
    assert admission.has_room("BROKERS")


def test_the_protected_listener_goes_above_the_maximum_at_the_cost_of_the_others() -> None:
    admission = Admission(AdmissionLimits(connections=1, protected_listener="BROKERS"), BOTH)
    assert admission.admitted("CLIENTS", "a", 0)
    assert not admission.has_room("CLIENTS")
    assert admission.has_room("BROKERS")
    assert admission.admitted("BROKERS", "b", 0)
    assert admission.is_above_maximum(), "a client has to go"
    admission.left("CLIENTS", "a")
    assert not admission.is_above_maximum()
    assert admission.admitted("BROKERS", "b", 0)
    assert not admission.is_above_maximum(), "no connection is left that could be closed"


def test_where_there_is_one_listener_it_is_not_protected() -> None:
    admission = Admission(AdmissionLimits(connections=1, protected_listener="BROKERS"), ["BROKERS"])
    assert admission.admitted("BROKERS", "b", 0)
    assert not admission.has_room("BROKERS")


def test_an_address_has_its_share_and_exceptions_have_theirs() -> None:
    admission = Admission(AdmissionLimits(per_ip=1, per_ip_overrides={"trusted": 2, "banned": 0}), BOTH)
    assert admission.admitted("CLIENTS", "a", 0)
    assert not admission.admitted("BROKERS", "a", 0), "whatever the listener"
    admission.left("BROKERS", "a")
    assert [admission.admitted("CLIENTS", "trusted", 0) for _ in range(3)] == [True, True, False]
    assert not admission.admitted("CLIENTS", "banned", 0)


def test_the_rate_lets_a_second_s_worth_in_at_once_and_then_one_at_a_time() -> None:
    gate = RateGate(10)
    for _ in range(10):
        assert gate.wait_ms(5000) == 0
        gate.take(5000)
    assert gate.wait_ms(5000) == 1, "the rate is met to within one"
    gate.take(5001)
    assert gate.wait_ms(5001) == 100
    assert gate.wait_ms(5100) == 1
    assert gate.wait_ms(5101) == 0


def test_a_rate_of_0_lets_none_in_until_it_is_another() -> None:
    """It divided by zero: the broker did not start, and a running one kept a connection that it did not serve."""
    admission = Admission(AdmissionLimits(creation_rate=0), BOTH)
    assert admission.wait_ms("CLIENTS", 0) == SHUT_OUT_MS, "then it is looked at again"
    assert admission.admitted("CLIENTS", "a", 0), "one that was accepted when the rate changed"
    admission.set_limits(AdmissionLimits(creation_rate=5))
    assert admission.wait_ms("CLIENTS", 1) == 0


def test_the_brokers_rate_neither_delays_the_protected_listener_nor_counts_its_connections() -> None:
    """Clients that flood their listener kept nodes from each other."""
    own = {"BROKERS": ListenerLimits(creation_rate=2)}
    admission = Admission(AdmissionLimits(creation_rate=1, protected_listener="BROKERS", by_listener=own), BOTH)
    assert admission.admitted("BROKERS", "b", 0)
    assert admission.wait_ms("CLIENTS", 0) == 0
    for _ in range(3):
        assert admission.admitted("CLIENTS", "a", 0)
    assert admission.wait_ms("CLIENTS", 0) > 0
    assert admission.wait_ms("BROKERS", 0) == 0
    assert admission.admitted("BROKERS", "b", 0)
    assert admission.wait_ms("BROKERS", 0) > 0, "its own rate holds"
    alone = Admission(AdmissionLimits(creation_rate=1, protected_listener="BROKERS"), ["BROKERS"])
    assert alone.admitted("BROKERS", "b", 0)
    assert alone.wait_ms("BROKERS", 0) > 0, "clients come there, too"


@given(rate=st.integers(1, 50), steps=st.lists(st.integers(0, 400), max_size=200))
@example(rate=1, steps=[0, 248, 286])  # whose sum, counted in floats, is a rounding short of a token
def test_however_they_come_no_second_sees_more_than_twice_the_rate_and_one(rate: int, steps: list[int]) -> None:
    gate, now_ms, taken = RateGate(rate), 0, []
    for step in steps:
        now_ms += step
        wait_ms = gate.wait_ms(now_ms)
        now_ms += wait_ms
        assert gate.wait_ms(now_ms) == 0, "a client that waited as long as required may connect"
        gate.take(now_ms)
        taken.append(now_ms)
    for start in taken:
        assert sum(start <= at < start + 1000 for at in taken) <= 2 * rate + 1


def test_new_limits_hold_for_those_that_come() -> None:
    admission = Admission(AdmissionLimits(), BOTH)
    for _ in range(3):
        assert admission.admitted("CLIENTS", "a", 0)
    admission.set_limits(AdmissionLimits(connections=2, per_ip=5))
    assert not admission.has_room("CLIENTS")
    admission.left("CLIENTS", "a")
    admission.left("CLIENTS", "a")
    assert admission.has_room("CLIENTS")
    assert admission.count == 1
