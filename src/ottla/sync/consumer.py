"""The blocking consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Unpack, overload

from ottla import aio
from ottla.aio import ConsumerRecord
from ottla.client.buffer import Bytes, K, V
from ottla.client.options import ConsumerOptions
from ottla.client.other_keywords import with_hints
from ottla.client.other_methods import with_method_hints
from ottla.client.rebalance_listener import Rebalanced, RebalanceListener
from ottla.client.subscription import SubscriptionPattern
from ottla.client.wrong_calls import with_brokers_first
from ottla.sync.loop_thread import Blocking, blocking, in_caller, on_loop
from ottla.types import TopicPartition


@with_method_hints
@with_hints
class Consumer(Blocking["aio.Consumer[Any, Any]"], Generic[K, V]):
    """A consumer; see ``ottla.client.options.ConsumerOptions`` for the settings.

    ``K`` and ``V`` are what its deserializers return, and the types of its records' keys and values: bytes or None without them.
    """

    @overload
    def __init__(
        self: Consumer[Bytes, Bytes], bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Unpack[ConsumerOptions]
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Bytes, V],
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        value_deserializer: Callable[[Bytes], V],
        **settings: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[K, Bytes],
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        key_deserializer: Callable[[Bytes], K],
        **settings: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        key_deserializer: Callable[[Bytes], K],
        value_deserializer: Callable[[Bytes], V],
        **settings: Unpack[ConsumerOptions],
    ) -> None: ...

    @with_brokers_first
    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Any) -> None:
        self._closing = threading.RLock()  # a second thread that closes waits for the first, and ends none of its calls
        super().__init__(lambda: aio.Consumer(bootstrap_servers, **settings))

    def close(self) -> None:
        """Commits when that is automatic, leaves the group and closes connections. A second call does nothing.

        A coordinator that does not answer is waited for until ``request_timeout_ms`` has passed, and raises nothing.

        A call of another thread that waits, as a ``poll``, raises ClientClosedError.
        """
        if self._is_closed or self._thread.is_of_parent:
            super().close()
            return
        with self._closing:
            if not self._is_closed:
                self._thread.end_calls()
            super().close()

    def subscribe(
        self,
        topics: Sequence[str] = (),
        *,
        pattern: str | SubscriptionPattern | None = None,
        on_assigned: Rebalanced | None = None,
        on_revoked: Rebalanced | None = None,
        on_lost: Rebalanced | None = None,
    ) -> None:
        """Subscribes to these topics: the group divides their partitions among its members; ``poll`` joins it. No broker is asked.

        ``pattern`` is a regular expression that the whole name of a topic matches; topics that are created later are found. The brokers
        match a ``SubscriptionPattern``. A second call replaces the topics and the callbacks of the first.
        Called within ``poll``: ``on_revoked`` before partitions are given up, ``on_assigned`` after others were assigned, ``on_lost`` (else
        ``on_revoked``) when its membership has ended: others may own its partitions, and a commit would be refused.

        INVALID_GROUP_ID without a ``group_id``; INVALID_REQUEST while partitions are assigned by hand, or for a pattern that is not valid.
        """
        RebalanceListener(on_assigned, on_revoked, on_lost).check(is_awaited=False)
        callbacks = {"on_assigned": _in_caller(on_assigned), "on_revoked": _in_caller(on_revoked), "on_lost": _in_caller(on_lost)}
        self._thread.call(lambda: self._inner.subscribe(topics, pattern=pattern, **callbacks))

    def poll(self, timeout_ms: int = 0, *, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Returns records that have come, at most ``max_records``; an empty list when none came in ``timeout_ms``.

        The records of a partition come in the order of their offsets, the partitions in any order.
        Drives everything: joining and rebalancing, resets, auto-commit. KafkaError for what the application has to decide on:
        INVALID_REQUEST where it neither subscribes nor is assigned; TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED;
        FENCED_INSTANCE_ID; OFFSET_OUT_OF_RANGE where ``auto_offset_reset`` is none; DeserializationError.
        While brokers do not answer it raises nothing: it returns an empty list after ``timeout_ms``, and the next poll goes on trying;
        ``on_connectivity`` is called when no broker can be reached.

        When the caller is interrupted, what had come by then comes with the next poll.
        """
        self._run(self._inner._fetch(timeout_ms, max_records=max_records))
        return self._inner._rest()

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Yields records for ever, each one consumed as it is handed out."""
        while True:
            record = self._inner._next_record()
            if record is None:
                self._run(self._inner._fetch(aio.ITERATION_POLL_MS))
            else:
                yield record

    unsubscribe = blocking(aio.Consumer.unsubscribe)
    assign = on_loop(aio.Consumer.assign)
    assignment = on_loop(aio.Consumer.assignment)
    subscription = on_loop(aio.Consumer.subscription)
    group_metadata = on_loop(aio.Consumer.group_metadata)
    commit = blocking(aio.Consumer.commit)
    store_offsets = on_loop(aio.Consumer.store_offsets)
    committed = blocking(aio.Consumer.committed)
    position = blocking(aio.Consumer.position)
    seek = on_loop(aio.Consumer.seek)
    seek_to_beginning = on_loop(aio.Consumer.seek_to_beginning)
    seek_to_end = on_loop(aio.Consumer.seek_to_end)
    pause = on_loop(aio.Consumer.pause)
    resume = on_loop(aio.Consumer.resume)
    paused = on_loop(aio.Consumer.paused)
    offsets_for_times = blocking(aio.Consumer.offsets_for_times)
    beginning_offsets = blocking(aio.Consumer.beginning_offsets)
    end_offsets = blocking(aio.Consumer.end_offsets)
    metrics = on_loop(aio.Consumer.metrics)
    partitions_for = blocking(aio.Consumer.partitions_for)

    @property
    def member_id(self) -> str:
        """This member's name in the group; empty while it has none."""
        return self._inner.member_id

    @property
    def generation_id(self) -> int:
        """The group's generation that this member belongs to; -1 while there is none."""
        return self._inner.generation_id


def _in_caller(callback: Rebalanced | None) -> Callable[[list[TopicPartition]], Any] | None:
    """Returns the callback, which is then called in the thread that polls."""
    return None if callback is None else lambda partitions: in_caller(callback, partitions)
