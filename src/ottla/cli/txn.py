"""``ottla txn``: list, describe, fence, find what hangs, abort."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.listed_only import note_what_is_seen
from ottla.cli.missing_rights import TRANSACTION
from ottla.cli.output import bootstrap_option, complain, end_of_plan, format_option, print_rows, time_text, with_way_out, yes_option
from ottla.cli.unanswered import COORDINATOR_MS, Unanswered, internal_partitions, leaderless, of_each_broker
from ottla.cli.values import Number
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TRANSACTION_STATE_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import HangingTransaction
    from ottla.sync import Admin

F = TypeVar("F", bound=Callable[..., Any])
MINUTE_MS = 60_000
HANGING = ("topic", "partition", "producer_id", "producer_epoch", "start_offset", "last_record", "transactional_id", "outcome")


@click.group()
def txn() -> None:
    """Manage transactions."""


@txn.command("list")
@click.option("--state", "states", multiple=True, help="Only transactions in this state (Ongoing, CompleteCommit, ...); may be repeated.")
@click.option("--producer-id", "producer_ids", multiple=True, type=int, help="Only those of this producer id; may be repeated.")
@click.option("--longer-than", "minutes", type=Number(0), help="Only those that have been running for so many minutes.")
@click.option("--pattern", help="Only transactional ids that match this regular expression entirely.")
@bootstrap_option
@format_option
def list_transactions(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    minutes: float | None,
    pattern: str | None,
    bootstrap: str,
    output: str,
) -> None:
    """List transactional ids, with their transactions' states."""
    from ottla.sync import Admin

    longer_than_ms = None if minutes is None else int(minutes * MINUTE_MS)
    unanswered = Unanswered()
    with Admin(bootstrap, **{"default_api_timeout_ms": COORDINATOR_MS, **client_settings()}) as admin:
        ask = partial(admin.list_transactions, states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms, pattern=pattern)
        what = "the transactional ids that broker {} coordinates"
        found = of_each_broker(admin, unanswered, what, lambda node_id: ask(node_ids=[node_id]))
        unanswered.note_leaderless(admin, leaderless(internal_partitions(admin, TRANSACTION_STATE_TOPIC)), "the transactional ids")
        note_what_is_seen(admin, TRANSACTION)
    found.sort(key=lambda each: each.transactional_id)
    columns = ("transactional_id", "producer_id", "state", "coordinator")
    rows = [
        (each.transactional_id, each.producer_id, each.state, each.coordinator_id)
        for each in sorted(found, key=lambda each: each.transactional_id)
    ]
    print_rows(output, "txn list", columns, rows)
    unanswered.end()


@txn.command()
@click.argument("transactional_ids", nargs=-1, required=True)
@bootstrap_option
@format_option
def describe(transactional_ids: tuple[str, ...], bootstrap: str, output: str) -> None:
    """Describe transactional ids: producer, state, partitions."""
    from ottla.sync import Admin

    with Admin(bootstrap, **{"default_api_timeout_ms": COORDINATOR_MS, **client_settings()}) as admin:
        found = admin.describe_transactions(transactional_ids)
    columns = ("transactional_id", "coordinator", "state", "producer_id", "producer_epoch", "timeout_ms", "started", "partitions")
    rows = []
    for known in _good(found).values():
        partitions = [f"{partition.topic}-{partition.partition}" for partition in sorted(known.partitions)]
        ids = (known.producer_id, known.producer_epoch)
        started = time_text(known.started_ms)
        rows.append((known.transactional_id, known.coordinator_id, known.state, *ids, known.timeout_ms, started, partitions))
    print_rows(output, "txn describe", columns, rows)
    _end_for(found)


@txn.command()
@click.argument("transactional_ids", nargs=-1, required=True)
@yes_option
@bootstrap_option
@format_option
def fence(transactional_ids: tuple[str, ...], yes: bool, bootstrap: str, output: str) -> None:
    """Fence the producers of transactional ids.

    What they left open is aborted, and they can no longer write. An id that no producer has used is refused.
    """
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        found: dict[str, Any] = {**admin.describe_transactions(transactional_ids)}  # to fence an id makes it, where there is none
        there = list(_good(found))
        if there and not yes:
            _say_failed(found)
            end_of_plan(f"would fence the producers of {', '.join(there)}")
        found |= admin.fence_producers(there) if there else {}
    rows = [(name, now.producer_id, now.producer_epoch) for name, now in _good(found).items()]
    print_rows(output, "txn fence", ("transactional_id", "producer_id", "producer_epoch"), rows)
    _end_for(found)


@txn.command("find-hanging")
@click.option("--topic", "topics", multiple=True, help="Only these topics; without it, every topic. May be repeated.")
@click.option("--partition", "indexes", multiple=True, type=int, help="Only these partitions of the topics; may be repeated.")
@click.option("--longer-than", "minutes", type=Number(0), default=20.0, show_default=True, help="Without a record for so many minutes.")
@yes_option
@bootstrap_option
@format_option
def find_hanging(topics: tuple[str, ...], indexes: tuple[int, ...], minutes: float, yes: bool, bootstrap: str, output: str) -> None:
    """Find transactions that no coordinator has open.

    They are open in a partition.

    "outcome" is what the coordinator has decided: --yes writes its marker again, a commit as a commit. Of those with outcome "unknown"
    the operator decides: `ottla txn abort`.
    """
    from ottla.client.admin import Outcome
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        found = admin.find_hanging_transactions(_partitions(admin, topics, indexes), longer_than_ms=int(minutes * MINUTE_MS))
        print_rows(output, "txn find-hanging", HANGING, [_row(hanging) for hanging in found])
        known = [hanging for hanging in found if hanging.outcome is not Outcome.UNKNOWN]
        if known and not yes:
            end_of_plan("nothing was changed: the markers whose outcome is known would be written")
        for hanging in known if yes else []:
            admin.end_hanging_transaction(hanging)
            click.echo(f"{hanging.outcome.value} marker written in {hanging.partition.topic}-{hanging.partition.partition}", err=True)


@txn.command()
@click.argument("topic")
@click.argument("partition", type=int)
@click.option("--producer-id", type=int, help="Of this producer; needed where several transactions hang.")
@yes_option
@bootstrap_option
@format_option
def abort(topic: str, partition: int, producer_id: int | None, yes: bool, bootstrap: str, output: str) -> None:
    """Abort a hanging transaction of a partition.

    Only one that no coordinator has open, and that none has committed: `ottla txn fence` ends an open one, `ottla txn find-hanging --yes`
    repeats a commit whose marker was lost.
    """
    from ottla.client.admin import Outcome
    from ottla.sync import Admin

    key = TopicPartition(topic, partition)
    with Admin(bootstrap, **client_settings()) as admin:
        every = admin.find_hanging_transactions([key], longer_than_ms=0)
        found = [hanging for hanging in every if producer_id in (None, hanging.producer_id)]
        if not found:
            text = f"no transaction hangs in {topic}-{partition}; `ottla txn list --state Ongoing` shows those that are open"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, text)
        if len(found) > 1:
            ids = ", ".join(str(hanging.producer_id) for hanging in found)
            raise click.UsageError(f"several transactions hang in {topic}-{partition}; choose one with --producer-id: {ids}")
        [hanging] = found
        if hanging.outcome is Outcome.COMMIT:
            way_out = f"`ottla txn find-hanging --topic {topic} --yes` repeats that here"
            text = f"the coordinator of {hanging.transactional_id!r} has committed it; {way_out}"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, text)
        print_rows(output, "txn abort", HANGING, [_row(hanging)])
        if not yes:
            end_of_plan("nothing was changed")
        if hanging.outcome is Outcome.ABORT:
            admin.end_hanging_transaction(hanging)
            return
        epochs = {"producer_epoch": hanging.producer_epoch, "coordinator_epoch": hanging.coordinator_epoch}
        admin.abort_transaction(key, producer_id=hanging.producer_id, **epochs)


def _partitions(admin: Admin, topics: tuple[str, ...], indexes: tuple[int, ...]) -> list[TopicPartition] | None:
    """Returns the partitions; None for all."""
    if not topics:
        if indexes:
            raise click.UsageError("--partition needs --topic")
        return None
    return [
        TopicPartition(name, index) for name in topics for index in admin.describe_topic(name).partitions if not indexes or index in indexes
    ]


def _row(hanging: HangingTransaction) -> tuple[Any, ...]:
    return (
        hanging.partition.topic,
        hanging.partition.partition,
        hanging.producer_id,
        hanging.producer_epoch,
        hanging.start_offset,
        time_text(hanging.last_timestamp_ms),
        hanging.transactional_id,
        hanging.outcome.value,
    )


def _good(found: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in found.items() if not isinstance(item, KafkaError)}


def _end_for(found: dict[str, Any]) -> None:
    """Ends with exit code 1, and a line for each item that failed, where one did."""
    if _say_failed(found):
        sys.exit(1)


def _say_failed(found: dict[str, Any]) -> bool:
    """Prints a line for each item that failed; returns whether one did."""
    failed = [item for item in found.values() if isinstance(item, KafkaError)]
    for error in failed:
        complain(with_way_out(error))
    return bool(failed)
