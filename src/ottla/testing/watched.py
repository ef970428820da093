"""Clients whose sends and polls are recorded: what stands in for a client passes every call on, and notes what came of some.

confluent-kafka, kafka-python, aiokafka, ``ottla.aio`` and ``ottla.sync`` name these calls alike, and where they differ the result says how:
a coroutine is awaited, a future has a callback more.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self

from ottla.testing.records import Seen, seen_in, sent_text

POLLS: Final = frozenset({"poll", "consume", "getone", "getmany"})
MOVES: Final = frozenset({"seek", "seek_to_beginning", "seek_to_end", "seek_to_committed", "assign", "incremental_assign", "subscribe"})
"""After them the next record of a partition may be any."""
PRODUCE_ARGUMENTS: Final = ("value", "key", "partition", "on_delivery", "timestamp", "headers")
"""Of confluent-kafka, in their order."""


class Recorder(Protocol):
    """The recorder of what happened (``history.History``)."""

    def sending(self, process: str, topic: str, value: str, *, transaction: str = "") -> None: ...
    def sent(self, process: str, topic: str, value: str, *, partition: int, offset: int, transaction: str = "") -> None: ...
    def polled(self, process: str, records: Sequence[Seen], *, read_uncommitted: bool = False) -> None: ...
    def assigned(self, process: str, partitions: Iterable[tuple[str, int]]) -> None: ...
    def ended(self, process: str, transaction: str, kind: Literal["invoke", "ok"], *, is_commit: bool) -> None: ...


class WatchedClient:
    """A client whose calls are recorded; all other attributes are the client's own."""

    def __init__(self, recorder: Recorder, client: Any, process: str) -> None:
        self._recorder = recorder
        self._client = client
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def __enter__(self) -> Self:
        self._client.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.__exit__(kind, error, trace)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._client.__aexit__(kind, error, trace)


class WatchedProducer(WatchedClient):
    """A producer. A send whose end is not seen may have taken effect."""

    def __init__(self, recorder: Recorder, client: Any, process: str) -> None:
        super().__init__(recorder, client, process)
        self._transaction = ""
        self._transactions = itertools.count(1)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        match name:
            case "send" | "send_and_wait":
                return functools.partial(self._send, found)
            case "commit_transaction" | "abort_transaction":
                return functools.partial(self._end, found, is_commit=name == "commit_transaction")
            case _:
                return found

    def produce(self, topic: str, *arguments: Any, callback: Any = None, **options: Any) -> Any:
        """Produces as confluent-kafka does."""
        options |= dict(zip(PRODUCE_ARGUMENTS, arguments))
        callback = options.pop("on_delivery", None) or callback
        landed = self._sending(topic, options.get("key"), options.get("value"))

        def delivered(error: Any, message: Any) -> None:
            if error is None and message.offset() is not None and message.offset() >= 0:
                landed(message.partition(), message.offset())
            if callback is not None:
                callback(error, message)

        return self._client.produce(topic, on_delivery=delivered, **options)

    def send_many(self, records: Iterable[tuple[Any, ...]]) -> Any:
        """Sends each record, (topic, value) or (topic, value, key), as ``send`` does."""
        listed = list(records)
        landed = [self._sending(topic, key[0] if key else None, value) for topic, value, *key in listed]

        def watch(futures: Any) -> Any:
            for future, note in zip(futures, landed, strict=True):
                _when_done(future, note)
            return futures

        return _after(self._client.send_many(listed), watch)

    def begin_transaction(self, *arguments: Any) -> Any:
        """Sends belong to a transaction from now on."""
        self._transaction = f"{self._process} transaction {next(self._transactions)}"
        return self._client.begin_transaction(*arguments)

    def transaction(self) -> _Transaction:
        """Returns a block, for ``with`` or ``async with``, whose sends are committed at its end, and aborted when it raises."""
        return _Transaction(self)

    def _send(self, send: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        given = inspect.signature(send).bind(*arguments, **options).arguments
        landed = self._sending(given["topic"], given.get("key"), given.get("value"))
        return _after(send(*arguments, **options), lambda result: _when_done(result, landed))

    def _sending(self, topic: str, key: Any, value: Any) -> Callable[[int, int], None]:
        """Records that a send has started. The function that is returned is to be called with where the record landed."""
        text, transaction = sent_text(self._client, topic, key, value), self._transaction
        self._recorder.sending(self._process, topic, text, transaction=transaction)

        def landed(partition: int, offset: int) -> None:
            self._recorder.sent(self._process, topic, text, partition=partition, offset=offset, transaction=transaction)

        return landed

    def _end(self, end: Callable[..., Any], *arguments: Any, is_commit: bool) -> Any:
        name = self._transaction
        self._recorder.ended(self._process, name, "invoke", is_commit=is_commit)

        def ended(result: Any) -> Any:
            self._transaction = ""
            self._recorder.ended(self._process, name, "ok", is_commit=is_commit)
            return result

        return _after(end(*arguments), ended)


class _Transaction:
    """The block of ``WatchedProducer.transaction``."""

    def __init__(self, producer: WatchedProducer) -> None:
        self._producer = producer

    def __enter__(self) -> WatchedProducer:
        self._producer.begin_transaction()
        return self._producer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    async def __aenter__(self) -> WatchedProducer:
        await self._producer.begin_transaction()
        return self._producer

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            await self._producer.commit_transaction()
        else:
            await self._producer.abort_transaction()


class WatchedConsumer(WatchedClient):
    """A consumer. A member of a group may get a record again, after a rebalance; one with partitions of its own may not."""

    def __init__(self, recorder: Recorder, client: Any, process: str) -> None:
        super().__init__(recorder, client, process)
        self._is_member = True
        self._assigned: set[tuple[str, int]] = set()
        self._last: dict[tuple[str, int], int] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name in POLLS:
            return lambda *arguments, **options: _after(found(*arguments, **options), self._note)
        if name in MOVES:
            if name in ("assign", "subscribe"):
                self._is_member = name == "subscribe"
            self._assigned.clear()
        return found

    def __iter__(self) -> Iterator[Any]:
        for record in self._client:
            yield self._note(record)

    def __next__(self) -> Any:
        return self._note(next(self._client))

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for record in self._client:
            yield self._note(record)

    def _note(self, polled: Any) -> Any:
        records = list(seen_in(polled))
        if not records:
            return polled
        assigned = {(partition.topic, partition.partition) for partition in self._client.assignment()}
        moved = assigned - self._assigned
        self._assigned = assigned
        if self._is_member:
            moved |= {seen[:2] for seen in records if seen.offset <= self._last.get(seen[:2], -1)}
        if moved:
            self._recorder.assigned(self._process, sorted(moved))
        self._last |= {seen[:2]: seen.offset for seen in records}
        self._recorder.polled(self._process, records, read_uncommitted=_reads_uncommitted(self._client))
        return polled


def stand_in(recorder: Recorder, client: Any, process: str) -> WatchedClient:
    """Returns the client, watched. TypeError for what neither sends nor polls."""
    if isinstance(client, type):
        raise TypeError(f"{client.__name__} is a class: watch a client, as in history.watch({client.__name__}(...))")
    if hasattr(client, "produce") or hasattr(client, "send"):
        return WatchedProducer(recorder, client, process)
    if any(hasattr(client, name) for name in POLLS):
        return WatchedConsumer(recorder, client, process)
    raise TypeError(f"{type(client).__name__} is neither a producer nor a consumer")


def _after(result: Any, then: Callable[[Any], Any]) -> Any:
    """Applies ``then`` to the result; to a coroutine's, once it is awaited."""
    if not inspect.iscoroutine(result):
        return then(result)

    async def await_it() -> Any:
        return then(await result)

    return await_it()


def _when_done(result: Any, landed: Callable[[int, int], None]) -> Any:
    """Returns the result of a send, a future or what it returns, after noting where the record landed."""

    def note(metadata: Any) -> None:
        if metadata.offset is not None and metadata.offset >= 0:
            landed(metadata.partition, metadata.offset)

    def done(future: Any) -> None:
        # A caller that asks a future for its exception has seen it, and it is not reported again.
        if not future.cancelled() and future._exception is None:
            note(future.result())

    if hasattr(result, "add_errback"):  # of kafka-python
        result.add_callback(note)
    elif hasattr(result, "add_done_callback"):
        result.add_done_callback(done)
    else:
        note(result)
    return result


def _reads_uncommitted(client: Any) -> bool:
    """True when the consumer also reads aborted records, where the client says so."""
    config = getattr(client, "config", None)
    level = config.get("isolation_level") if isinstance(config, dict) else getattr(client, "_isolation_level", None)
    return level == "read_uncommitted"
