"""Quotas of clients: how fast each may go, and how long it has to pause when it went faster.

A quota belongs to an entity: a user, a client id, both, or the default of either. The most specific one that exists counts:

====  =======================================================  ==========================
rank  entity                                                   is measured for
====  =======================================================  ==========================
1, 2  this user and this client id, or any client id           each client id of the user
3     this user                                                all of the user's together
4, 5  any user and this client id, or any client id            each client id of the user
6     any user                                                 all of the user's together
7, 8  this client id, or any client id                         each client id
====  =======================================================  ==========================

A rate is taken over the last windows, the current one among them. Who is above its quota pauses as long as it takes until the
average is the quota again. Source: KIP-13, KIP-55 (precedence), KIP-124 (request time), KIP-219 (throttling).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from typing import Final

from ottla.metadata.image import CLIENT_ID, USER, QuotaEntity

CLIENTS_MAX: Final = 10_000
THROTTLE_MS_MAX: Final = 2**31 - 1  # what a response can express


class QuotaKind(Enum):
    """The measured quantity, by Kafka's names: bytes or partitions a second, or the share of a second in percent."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


class ClientQuotas:
    """The quotas of all clients, and how fast each client that has one is."""

    def __init__(self, *, window_count: int, window_ms: int) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._meters: dict[tuple[QuotaKind, str, str], RateMeter] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}
        self._resolved: dict[tuple[QuotaKind, str, str], tuple[RateMeter, float] | None] = {}
        self.active: frozenset[QuotaKind] = frozenset()
        """Kinds for which some client has a quota; others need not be recorded."""

    def set_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Sets the quotas from now on; what was measured stays."""
        if quotas is self._quotas:
            return
        self._quotas = quotas
        given = {key for values in quotas.values() for key in values}
        self.active = frozenset(kind for kind in QuotaKind if kind.value in given)
        self._resolved.clear()

    def record(self, kind: QuotaKind, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Counts the amount for the client. Returns how many milliseconds it has to pause, for request time one window at most."""
        found = self._find(kind, user, client_id, now_ms)
        if found is None:
            return 0
        meter, limit = found
        meter.record(amount, now_ms)
        pause_ms = meter.throttle_ms(limit, now_ms)
        return min(pause_ms, self._window_ms) if kind is QuotaKind.REQUEST else pause_ms

    def record_unless_above(self, kind: QuotaKind, user: str, client_id: str, amount: float, now_ms: int) -> tuple[int, bool]:
        """Returns the pause, and whether the amount counts. An amount above the quota does not, unless the client had nothing in all
        windows: then it would never be less, and the pause comes after it.
        """
        found = self._find(kind, user, client_id, now_ms)
        if found is None:
            return 0, True
        meter = found[0]
        was_idle = meter.rate(now_ms) == 0
        pause_ms = self.record(kind, user, client_id, amount, now_ms)
        if not pause_ms or was_idle:
            return pause_ms, True
        meter.record(-amount, now_ms)
        return min(pause_ms, self._window_count * self._window_ms), False

    def spend(self, user: str, client_id: str, count: int, now_ms: int, *, is_strict: bool) -> tuple[int, bool]:
        """Spends tokens for so many partitions: returns the pause, and whether they may come or go. They may while a token is left, however
        many they are; without ``is_strict`` they always may, with a pause instead (KIP-599).
        """
        limit, measured = self._match(QuotaKind.MUTATION, user, client_id)
        if limit is None:
            return 0, True
        bucket = self._buckets.get(measured)
        if bucket is None:
            if len(self._buckets) >= CLIENTS_MAX:
                self._buckets.clear()
            bucket = self._buckets[measured] = TokenBucket()
        burst = limit * self._window_count * self._window_ms / 1000
        return bucket.spend(count, limit, burst, now_ms, is_strict=is_strict)

    def limit(self, kind: QuotaKind, user: str, client_id: str) -> float | None:
        """Returns what the client may do in a second; None without a limit."""
        return self._match(kind, user, client_id)[0]

    def amount_max(self, kind: QuotaKind, user: str, client_id: str) -> float | None:
        """Returns the most that one request may take, so that its pause is no longer than what is measured; None without a limit."""
        limit = self.limit(kind, user, client_id)
        return None if limit is None else limit * (self._window_count - 1 or 1) * self._window_ms / 1000

    def _find(self, kind: QuotaKind, user: str, client_id: str, now_ms: int) -> tuple[RateMeter, float] | None:
        name = (kind, user, client_id)
        try:
            return self._resolved[name]
        except KeyError:
            pass
        limit, measured = self._match(kind, user, client_id)
        found = None
        if limit is not None:
            self._make_room(now_ms)
            key = (kind, *measured)
            meter = self._meters.get(key)
            if meter is None:
                meter = self._meters[key] = RateMeter(window_count=self._window_count, window_ms=self._window_ms)
            found = (meter, limit)
        if len(self._resolved) >= CLIENTS_MAX:  # a client that makes up ids must not make us keep them
            self._resolved.clear()
        self._resolved[name] = found
        return found

    def _match(self, kind: QuotaKind, user: str, client_id: str) -> tuple[float | None, tuple[str, str]]:
        """Returns the limit of the highest rank, and for whom it is measured."""
        one, any_client = (CLIENT_ID, client_id), (CLIENT_ID, None)
        ranks: tuple[tuple[QuotaEntity, tuple[str, str]], ...] = (
            ((one, (USER, user)), (user, client_id)),
            ((any_client, (USER, user)), (user, client_id)),
            (((USER, user),), (user, "")),
            ((one, (USER, None)), (user, client_id)),
            ((any_client, (USER, None)), (user, client_id)),
            (((USER, None),), (user, "")),
            ((one,), ("", client_id)),
            ((any_client,), ("", client_id)),
        )
        for entity, measured in ranks:
            limit = self._quotas.get(entity, _NOTHING).get(kind.value)
            if limit is not None:
                return (None if limit == math.inf else max(0.0, limit)), measured
        return None, ("", "")

    def _make_room(self, now_ms: int) -> None:
        """Removes meters that have nothing left to remember when there are many; then those unused for longest."""
        if len(self._meters) < CLIENTS_MAX:
            return
        by_age = sorted(self._meters, key=lambda key: self._meters[key].last_ms)
        oldest_ms = now_ms - self._window_count * self._window_ms
        gone = [key for key in by_age if self._meters[key].last_ms < oldest_ms] or by_age[: CLIENTS_MAX // 10]
        for key in gone:
            del self._meters[key]
        self._resolved.clear()


_NOTHING: Final[Mapping[str, float]] = {}


class RateMeter:
    """A rate over a number of windows. Invariant: ``_sums`` has at most ``window_count`` windows, the newest last.

    The time is taken to be ``least_ms`` at least, all windows but the current one if that is not given: a short burst is not a high rate.
    """

    __slots__ = ("_least_ms", "_starts", "_sums", "_window_count", "_window_ms", "last_ms")

    def __init__(self, *, window_count: int, window_ms: int, least_ms: int | None = None) -> None:
        self._window_count = window_count
        self._window_ms = window_ms
        self._least_ms = max(1, window_count - 1) * window_ms if least_ms is None else least_ms
        self._starts: list[int] = []
        self._sums: list[float] = []
        self.last_ms = 0

    def record(self, amount: float, now_ms: int) -> None:
        self.last_ms = now_ms
        if not self._starts or now_ms - self._starts[-1] >= self._window_ms:
            self._starts.append(now_ms)
            self._sums.append(0.0)
        self._sums[-1] += amount
        self._forget(now_ms)

    def rate(self, now_ms: int) -> float:
        """Returns what was recorded, in a second."""
        self._forget(now_ms)
        return sum(self._sums) * 1000 / self._span_ms(now_ms)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Returns how long the limit needs for what is beyond it, ``THROTTLE_MS_MAX`` at most; 0 when the rate is not above it."""
        rate = self.rate(now_ms)
        if rate <= limit:
            return 0
        excess = (rate - limit) / limit if limit > 0 else math.inf
        return round(min(excess * self._span_ms(now_ms), THROTTLE_MS_MAX))

    def _span_ms(self, now_ms: int) -> int:
        return max(self._least_ms, now_ms - self._starts[0]) if self._starts else self._least_ms

    def _forget(self, now_ms: int) -> None:
        oldest = now_ms - self._window_count * self._window_ms
        while self._starts and self._starts[0] <= oldest:
            del self._starts[0]
            del self._sums[0]


class TokenBucket:
    """Tokens that come at a steady rate, up to a burst; the last spending may leave fewer than none. Full at first.

    It counts exactly, so that a pause is never a rounding too short: a client that has waited for it finds a token.
    """

    __slots__ = ("_at_ms", "_missing")

    def __init__(self) -> None:
        self._missing = Fraction(0)  # how many tokens the bucket is short of the burst
        self._at_ms = 0

    def spend(self, count: int, rate: float, burst: float, now_ms: int, *, is_strict: bool) -> tuple[int, bool]:
        """Returns the pause until a token is there, and whether so many were spent. With ``is_strict`` the caller is refused instead."""
        exact_rate = Fraction(rate)
        self._missing = max(Fraction(0), self._missing - exact_rate * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        has_token = self._missing < burst
        if has_token or not is_strict:
            self._missing += count
        if is_strict and has_token:
            return 0, True
        lacking = self._missing - Fraction(burst)
        return self._until(lacking, exact_rate), not is_strict

    @staticmethod
    def _until(lacking: Fraction, rate: Fraction) -> int:
        if lacking < 0:
            return 0
        return min(math.floor(lacking * 1000 / rate) + 1, THROTTLE_MS_MAX) if rate > 0 else THROTTLE_MS_MAX
