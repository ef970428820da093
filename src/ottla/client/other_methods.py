"""Methods that users of other clients call, each with what is meant here.

``with_method_hints`` decorates a class: its AttributeError for such a name says what to write. Each name is an attribute that raises when
it is asked for; type checkers do not see it, and refuse the name by themselves. A ``__getattr__`` would make each look at an attribute five
times as long, and ``send`` has many.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

C = TypeVar("C", bound=type[Any])
_ASYNC_WITH: Final = "write `async with`, or use ottla.sync"
_NO_START: Final = "there is nothing to start: a client connects at its first use"
_STOP: Final = "write close(), or use the client in a with block"
_CALLBACKS: Final = "callbacks are called by themselves: give send on_delivery=, and call flush() at the end"
_MANY: Final = "write send_many([(topic, value), (topic, value, key)])"
_POLL: Final = "write poll(timeout_ms=1000, max_records=500), which returns a list of records, or iterate"
_ONE: Final = "iterate, or write poll(timeout_ms=1000, max_records=1)"
_TOPICS: Final = "write Admin(...).list_topics(); partitions_for(topic) returns a topic's partitions"
_CLUSTER: Final = "write Admin(...).describe_cluster()"
_CREDENTIALS: Final = "make another client; sasl_oauth_token= is a function that is called for each connection"
_REACHED: Final = "give on_connectivity= where the client is made: it is called when no broker can be reached, and when one can again"
_LAG: Final = "metrics().lag has how far each partition is behind; end_offsets(partitions) asks the brokers"

OTHER_METHODS: Final[Mapping[str, Mapping[str, str]]] = {
    "Producer": {
        "produce": "write send(topic, value, key=key, on_delivery=callback)",
        "produce_batch": _MANY,
        "create_batch": _MANY,
        "send_batch": _MANY,
        "poll": _CALLBACKS,
        "poll_timeout": _CALLBACKS,
        "purge": "each record fails by itself after delivery_timeout_ms; abort_transaction() drops those of a transaction",
        "list_topics": _TOPICS,
        "partitions_for_topic": "write partitions_for(topic)",
        "start": _NO_START,
        "stop": _STOP,
        "bootstrap_connected": _REACHED,
        "cluster_id": _CLUSTER,
        "max_usable_produce_magic": "records have the one format that brokers since Kafka 0.11 have",
        "set_sasl_credentials": _CREDENTIALS,
    },
    "Consumer": {
        "consume": _POLL,
        "getmany": _POLL,
        "poll_timeout": _POLL,
        "getone": _ONE,
        "list_topics": _TOPICS,
        "topics": _TOPICS,
        "partitions_for_topic": "write partitions_for(topic)",
        "commit_async": "write commit(); in ottla.aio make a task of it, in ottla.sync leave it to enable_auto_commit",
        "consumer_group_metadata": "write group_metadata()",
        "memberid": "member_id is a property",
        "get_watermark_offsets": "write beginning_offsets(partitions) and end_offsets(partitions)",
        "highwater": _LAG,
        "last_stable_offset": _LAG,
        "current_lag": _LAG,
        "seek_to_committed": "write for partition, offset in committed(consumer.assignment()).items(): consumer.seek(partition, offset); "
        "without a commit: seek_to_beginning",
        "incremental_assign": "write assign(partitions) with all that are to be read; those that were assigned keep their positions",
        "incremental_unassign": "write assign(partitions) with the rest",
        "unassign": "write assign([])",
        "wakeup": "call close() from another thread, or cancel the task that polls",
        "last_poll_timestamp": "keep the time of your own poll",
        "start": _NO_START,
        "stop": _STOP,
        "bootstrap": _NO_START,
        "bootstrap_connected": _REACHED,
        "cluster_id": _CLUSTER,
        "set_sasl_credentials": _CREDENTIALS,
    },
    "Admin": {
        "create_topic": 'write create_topics([NewTopic("orders", partition_count=3)])',
        "delete_topic": 'write delete_topics(["orders"])',
        "describe_config": 'write describe_configs(Topic("orders"))',
        "alter_consumer_group_offsets": "write set_offsets(group_id, offsets)",
        "alter_group_offsets": "write set_offsets(group_id, offsets)",
        "reset_group_offsets": "write set_offsets(group_id, offsets), with offsets_for_times for a place in time",
        "delete_group_offsets": "write delete_offsets(group_id, partitions)",
        "list_consumer_group_offsets": "write committed_offsets(group_id)",
        "list_group_offsets": "write committed_offsets(group_id)",
        "list_consumer_groups": "write list_groups()",
        "describe_consumer_groups": "write describe_group(group_id)",
        "describe_groups": "write describe_group(group_id)",
        "find_coordinator": "describe_group(group_id) finds the coordinator",
        "delete_consumer_groups": "write delete_groups(group_ids)",
        "remove_group_members": "stop the member, or wait for the end of its session",
        "describe_topics": "write describe_topic(name)",
        "describe_topic_partitions": "write describe_partitions(names)",
        "wait_for_topics": "create_topics returns when the topics are there",
        "incremental_alter_configs": "write alter_configs(changes), which changes the keys that it names",
        "reset_configs": "write alter_configs(changes): None removes a key",
        "list_offsets": "write offsets_for_times(times), which takes OffsetSpec.EARLIEST and LATEST, too",
        "list_partition_offsets": "write offsets_for_times(times), which takes OffsetSpec.EARLIEST and LATEST, too",
        "describe_user_scram_credentials": "write describe_users()",
        "alter_user_scram_credentials": "write alter_users(changes)",
        "describe_metadata_quorum": "write describe_quorum()",
        "api_versions": _CLUSTER,
        "cluster_id": _CLUSTER,
        "get_broker_version_data": _CLUSTER,
        "poll": "each call returns its result: there is nothing to poll for",
        "start": _NO_START,
        "stop": _STOP,
        "set_sasl_credentials": _CREDENTIALS,
    },
}
"""What is meant, by class and by the other client's name."""

_CALLED_BACK: Final = "write add_done_callback(function), or give send on_delivery="
OTHER_METHODS_OF_FUTURES: Final[Mapping[str, str]] = {
    "get": "write result(timeout), in seconds",
    "add_callback": _CALLED_BACK,
    "add_errback": _CALLED_BACK,
    "add_both": _CALLED_BACK,
    "succeeded": "write done() and exception() is None",
    "failed": "write done() and exception() is not None",
    "is_done": "write done()",
}
"""The same of what ``send`` of ``ottla.sync`` returns."""


def with_method_hints(kind: C) -> C:
    """Returns the class; an AttributeError for another client's method has a hint."""
    for name, hint in OTHER_METHODS[kind.__name__].items():
        if not hasattr(kind, name):
            setattr(kind, name, Missing(name, hint))
    if hasattr(kind, "__aenter__"):
        setattr(kind, "__enter__", Missing("__enter__", _ASYNC_WITH))  # noqa: B010 - as below
    if hasattr(kind, "__aiter__"):
        setattr(kind, "__iter__", _refuse_iteration)  # noqa: B010 - as below; Python hides what a descriptor raises here
    setattr(kind, "__dir__", dir_without_missing)  # noqa: B010 - as above: a type checker sees the class as it is
    return kind


class Missing:
    """The place of a method or field that is not there: to ask for it raises, so that ``hasattr`` is False."""

    def __init__(self, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__!r} object has no attribute {self._name!r}: {self._hint}", name=self._name)


def _refuse_iteration(self: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__!r} object is not iterable: write `async for`, or use ottla.sync")


def dir_without_missing(self: object) -> list[str]:
    """Returns the object's names without those that are not there."""
    return [name for name in object.__dir__(self) if not isinstance(inspect.getattr_static(self, name, None), Missing)]
