"""The future of a record that is sent: a ``concurrent.futures.Future`` that costs little while no caller waits for it.

Of the many futures that a producer makes, most are never waited for one by one. The base class makes a lock and two lists for each;
here they are made by the first thread that looks at them. The order in ``land`` and ``set_exception`` is what makes this safe: the outcome
is there before they look whether a thread waits, and a thread that waits says so before it looks for the outcome.

No future has a ``__dict__``: CPython keeps the attributes of an object in a small array as long as all their names are among those that the
class has seen early, and makes a dict of it where a name is new, or ``__dict__`` is asked for. CPython 3.11 may collect garbage while it
makes one, and run a finalizer, during which another thread can make a second dict of the same array; the process ends with a segmentation
fault some time later. So each class gets all names from its first object, and nothing looks at ``__dict__``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING
from typing import Any, Final, Never

from ottla.client.accumulator import RecordMetadata
from ottla.client.other_methods import OTHER_METHODS_OF_FUTURES

_MADE_LATE: Final[Mapping[str, Callable[[], Any]]] = {"_condition": threading.Condition, "_waiters": list, "_done_callbacks": list}
_NAMES: Final = ("_state", "_result", "_is_watched", "_exception", "_is_seen", *_MADE_LATE)


class SentRecord(Future[RecordMetadata]):
    """The place where the record landed, once it is acknowledged; or a KafkaError."""

    _state = PENDING
    _result: RecordMetadata | None = None
    _exception: BaseException | None = None
    _is_seen = False
    _is_watched = False  # a thread has looked at what is made late
    _making = threading.RLock()  # a finalizer may look, too, within another call of its thread

    def __init__(self) -> None:
        """Makes a future without the base class's call: ``object.__new__`` makes one, too; other attributes are made late."""

    def __getattr__(self, name: str) -> Any:
        if name not in _MADE_LATE:
            hint = OTHER_METHODS_OF_FUTURES.get(name)
            raise AttributeError(f"the future of a record has no attribute {name!r}" + (f": {hint}" if hint else ""), name=name, obj=self)
        self._is_watched = True  # before the thread looks for the outcome
        with self._making:  # all threads get the same
            try:
                return object.__getattribute__(self, name)
            except AttributeError:
                made = _MADE_LATE[name]()
                setattr(self, name, made)
                return made

    def done(self) -> bool:
        """True when it has landed, failed, or was cancelled."""
        return self._state is not PENDING

    @staticmethod
    def land(records: Iterable[SentRecord], places: Iterable[RecordMetadata]) -> None:
        """Marks each record as landed at its place, unless it has failed before."""
        for record, place in zip(records, places):
            if record._state is PENDING:
                record._result = place
                record._state = FINISHED
                if record._is_watched:
                    record._wake()

    def set_exception(self, exception: BaseException | None) -> None:
        """Marks the record as failed."""
        self._exception = exception
        self._state = FINISHED
        if self._is_watched:
            self._wake()

    def _wake(self) -> None:
        """Wakes threads that wait, and calls callbacks."""
        with self._condition:
            for waiter in self._waiters:
                (waiter.add_result if self._exception is None else waiter.add_exception)(self)
            self._condition.notify_all()
        self._invoke_callbacks()

    def cancel(self) -> bool:
        """Returns False: a record that was sent cannot be taken back."""
        return False

    def result(self, timeout: float | None = None, **others: Never) -> RecordMetadata:
        """Returns where the record landed; raises why it did not."""
        if others:
            raise _seconds("result", others)
        error = self.exception(timeout)
        if error is not None:
            raise error
        return super().result()

    def exception(self, timeout: float | None = None, **others: Never) -> BaseException | None:
        """Returns why the record did not land; None when it did."""
        if others:
            raise _seconds("exception", others)
        if self._state is PENDING:
            self._check()
        error = super().exception(timeout)
        self._is_seen = True
        return error

    @property
    def is_unseen(self) -> bool:
        """It has failed, and no caller has looked at its exception."""
        return not self._is_seen

    @staticmethod
    def _check() -> None:
        """Raises where the caller would wait for ever. Each client has a class of its own with its check: no record has to carry it."""


def _seconds(method: str, others: Mapping[str, object]) -> TypeError:
    return TypeError(f"{method}() has no argument {next(iter(others))!r}: write {method}(timeout), in seconds, as of every future")


def of_client(check: Callable[[], None]) -> type[SentRecord]:
    """Returns the class of a client's futures. ``check`` raises in a callback of the client, which does no work meanwhile."""
    made = type(SentRecord.__name__, (SentRecord,), {"_check": staticmethod(check)})
    first = made()
    for name in _NAMES:
        setattr(first, name, None)
    return made


def _in_child() -> None:
    """Replaces the lock, which another thread may hold that is not in this process."""
    SentRecord._making = threading.RLock()


os.register_at_fork(after_in_child=_in_child)
