"""How fast clients may go: whose quota counts, how a rate is taken, how long is paused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.image import CLIENT_ID, IP, USER, QuotaEntity
from ottla.quotas import CLIENTS_MAX, THROTTLE_MS_MAX, ClientQuotas, QuotaKind, RateMeter

FETCH, PRODUCE, REQUEST = QuotaKind.FETCH, QuotaKind.PRODUCE, QuotaKind.REQUEST
NOW_MS = 1_000_000

# Kafka's order, the most specific first; None is the default of a type.
RANKS: list[QuotaEntity] = [
    ((CLIENT_ID, "c"), (USER, "u")),
    ((CLIENT_ID, None), (USER, "u")),
    ((USER, "u"),),
    ((CLIENT_ID, "c"), (USER, None)),
    ((CLIENT_ID, None), (USER, None)),
    ((USER, None),),
    ((CLIENT_ID, "c"),),
    ((CLIENT_ID, None),),
]


def quotas(limits: dict[QuotaEntity, float], kind: QuotaKind = PRODUCE) -> ClientQuotas:
    made = ClientQuotas(window_count=11, window_ms=1000)
    made.set_quotas({entity: {kind.value: limit} for entity, limit in limits.items()})
    return made


@pytest.mark.parametrize("ranks", [ranks for size in (1, 2, 8) for ranks in itertools.combinations(range(8), size)], ids=str)
def test_the_most_specific_quota_counts(ranks: tuple[int, ...]) -> None:
    made = quotas({RANKS[rank]: 100.0 + rank for rank in reversed(ranks)})
    assert made.limit(PRODUCE, "u", "c") == 100.0 + min(ranks)


@pytest.mark.parametrize("entity", [((CLIENT_ID, "other"),), ((USER, "other"),), ((CLIENT_ID, "c"), (USER, "other")), ((IP, "127.0.0.1"),)])
def test_a_quota_of_another_client_does_not_count(entity: QuotaEntity) -> None:
    made = quotas({entity: 1.0})
    assert made.limit(PRODUCE, "u", "c") is None
    assert made.record(PRODUCE, "u", "c", 1e9, NOW_MS) == 0


def test_a_client_without_an_id_is_not_the_user() -> None:
    made = quotas({((USER, "u"),): 1.0, ((CLIENT_ID, None), (USER, "u")): 2.0})
    assert made.limit(PRODUCE, "u", "") == 2.0


@pytest.mark.parametrize(
    ("entity", "is_shared", "is_shared_by_users"),
    [
        (((USER, "u"),), True, False),
        (((USER, None),), True, False),
        (((CLIENT_ID, None), (USER, "u")), False, False),
        (((CLIENT_ID, None), (USER, None)), False, False),
        (((CLIENT_ID, None),), False, True),
    ],
)
def test_a_users_clients_share_the_users_quota_and_have_their_own_of_their_ids(
    entity: QuotaEntity, is_shared: bool, is_shared_by_users: bool
) -> None:
    """Of a quota of client ids, all users' clients of one id have one share together."""
    made = quotas({entity: 100.0})
    assert made.record(PRODUCE, "u", "a", 1000, NOW_MS) == 0
    assert (made.record(PRODUCE, "u", "b", 1000, NOW_MS) > 0) == is_shared
    assert (made.record(PRODUCE, "v", "b", 1000, NOW_MS) > 0) == is_shared_by_users


def test_kinds_are_measured_apart_and_only_those_with_a_quota_are_active() -> None:
    made = ClientQuotas(window_count=11, window_ms=1000)
    assert not made.active
    assert made.record(FETCH, "u", "c", 1e9, NOW_MS) == 0
    made.set_quotas({((USER, "u"),): {FETCH.value: 1.0, "controller_mutation_rate": 1.0}, ((IP, None),): {"connection_creation_rate": 1.0}})
    assert made.active == {FETCH, QuotaKind.MUTATION}
    assert made.record(PRODUCE, "u", "c", 1e9, NOW_MS) == 0
    assert made.record(FETCH, "u", "c", 1e9, NOW_MS) > 0
    made.set_quotas({})
    assert not made.active
    assert made.record(FETCH, "u", "c", 1e9, NOW_MS) == 0


def test_a_pause_brings_the_average_back_to_the_quota() -> None:
    made = quotas({((USER, "u"),): 100.0})
    assert made.record(PRODUCE, "u", "c", 1000, NOW_MS) == 0, "ten windows' worth, as full windows are assumed before the first"
    pause_ms = made.record(PRODUCE, "u", "c", 500, NOW_MS)
    assert pause_ms == 5000, "500 bytes too many, at 100 bytes a second"
    assert made.record(PRODUCE, "u", "c", 0, NOW_MS + 15_000) == 0


def test_an_answer_above_the_quota_is_delayed_and_not_counted() -> None:
    made = quotas({((USER, "u"),): 100.0}, FETCH)
    assert made.record_unless_above(FETCH, "u", "c", 900, NOW_MS) == (0, True)
    assert made.record_unless_above(FETCH, "u", "c", 500, NOW_MS) == (4000, False)
    assert made.record_unless_above(FETCH, "u", "c", 100, NOW_MS) == (0, True)
    assert made.record_unless_above(FETCH, "v", "c", 500, NOW_MS) == (0, True), "a client without a quota"


def test_an_answer_above_the_whole_quota_is_given_to_an_idle_client_and_delays_its_next_one() -> None:
    made = quotas({((USER, "u"),): 100.0}, FETCH)
    assert made.record_unless_above(FETCH, "u", "c", 1, NOW_MS) == (0, True)
    assert made.record_unless_above(FETCH, "u", "c", 1_000_000, NOW_MS) == (11_000, False), "no longer than until it is given"
    assert made.record_unless_above(FETCH, "u", "c", 1_000_000, NOW_MS + 11_000) == (9_990_000, True)


def test_a_request_may_take_what_ten_seconds_allow() -> None:
    made = quotas({((USER, "u"),): 100.0}, FETCH)
    assert made.amount_max(FETCH, "u", "c") == 1000
    assert made.amount_max(FETCH, "v", "c") is None


def test_request_time_is_paused_for_one_window_at_most() -> None:
    made = quotas({((USER, "u"),): 1.0}, REQUEST)
    assert made.record(REQUEST, "u", "c", 10_000, NOW_MS) == 1000


def test_a_changed_quota_counts_at_once_and_what_was_measured_stays() -> None:
    made = quotas({((USER, "u"),): 1000.0})
    assert made.record(PRODUCE, "u", "c", 10_000, NOW_MS) == 0
    made.set_quotas({((USER, "u"),): {PRODUCE.value: 100.0}})
    assert made.record(PRODUCE, "u", "c", 0, NOW_MS) == 90_000


@pytest.mark.parametrize("limit", [-1.0, 0.0, 1e-310, 1e-9])
def test_no_pause_is_longer_than_an_answer_can_say(limit: float) -> None:
    """A quota next to nothing, and one of 0 of a znode, were errors: the client's requests had no answer."""
    for kind, longest_ms in ((PRODUCE, THROTTLE_MS_MAX), (REQUEST, 1000)):
        assert quotas({((USER, "u"),): limit}, kind).record(kind, "u", "c", 1e6, NOW_MS) == longest_ms
    assert quotas({((USER, "u"),): limit}, FETCH).record_unless_above(FETCH, "u", "c", 1e6, NOW_MS) == (THROTTLE_MS_MAX, True)
    assert quotas({((USER, "u"),): limit}, FETCH).amount_max(FETCH, "u", "c") == pytest.approx(0, abs=1e-7)
    made = quotas({((USER, "u"),): limit}, QuotaKind.MUTATION)
    assert made.spend("u", "c", 1, NOW_MS, is_strict=False) == (THROTTLE_MS_MAX, True)
    assert made.spend("u", "c", 1, NOW_MS, is_strict=True) == (THROTTLE_MS_MAX, False)


def test_a_quota_without_a_limit_is_none() -> None:
    made = quotas({((USER, "u"),): float("inf")}, QuotaKind.MUTATION)
    assert made.spend("u", "c", 1000, NOW_MS, is_strict=True) == (0, True)


def test_clients_that_make_up_names_are_forgotten() -> None:
    made = quotas({((CLIENT_ID, None),): 10.0})
    for number in range(CLIENTS_MAX + 10):
        made.record(PRODUCE, "u", f"client-{number}", 1000, NOW_MS + number)
    assert len(made._meters) <= CLIENTS_MAX
    assert len(made._resolved) <= CLIENTS_MAX
    newest = f"client-{CLIENTS_MAX + 9}"
    assert made.record(PRODUCE, "u", newest, 0, NOW_MS + CLIENTS_MAX + 9) > 0, "the newest is remembered"


def test_partitions_may_be_created_while_a_token_is_left_however_many_they_are() -> None:
    made = quotas({((USER, "u"),): 1.0}, QuotaKind.MUTATION)
    assert made.spend("u", "c", 10, NOW_MS, is_strict=True) == (0, True), "eleven at once"
    assert made.spend("u", "c", 5, NOW_MS, is_strict=True) == (0, True), "one token was left"
    assert made.spend("u", "c", 1, NOW_MS, is_strict=True) == (4001, False), "four are owed, and one is needed"
    assert made.spend("u", "other", 1, NOW_MS + 4000, is_strict=True) == (1, False), "a user's clients share the user's tokens"
    assert made.spend("u", "c", 1, NOW_MS + 4001, is_strict=True) == (0, True)
    assert made.spend("v", "c", 1000, NOW_MS, is_strict=True) == (0, True), "a client without a quota"


def test_a_client_that_cannot_see_the_pause_is_let_through_and_paused() -> None:
    made = quotas({((USER, "u"),): 1.0}, QuotaKind.MUTATION)
    assert made.spend("u", "c", 10, NOW_MS, is_strict=False) == (0, True)
    assert made.spend("u", "c", 5, NOW_MS, is_strict=False) == (4001, True)
    assert made.spend("u", "c", 5, NOW_MS + 4001, is_strict=False)[0] > 4000


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 500)), max_size=60), st.integers(1, 12), st.sampled_from([100, 1000]))
def test_the_rate_is_the_sum_of_the_last_windows_over_their_span(steps: list[tuple[int, int]], window_count: int, window_ms: int) -> None:
    meter = RateMeter(window_count=window_count, window_ms=window_ms)
    now_ms, recorded = NOW_MS, []
    for step_ms, amount in steps:
        now_ms += step_ms
        meter.record(amount, now_ms)
        recorded.append((now_ms, amount))
    rate = meter.rate(now_ms)
    least_ms, most_ms = max(1, window_count - 1) * window_ms, window_count * window_ms
    surely = sum(amount for at, amount in recorded if at > now_ms - (window_count - 1) * window_ms)
    perhaps = sum(amount for at, amount in recorded if at > now_ms - most_ms - window_ms)
    assert surely * 1000 / most_ms <= rate + 1e-9
    assert rate <= perhaps * 1000 / least_ms + 1e-9


@given(st.integers(1, 5000), st.integers(1, 10_000))
def test_the_pause_is_as_long_as_the_excess_over_the_limit_needs(amount: int, limit: int) -> None:
    meter = RateMeter(window_count=11, window_ms=1000)
    meter.record(amount, NOW_MS)
    pause_ms = meter.throttle_ms(limit / 10, NOW_MS)
    allowed = limit / 10 * (10_000 + pause_ms) / 1000
    rounding = limit / 10 / 1000
    assert amount <= allowed + rounding
    assert pause_ms == 0 or amount >= allowed - rounding
