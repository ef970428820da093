"""Keyword arguments that users of other clients type, each with what is meant here.

``with_hints`` decorates a class whose methods, or whose constructor, are in the table: their TypeError for such a name says what to write.
``send`` is called for each record, and the wrapper would take a quarter of a microsecond: it takes other names as ``**others``, and calls
``refuse`` for them. Their type is ``Never``, so that type checkers refuse each of them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeVar

C = TypeVar("C", bound=type[Any])
_MARK: Final = "_has_hints"
_MILLISECONDS: Final = "write timeout_ms, in milliseconds"
_NO_LIMIT: Final = "there is no limit of its own"
_FLUSH: Final = _NO_LIMIT + ": each record is acknowledged or fails within the producer's delivery_timeout_ms"
_API_LIMIT: Final = _NO_LIMIT + ": set default_api_timeout_ms where the client is made"
_COMMIT: Final = 'give a record, or a dict: commit(record), commit({("orders", 0): record.offset + 1})'
_METADATA: Final = "write group_metadata=consumer.group_metadata()"
_CLOSE: Final = {"timeout": _NO_LIMIT, "timeout_ms": _NO_LIMIT, "autocommit": "set enable_auto_commit=False where the consumer is made"}
_SEND: Final = {
    "timestamp": "write timestamp_ms, in milliseconds since 1970",
    "msg": "write value",
    "message": "write value",
    "data": "write value",
    "payload": "write value",
    "header": "write headers",
    "topic_name": "write topic",
    "partition_id": "write partition",
    "partition_key": "write key",
    "opaque": "give on_delivery a function that has it: functools.partial(callback, opaque)",
    "timeout": "a record is acknowledged or fails within the producer's delivery_timeout_ms",
    "timeout_ms": "a record is acknowledged or fails within the producer's delivery_timeout_ms",
}

OTHER_KEYWORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "NewTopic": {
        "topic": "write name",
        "topic_name": "write name",
        "num_partitions": "write partition_count",
        "partitions": "write partition_count",
        "replicas": "write replication_factor",
        "num_replicas": "write replication_factor",
        "config": "write configs",
        "topic_config": "write configs",
        "topic_configs": "write configs",
        "replica_assignment": "write assignments",
        "replica_assignments": "write assignments",
        "replicas_assignments": "write assignments",
    },
    "OffsetAndMetadata": {"leader_epoch": "commit(record) keeps it; an offset of your own has none"},
    "Producer.send": _SEND
    | {"callback": "write on_delivery: it is called with (metadata, None) or (None, error)", "on_ack": "write on_delivery"},
    "Producer.send_and_wait": _SEND | dict.fromkeys(("callback", "on_delivery"), "only send takes on_delivery: this returns, or raises"),
    "Producer.flush": {"timeout": _FLUSH, "timeout_ms": _FLUSH},
    "Producer.close": {"timeout": _FLUSH, "timeout_ms": _FLUSH},
    "Producer.send_offsets_to_transaction": {
        "consumer_group_id": _METADATA,
        "group_id": _METADATA,
        "consumer_group_metadata": _METADATA,
    },
    "Consumer.poll": {
        "timeout": "write timeout_ms, in milliseconds: poll(timeout_ms=1000) waits for a second",
        "num_messages": "write max_records",
        "max_poll_records": "write max_records",
        "update_offsets": "positions move with what poll returns; seek moves them back",
    },
    "Consumer.subscribe": {
        "topic": 'write topics, a list: subscribe(["orders"])',
        "regex": "write pattern",
        "on_assign": "write on_assigned",
        "on_revoke": "write on_revoked",
        "listener": "write on_assigned, on_revoked and on_lost, each a function of a list of partitions",
    },
    "Consumer.commit": {
        "message": _COMMIT,
        "partitions": _COMMIT,
        "asynchronous": "commit returns when the offsets are stored; a program that does not wait for that uses enable_auto_commit",
        "timeout_ms": _API_LIMIT,
        "timeout": _API_LIMIT,
    },
    "Consumer.committed": {
        "partition": 'write partitions, a list: committed([("orders", 0)])',
        "metadata": "Admin.committed_offsets(group_id) returns an offset with its text",
        "timeout_ms": _API_LIMIT,
        "timeout": _API_LIMIT,
    },
    "Consumer.position": {"timeout": _MILLISECONDS, "partitions": "write partition: one of them"},
    "Consumer.offsets_for_times": {"timestamps": "write times", "timeout": _API_LIMIT},
    "Consumer.close": _CLOSE,
    "Admin.create_topics": {"new_topics": "write topics", "request_timeout": _MILLISECONDS, "operation_timeout": _MILLISECONDS},
    "Admin.delete_topics": {
        "topics": "write names",
        "topic": "write names, a list",
        "request_timeout": _MILLISECONDS,
        "operation_timeout": _MILLISECONDS,
    },
    "Admin.create_partitions": {
        "topic_partitions": 'write counts, a dict: {"orders": 6}',
        "new_partitions": 'write counts, a dict: {"orders": 6}',
    },
    "Admin.describe_configs": {"config_resources": "write resource: one of them", "resources": "write resource: one of them"},
    "Admin.alter_configs": {"config_resources": 'write changes, a dict: {Topic("orders"): {"retention.ms": 3_600_000}}'},
    "Admin.delete_groups": {"group_ids_or_names": "write group_ids", "groups": "write group_ids"},
}
"""What is meant, by call and by the other client's name."""

_ONE_LIST: Final = 'give one list of partitions: {}([("orders", 0), ("orders", 1)])'
OTHER_POSITIONS: Final[Mapping[str, str]] = {
    "OffsetAndMetadata": "it has an offset and a text: OffsetAndMetadata(offset, text)",
    "Producer.flush": _FLUSH,
    "Producer.close": _FLUSH,
    "Producer.send_many": "write topic and value together: send_many([(topic, value), (topic, value, key)])",
    "Consumer.close": _NO_LIMIT,
    "Consumer.position": 'topic and number are one argument: position(("orders", 0))',
    "Admin.alter_configs": 'write changes, a dict: alter_configs({Topic("orders"): {"retention.ms": 1}})',
    "Admin.create_partitions": 'name and count are a dict: create_partitions({"orders": 6})',
    "Consumer.poll": "max_records is named: poll(1000, max_records=500)",
    "Consumer.subscribe": 'topics are one list, and callbacks are named: subscribe(["orders", "payments"], on_assigned=f)',
    "Consumer.seek": 'topic and number are one argument: seek(("orders", 0), offset)',
    "Consumer.commit": _COMMIT,
    **{f"Consumer.{name}": _ONE_LIST.format(name) for name in ("pause", "resume", "seek_to_beginning", "seek_to_end")},
}
"""What is meant where more is given by position than the call takes."""


def with_hints(kind: C) -> C:
    """Returns the class; its calls that are in the tables, and its constructor, have hints. A method that has them already stays."""
    for call in {**OTHER_KEYWORDS, **OTHER_POSITIONS}:
        name, _, method = call.partition(".")
        method = method or "__init__"
        if name == kind.__name__ and method != "send" and not hasattr(getattr(kind, method), _MARK):
            setattr(kind, method, _hinting(call, getattr(kind, method)))
    if kind.__name__ == "Admin":  # its methods are of classes that no user knows
        for public, function in inspect.getmembers(kind, inspect.isfunction):
            if not public.startswith("_") and not hasattr(function, _MARK):
                setattr(kind, public, _hinting(f"Admin.{public}", function))
    return kind


def refuse_send(positional: tuple[Any, ...], given: Mapping[str, Any]) -> NoReturn:
    """Raises the TypeError of a ``send`` that was given more than topic and value, or names that it does not have."""
    if positional:
        raise TypeError("after topic and value all arguments of send are named: send(topic, value, key=key, partition=0, headers=headers)")
    first = next(iter(given))
    raise _with_hint(TypeError(f"Producer.send() got an unexpected keyword argument {first!r}"), "Producer.send", given)


def _hinting(call: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the method. Its TypeError for what a table has is another one; an error within the call passes as it is."""
    signature = inspect.signature(method)
    by_position = [each for each in signature.parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]

    def takes(given: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        try:
            signature.bind(*given, **named)
        except TypeError:
            return False
        return True

    def refused(error: TypeError, given: tuple[Any, ...], named: Mapping[str, Any]) -> TypeError:
        if len(given) > len(by_position) and call in OTHER_POSITIONS:
            return TypeError(f"{call.partition('.')[2] or call}() takes no such argument by position: {OTHER_POSITIONS[call]}")
        return _with_hint(error, call, named, method)

    @functools.wraps(method)
    def plain(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except TypeError as error:
            raise refused(error, args, kwargs) from None

    @functools.wraps(method)
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        try:
            return await method(*args, **kwargs)
        except TypeError as error:  # of the call, which a method of Admin makes when it is awaited, or from within it
            if takes(args, kwargs):
                raise
            raise refused(error, args, kwargs) from None

    made = coroutine if inspect.iscoroutinefunction(method) else plain
    setattr(made, _MARK, True)
    return made


def _with_hint(error: TypeError, call: str, given: Mapping[str, Any], method: Callable[..., Any] | None = None) -> TypeError:
    """Returns the error with what is meant by the first of the names that the call does not have; the error itself where there is none.

    Where an administration's ``method`` is given, an error without a hint has the call's public name and its arguments.
    """
    hints = OTHER_KEYWORDS.get(call, {})
    arguments = [] if method is None else [name for name in inspect.signature(method).parameters if name != "self"]
    if call.startswith("Admin."):
        hints = {"timeout": _MILLISECONDS if "timeout_ms" in arguments else _API_LIMIT, "timeout_ms": _API_LIMIT} | {**hints}
        hints = {name: hint for name, hint in hints.items() if name not in arguments}
    for name in given:
        if name in hints:
            return TypeError(f"{call.partition('.')[2] or call}() has no argument {name!r}: {hints[name]}")
    if method is not None and call.startswith("Admin.") and str(error).startswith(method.__qualname__):
        text = str(error).partition(". Did you mean")[0].replace(method.__qualname__, call, 1)  # Python 3.13 guesses; all are named here
        return TypeError(f"{text}; its arguments are {', '.join(arguments)}" if arguments else f"{text}; it has no arguments")
    return error
