"""The blocking consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Unpack

from ottla import aio
from ottla.aio import ConsumerRecord
from ottla.client.consumer_settings import Rebalanced
from ottla.client.options import ConsumerOptions
from ottla.sync.loop_thread import Blocking, blocking, in_caller, on_loop
from ottla.types import TopicPartition


class Consumer(Blocking[aio.Consumer]):
    """A consumer; see ``ottla.client.options.ConsumerOptions`` for the settings."""

    def __init__(self, bootstrap_servers: str | Sequence[str] = "localhost:9092", **settings: Unpack[ConsumerOptions]) -> None:
        super().__init__(lambda: aio.Consumer(bootstrap_servers, **settings))

    def subscribe(
        self,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Rebalanced | None = None,
        on_revoked: Rebalanced | None = None,
    ) -> None:
        """The group divides the partitions of these topics among its members; ``poll`` joins it.

        ``pattern`` is a regular expression that the whole name of a topic matches; topics that are created later are found.
        ``on_revoked`` is called, within ``poll``, before partitions are given up, ``on_assigned`` after others were assigned.
        """
        callbacks = {"on_assigned": _in_caller(on_assigned), "on_revoked": _in_caller(on_revoked)}
        self._run(self._inner.subscribe(topics, pattern=pattern, **callbacks))

    def poll(self, timeout_ms: int = 0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records that have come, at most ``max_records``; an empty list when none came in ``timeout_ms``.

        Drives everything: joining and rebalancing, resets, auto-commit. KafkaError for what the application has to decide on. When the
        caller is interrupted, what had come by then comes with the next poll.
        """
        self._run(self._inner.fetch(timeout_ms, max_records=max_records))
        return self._inner.rest()

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records for ever, each one consumed as it is handed out."""
        while True:
            record = self._inner.next_record()
            if record is None:
                self._run(self._inner.fetch(aio.ITERATION_POLL_MS))
            else:
                yield record

    unsubscribe = blocking(aio.Consumer.unsubscribe)
    assign = blocking(aio.Consumer.assign)
    assignment = on_loop(aio.Consumer.assignment)
    group_metadata = on_loop(aio.Consumer.group_metadata)
    commit = blocking(aio.Consumer.commit)
    committed = blocking(aio.Consumer.committed)
    position = blocking(aio.Consumer.position)
    seek = blocking(aio.Consumer.seek)
    seek_to_beginning = blocking(aio.Consumer.seek_to_beginning)
    seek_to_end = blocking(aio.Consumer.seek_to_end)
    pause = on_loop(aio.Consumer.pause)
    resume = on_loop(aio.Consumer.resume)
    paused = on_loop(aio.Consumer.paused)
    offsets_for_times = blocking(aio.Consumer.offsets_for_times)
    beginning_offsets = blocking(aio.Consumer.beginning_offsets)
    end_offsets = blocking(aio.Consumer.end_offsets)

    @property
    def member_id(self) -> str:
        """The coordinator's name for this member; empty while it has none."""
        return self._inner.member_id

    @property
    def generation_id(self) -> int:
        """The group's generation that this member belongs to; -1 while there is none."""
        return self._inner.generation_id


def _in_caller(callback: Rebalanced | None) -> Callable[[list[TopicPartition]], Any] | None:
    """The callback, called in the thread that polls."""
    return None if callback is None else lambda partitions: in_caller(callback, partitions)
