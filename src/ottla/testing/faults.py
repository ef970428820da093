"""What is to go wrong between clients and the nodes of a test, by name.

::

    with broker() as b:
        b.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER")   # the next Produce request is refused so
        with b.faults.late("Fetch", ms=500):                  # in this block answers to Fetch come later
            ...

A fault waits for a request of its API, happens, and is used up after so many (``times``; None for all). As a context manager it ends with
the block. Nodes do not disturb each other: only clients meet faults.
"""

from __future__ import annotations

import difflib
import functools
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar

from ottla.client.unclosed import called_from
from ottla.errors import ErrorCode
from ottla.messages.registry import API_BY_NAME

P = ParamSpec("P")
T = TypeVar("T")
WAIT_SECONDS_MAX: Final = 30.0


class Kind(Enum):
    """The kind of a fault in a request or its answer."""

    LOST = "lost"
    LATE = "late"
    DOUBLED = "doubled"
    REPEATED = "repeated"
    ERROR = "error"


class Fault:
    """A fault that a method of ``faults`` returned. As a context manager it ends with its block."""

    def __init__(
        self,
        owner: Faults,
        kind: Kind,
        api_key: int,
        *,
        times: int | None,
        client_id: str | None,
        node_id: int | None,
        delay_ms: float = 0.0,
        code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        _check_numbers(times, delay_ms)
        if node_id is not None:
            owner.check_node(node_id)
        self.kind = kind
        self.api_key = api_key
        self.delay_ms = delay_ms
        self.code = code
        self.happened: int = 0
        """How often it has happened."""
        self.is_withdrawn = False  # from then on it happens to no request, not even to one that claimed it
        self._claimed = 0  # requests that it happens to, those included to which it has yet to happen
        self._times = times
        self._client_id = client_id
        self._node_id = node_id
        self._owner = owner
        self._place = called_from()
        self._seen_before = owner.seen.copy()

    def fits(self, api_key: int, client_id: str | None, node_id: int) -> bool:
        """True when the fault may happen to such a request."""
        if self.api_key != api_key or (self._times is not None and self._claimed >= self._times):
            return False
        return self._client_id in (None, client_id) and self._node_id in (None, node_id)

    def wait(self, times: int = 1, *, seconds: float = WAIT_SECONDS_MAX) -> None:
        """Waits until it has happened so often; AssertionError when it did not in time."""
        changed = self._owner.changed
        with changed:
            if not changed.wait_for(lambda: self.happened >= times, seconds):
                raise AssertionError(f"{self} {self.happened} times, not {times}, in {seconds:g} s; {self._seen()}")

    def _seen(self) -> str:
        seen = self._owner.seen - self._seen_before
        counts: Counter[int] = Counter()
        for (key, _), count in seen.items():
            counts[key] += count
        names = {api.key: api.name for api in API_BY_NAME.values()}
        sent = ", ".join(f"{names[key]} {count}" for key, count in counts.most_common()) or "nothing"
        if self._client_id is not None and seen:
            sent += f"; their client ids are {', '.join(sorted({repr(client_id) for _, client_id in seen}))}"
        return f"clients have sent since it was asked for: {sent}"

    def withdraw(self) -> None:
        """Withdraws the fault: it happens to no answer from now on, also of a request that was sent before."""
        self._owner.remove(self)

    def warn_if_idle(self) -> None:
        """Warns of a fault that never happened, at the line that asked for it: the test has shown nothing about it."""
        if not self.happened:
            text = f"{self} 0 times, so the test has shown nothing about it; {self._seen()}"
            warnings.warn_explicit(text, UserWarning, *self._place)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.withdraw()
        if error is None:
            self.warn_if_idle()

    def __repr__(self) -> str:
        return f"<{self} {self.happened} times>"

    def __str__(self) -> str:
        name = next(api.name for api in API_BY_NAME.values() if api.key == self.api_key)
        client = "" if self._client_id is None else f" of client {self._client_id!r}"
        node = "" if self._node_id is None else f" at node {self._node_id}"
        return f"{self.kind.value} {name}{client}{node} happened"


_OTHER_KEYWORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("count", "n", "number", "how_often"), "times"),
    **dict.fromkeys(("delay", "delay_ms", "seconds", "timeout_ms"), "ms, in milliseconds; late has it"),
    **dict.fromkeys(("client", "client_name"), "client_id"),
    **dict.fromkeys(("node", "broker", "broker_id"), "node_id"),
    **dict.fromkeys(("request", "api_key", "name"), "api"),
    "error_code": "code",
}
"""What is meant by the keyword arguments that no fault takes."""


def _with_hints(method: Callable[P, T]) -> Callable[P, T]:
    """Returns the method; a TypeError for another name of one of its arguments says what to write."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs.keys() & _OTHER_KEYWORDS.keys():
            raise TypeError(f"{method.__name__}() has no argument {name!r}: write {_OTHER_KEYWORDS[name]}")
        return method(*args, **kwargs)

    return call


class Faults:
    """The faults of one test's nodes: ``ottla_broker.faults.lost("Produce")``. All end with the test.

    ``api`` is Kafka's name of a request, such as Produce. A fault happens to the next ``times`` requests (None: to all), or only to
    requests of one client, or to one node. The first that fits a request happens to it.
    """

    def __init__(self, check_node: Callable[[int], object] = lambda node_id: None) -> None:
        """Takes ``check_node``, which raises ValueError for an id that no node has."""
        self.check_node = check_node
        self.changed = threading.Condition()
        self.seen: Counter[tuple[int, str | None]] = Counter()  # requests of clients by API and client id, while a fault waits
        self._waiting: list[Fault] = []

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raises AttributeError with the faults that there are."""
            kinds = ", ".join(kind.value for kind in Kind)
            raise AttributeError(f"there is no fault {name!r}; there are {kinds}, and late(api, ms=) is a slow broker", name=name)

    @_with_hints
    def lost(self, api: str, *, times: int | None = 1, client_id: str | None = None, node_id: int | None = None) -> Fault:
        """Breaks the connection in place of an answer; the request is carried out."""
        return self._add(Fault(self, Kind.LOST, _api_key(api), times=times, client_id=client_id, node_id=node_id))

    @_with_hints
    def late(self, api: str, ms: float, *, times: int | None = None, client_id: str | None = None, node_id: int | None = None) -> Fault:
        """Delays the answer; answers after it on the same connection wait for it. Applies to all requests, unless ``times`` says."""
        return self._add(Fault(self, Kind.LATE, _api_key(api), times=times, client_id=client_id, node_id=node_id, delay_ms=ms))

    @_with_hints
    def doubled(self, api: str, *, times: int | None = 1, client_id: str | None = None, node_id: int | None = None) -> Fault:
        """Sends the answer twice."""
        return self._add(Fault(self, Kind.DOUBLED, _api_key(api), times=times, client_id=client_id, node_id=node_id))

    @_with_hints
    def repeated(self, api: str, *, times: int | None = 1, client_id: str | None = None, node_id: int | None = None) -> Fault:
        """Carries the request out twice, and answers it once: as when a client repeats it after a lost answer."""
        return self._add(Fault(self, Kind.REPEATED, _api_key(api), times=times, client_id=client_id, node_id=node_id))

    @_with_hints
    def error(
        self, api: str, code: str | ErrorCode, *, times: int | None = 1, client_id: str | None = None, node_id: int | None = None
    ) -> Fault:
        """Answers with this error code; the request changes nothing."""
        key, found = _api_key(api), _code(code)
        if found == ErrorCode.NONE:
            raise ValueError("NONE is the code of success: a request that is not carried out has an error")
        return self._add(Fault(self, Kind.ERROR, key, times=times, client_id=client_id, node_id=node_id, code=found))

    def clear(self) -> list[Fault]:
        """Withdraws all faults, and returns them."""
        with self.changed:
            waiting, self._waiting = self._waiting, []
            for fault in waiting:
                fault.is_withdrawn = True
        return waiting

    def remove(self, fault: Fault) -> None:
        """Withdraws the fault."""
        with self.changed:
            fault.is_withdrawn = True
            if fault in self._waiting:
                self._waiting.remove(fault)

    # By the nodes

    def claim(self, api_key: int, client_id: str | None, node_id: int) -> Fault | None:
        """Returns the fault that is to happen to such a request; ``happen`` or ``release`` follows."""
        if not self._waiting:
            return None
        with self.changed:
            self.seen[api_key, client_id] += 1
            found = next((fault for fault in self._waiting if fault.fits(api_key, client_id, node_id)), None)
            if found is not None:
                found._claimed += 1
            return found

    def happen(self, fault: Fault) -> None:
        """Counts the fault: it has happened to the request that claimed it."""
        with self.changed:
            fault.happened += 1
            self.changed.notify_all()

    def release(self, fault: Fault) -> None:
        """Gives the fault back: it did not happen to the request that claimed it, and waits for another one."""
        with self.changed:
            fault._claimed -= 1

    def _add(self, fault: Fault) -> Fault:
        with self.changed:
            self._waiting.append(fault)
        return fault


def _check_numbers(times: object, delay_ms: object) -> None:
    """Raises ValueError for a fault that could never happen, or would break the connection of its request."""
    if times is not None and not (isinstance(times, int) and times >= 1):
        raise ValueError(f"times={times!r}: a whole number from 1 on is expected, or None for all requests")
    if not (isinstance(delay_ms, int | float) and delay_ms >= 0):
        raise ValueError(f"ms={delay_ms!r}: milliseconds are expected, 0 or more")


def _api_key(name: object) -> int:
    if not isinstance(name, str):
        raise TypeError(f"the API is {name!r}: give its name, such as 'Produce'")
    found = API_BY_NAME.get(name)
    if found is None:
        raise ValueError(f"{name!r} is not the name of an API{_suggested(name, API_BY_NAME)}")
    return found.key


def _code(code: str | ErrorCode) -> ErrorCode:
    if isinstance(code, ErrorCode):
        return code
    if not isinstance(code, str):
        raise TypeError(f"the code is {code!r}: give its name, such as {_example(code)!r}, or a member of ErrorCode")
    if code not in ErrorCode.__members__:
        raise ValueError(f"{code!r} is not the name of an error code{_suggested(code, _FAILURES) or _ANY}")
    return ErrorCode[code]


def _example(code: object) -> str:
    """Returns the name that is meant by a number, or else any."""
    found = next((member.name for member in ErrorCode if member.value == code), None)
    return ErrorCode.NOT_LEADER_OR_FOLLOWER.name if found is None else found


_FAILURES: Final = sorted({*ErrorCode.__members__} - {ErrorCode.NONE.name})
_ANY: Final = f", such as {ErrorCode.NOT_LEADER_OR_FOLLOWER.name!r}; ottla.errors.ErrorCode has them all"


def _suggested(name: str, known: Iterable[str]) -> str:
    fold: Callable[[str], str] = str.casefold
    folded = {fold(candidate): candidate for candidate in known}
    near = difflib.get_close_matches(fold(name), folded, 1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""
