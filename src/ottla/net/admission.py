"""Who may connect: limits on the number of connections and on their rate.

====================================  ====================================================================================
``max.connections``                   of the broker; of one listener with the prefix ``listener.name.<name>.``. At the limit
                                      no connection is accepted until one ends: new ones wait in the kernel's backlog
``max.connection.creation.rate``      a second, of the broker or of one listener. Above it, accepting pauses
``max.connections.per.ip``            of one address, with exceptions by address. Above it, a new one is closed at once
``connection_creation_rate``          a quota of one address, or of any, in connections a second. Above it, a new one is not
                                      served, and closed once its address might have come again
====================================  ====================================================================================

The brokers' own listener is protected, where there is another one: ``max.connections`` of the broker does not hold it up,
and what it takes beyond is made up for by closing the least recently used connection of another listener. Source: KIP-402,
KIP-612.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from ottla.quotas import CLIENTS_MAX, TokenBucket

UNLIMITED: Final = 2**31 - 1
SHUT_OUT_MS: Final = 1_000
"""How long a connection from an address that may not connect at all is kept, which must not come again at once."""


def address_of(text: str) -> str:
    """Returns an address as connections have it, however an operator writes it: IPv6 in its short form. A name stays as it is."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    return str(getattr(address, "ipv4_mapped", None) or address)


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class ListenerLimits(Struct, frozen=True):
    connections: int = UNLIMITED
    creation_rate: int = UNLIMITED


class AdmissionLimits(Struct, frozen=True):
    connections: int = UNLIMITED
    creation_rate: int = UNLIMITED
    per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    by_listener: Mapping[str, ListenerLimits] = field(default_factory=dict)
    protected_listener: str | None = None


class RateGate:
    """A gate that admits ``rate`` a second at most, and a second's worth at once, to within one. A rate of 0 admits none."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._bucket = TokenBucket()

    def take(self, now_ms: int) -> None:
        if 0 < self.rate < UNLIMITED:
            self._bucket.spend(1, self.rate, self.rate, now_ms, is_strict=False)

    def wait_ms(self, now_ms: int) -> int:
        """Returns how long until the next one may come; 0 when it may come now."""
        if self.rate >= UNLIMITED:
            return 0
        if self.rate == 0:
            return SHUT_OUT_MS
        return self._bucket.spend(0, self.rate, self.rate, now_ms, is_strict=False)[0]


class Admission:
    """The count of open connections, and what the limits say. Every ``admitted`` is followed by one ``left``."""

    def __init__(self, limits: AdmissionLimits, listeners: list[str]) -> None:
        self._counts = dict.fromkeys(listeners, 0)
        self._by_ip: dict[str, int] = {}
        self._ip_rates: Mapping[str | None, float] = {}
        self._ip_buckets: dict[str, TokenBucket] = {}
        self.set_limits(limits)

    def set_limits(self, limits: AdmissionLimits) -> None:
        """Sets the limits. Connections beyond them stay, except for ``is_above_maximum``."""
        self._limits = limits
        self._rate = RateGate(limits.creation_rate)
        self._listener_rates = {name: RateGate(self._of(name).creation_rate) for name in self._counts}

    def set_ip_rates(self, rates: Mapping[str | None, float]) -> None:
        """Sets how many connections a second addresses may make; under None, the rate for addresses that are not named."""
        self._ip_rates = {name if name is None else address_of(name): rate for name, rate in rates.items()}

    def ip_pause_ms(self, ip: str, now_ms: int) -> int:
        """Returns how long an address that opens connections too fast must wait; 0 when this one was not too fast."""
        rate = self._ip_rates.get(ip, self._ip_rates.get(None))
        if rate is None:
            return 0
        if rate == 0:  # none may come, and no time is known after which one might
            return SHUT_OUT_MS
        if ip not in self._ip_buckets and len(self._ip_buckets) >= CLIENTS_MAX:
            self._ip_buckets.clear()
        bucket = self._ip_buckets.setdefault(ip, TokenBucket())
        return bucket.spend(1, rate, max(1.0, rate), now_ms, is_strict=True)[0]

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    def count_of(self, listener: str) -> int:
        return self._counts[listener]

    def has_room(self, listener: str) -> bool:
        """True when there is room; False while new connections to this listener must wait for one to end."""
        if self._counts[listener] >= self._of(listener).connections:
            return False
        return self._is_protected(listener) or self.count < self._limits.connections

    def wait_ms(self, listener: str, now_ms: int) -> int:
        """Returns how long the rates delay the next connection to this listener; the broker's do not delay the protected one."""
        of_all = 0 if self._is_protected(listener) else self._rate.wait_ms(now_ms)
        return max(of_all, self._listener_rates[listener].wait_ms(now_ms))

    def admitted(self, listener: str, ip: str, now_ms: int) -> bool:
        """Counts the connection. False when its address has too many: then it is to be closed, which counts it out again."""
        if not self._is_protected(listener):
            self._rate.take(now_ms)
        self._listener_rates[listener].take(now_ms)
        self._counts[listener] += 1
        self._by_ip[ip] = self._by_ip.get(ip, 0) + 1
        return self._by_ip[ip] <= self._limits.per_ip_overrides.get(ip, self._limits.per_ip)

    def left(self, listener: str, ip: str) -> None:
        self._counts[listener] -= 1
        if self._by_ip[ip] == 1:
            del self._by_ip[ip]
        else:
            self._by_ip[ip] -= 1

    def is_above_maximum(self) -> bool:
        """True when the protected listener has taken more than there is: a connection of another listener is to be ended."""
        others = self.count - self._counts.get(self._limits.protected_listener or "", 0)
        return self.count > self._limits.connections and others > 0 and self._limits.protected_listener is not None

    def _is_protected(self, listener: str) -> bool:
        return listener == self._limits.protected_listener and len(self._counts) > 1

    def _of(self, listener: str) -> ListenerLimits:
        return self._limits.by_listener.get(listener, ListenerLimits())
