"""``ottla topic``: list, create, describe, alter, add-partitions, delete-records, delete, offsets."""

from __future__ import annotations

import difflib
import re
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.config import change_values, config_of, once
from ottla.cli.listed_only import note_what_is_seen
from ottla.cli.named_topics import check_partitions, chosen, found_topic
from ottla.cli.names import TOPICS, complete_key, complete_pair
from ottla.cli.offsets import parse_offsets
from ottla.cli.output import (
    bootstrap_option,
    complain,
    end_of_plan,
    format_option,
    names_of_plan,
    print_json,
    print_rows,
    with_way_out,
    wrong_call,
    yes_option,
)
from ottla.cli.partition_states import (
    AT_MIN_ISR,
    COLUMNS,
    MIN_ISR,
    UNAVAILABLE,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    min_isr_beyond,
    rows_in_states,
)
from ottla.cli.unanswered import Unanswered, known_offsets, leaderless
from ottla.errors import ErrorCode, KafkaError
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition, uuid_text

if TYPE_CHECKING:
    from ottla.client.cluster_metadata import PartitionMetadata, TopicMetadata

NONE_EXPECTED: Final[Mapping[ErrorCode, str]] = {}
_WHAT_IS_LOST: Final = {
    "__consumer_offsets": "every group forgets what it has read, and begins where auto.offset.reset says",
    "__transaction_state": "open transactions are neither committed nor aborted, and readers of committed records wait for them",
}
"""By topic of the brokers' own: what its deletion does besides."""


@click.group()
def topic() -> None:
    """Manage topics."""


@topic.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=TOPICS)
@click.option("--internal", is_flag=True, help="Show the broker's own topics too.")
@bootstrap_option
@format_option
def list_topics(names: tuple[str, ...], internal: bool, bootstrap: str, output: str) -> None:
    """List topics, with their partitions and replicas.

    A NAME that starts with ^ is a regular expression: '^orders' is every topic whose name starts with it.
    """
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        topics = admin.list_topics()
        wanted = chosen(names, topics) if names else list(topics)
        topics |= {name: found_topic(admin, name, topics) for name in wanted}
        if not names and all(found.is_internal for found in topics.values()):
            note_what_is_seen(admin, "topic")
    rows = [
        (name, len(found.partitions), len(next(iter(found.partitions.values())).replicas) if found.partitions else 0)
        for name, found in sorted(topics.items())
        if name in wanted and (internal or names or not found.is_internal)
    ]
    print_rows(output, "topic list", ("name", "partitions", "replicas"), rows)


def _assignments(text: str) -> dict[int, list[int]]:
    """Returns the replicas of each partition, from ``1:2,2:3``: partitions are separated by commas, as kafka-topics has it."""
    if re.fullmatch(r"\d+(:\d+)*(,\d+(:\d+)*)*", text) is None:
        raise click.UsageError(f"--replica-assignment {text}: expected ID:ID,ID:ID, as in 1:2,2:3 for two partitions of two replicas")
    return {index: [int(node) for node in row.split(":")] for index, row in enumerate(text.split(","))}


@topic.command()
@click.argument("names", nargs=-1, required=True)
@click.option("-p", "--partitions", type=int, default=-1, help="Number of partitions; the broker's default when absent.")
@click.option("-r", "--replicas", type=int, default=-1, help="Replication factor; the broker's default when absent.")
@click.option(
    "--replica-assignment",
    metavar="ID:ID,ID:ID",
    help="The brokers of each partition, the preferred leader first, in place of -p and -r: 1:2,2:3 is two partitions.",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_pair,
    help="A topic configuration, as retention.ms=7d.",
)
@click.option("--if-not-exists", "may_exist", is_flag=True, help="A topic that exists is no failure; it stays as it is.")
@click.option("--dry-run", is_flag=True, help="Only validate; change nothing.")
@bootstrap_option
@format_option
def create(
    names: tuple[str, ...],
    partitions: int,
    replicas: int,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    may_exist: bool,
    dry_run: bool,
    bootstrap: str,
    output: str,
) -> None:
    """Create topics."""
    from ottla.sync import Admin, NewTopic

    pairs = once(map(config_of, configs))
    if replica_assignment is not None and (partitions, replicas) != (-1, -1):
        raise click.UsageError("--replica-assignment says how many partitions and replicas there are: leave out -p and -r")
    placed = None if replica_assignment is None else _assignments(replica_assignment)
    with Admin(bootstrap, **client_settings()) as admin:
        results = admin.create_topics([NewTopic(name, partitions, replicas, pairs, placed) for name in names], validate_only=dry_run)
        count = replicas if replicas > 0 else None if placed is None else min(map(len, placed.values()))
        for name in names:
            if results[name] is None and (count is not None or not dry_run):
                warning = min_isr_beyond(admin, name, pairs.get(MIN_ISR), count)
                if warning is not None:
                    complain(warning)
    expected = {ErrorCode.TOPIC_ALREADY_EXISTS: "exists"} if may_exist else {}
    report(output, "topic create", results, "possible" if dry_run else "created", expected)


@topic.command()
@click.argument("name", shell_complete=TOPICS)
@click.option("-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", shell_complete=complete_pair, help="A configuration to set.")
@click.option(
    "-d", "--delete-config", "deleted", multiple=True, metavar="KEY", shell_complete=complete_key, help="A configuration to remove."
)
@click.option("--dry-run", is_flag=True, help="Only validate, and print old and new values; change nothing.")
@bootstrap_option
@format_option
def alter(name: str, configs: tuple[str, ...], deleted: tuple[str, ...], dry_run: bool, bootstrap: str, output: str) -> None:
    """Change a topic's configuration.

    `ottla config set --topic` can also append to a list and remove from it.
    """
    from ottla.sync import Topic

    asked: list[tuple[str, str | None]] = [*map(config_of, configs), *((key, None) for key in deleted)]
    changes = once(asked)
    if not changes:
        raise click.UsageError("nothing to change; try -c KEY=VALUE")
    try:
        change_values(bootstrap, Topic(name), changes, dry_run=dry_run, output=output, command="topic alter")
    except KafkaError as error:
        empty = next((key for key, value in asked if value == ""), None)
        if error.code != ErrorCode.INVALID_CONFIG or empty is None:
            raise
        raise KafkaError(error.code, f"{error.message}; `-d {empty}` removes the topic's own value") from error


@topic.command("add-partitions")
@click.argument("names", nargs=-1, required=True)
@click.option("-n", "--num", "added", type=click.IntRange(min=1), help="Number of partitions to add.")
@click.option("-p", "--partitions", "total", type=click.IntRange(min=1), help="Total number of partitions afterwards.")
@click.option("--dry-run", is_flag=True, help="Only validate; change nothing.")
@bootstrap_option
@format_option
def add_partitions(names: tuple[str, ...], added: int | None, total: int | None, dry_run: bool, bootstrap: str, output: str) -> None:
    """Give topics more partitions. Keys may then go to other partitions than before."""
    from ottla.sync import Admin

    if (added is None) == (total is None):
        *before, last = names
        if before and last.isdecimal() and total is None:
            call = f"ottla topic add-partitions {' '.join(before)}"
            raise click.UsageError(f"{last} follows an option: `{call} -n {last}` adds so many, and -p takes the number of all afterwards")
        raise click.UsageError("give --num or --partitions")
    with Admin(bootstrap, **client_settings()) as admin:
        counts = {name: total if total is not None else len(admin.describe_topic(name).partitions) + (added or 0) for name in names}
        results = admin.create_partitions(counts, validate_only=dry_run)
    report(output, "topic add-partitions", results, "possible" if dry_run else "done")


@topic.command("delete-records")
@click.argument("name", shell_complete=TOPICS)
@click.option("-o", "--offset", type=int, help="The first offset to keep; without it, all current records are deleted.")
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Only these partitions.")
@yes_option
@bootstrap_option
@format_option
def delete_records(name: str, offset: int | None, partitions: tuple[int, ...], yes: bool, bootstrap: str, output: str) -> None:
    """Delete the records before an offset, permanently."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        there = admin.describe_topic(name).partitions
        check_partitions(name, partitions, there)
        indexes = partitions or tuple(sorted(there))
        if not yes:
            what = "all records" if offset is None else f"the records before offset {offset}"
            end_of_plan(f"would delete {what} of {name}, partitions {', '.join(map(str, indexes))}")
        results = admin.delete_records({TopicPartition(name, index): -1 if offset is None else offset for index in indexes})
    failed = {key: result for key, result in results.items() if isinstance(result, KafkaError)}
    rows = [
        (key.partition, None if key in failed else start, with_way_out(failed[key]) if key in failed else None)
        for key, start in sorted(results.items())
    ]
    print_rows(output, "topic delete-records", ("partition", "start_offset", "error"), rows)
    if failed:
        sys.exit(1)


@topic.command()
@click.argument("names", nargs=-1, required=True, shell_complete=TOPICS)
@click.option("--if-exists", "may_be_absent", is_flag=True, help="A topic that does not exist is no failure.")
@yes_option
@bootstrap_option
@format_option
def delete(names: tuple[str, ...], may_be_absent: bool, yes: bool, bootstrap: str, output: str) -> None:
    """Delete topics and all their data.

    A NAME that starts with ^ is a regular expression: '^orders' is every topic whose name starts with it, but for internal ones.
    """
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        known = admin.list_topics()
        names = tuple(chosen(names, known))
        for name in names:
            try:
                known |= {name: found_topic(admin, name, known)}
            except KafkaError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                if not may_be_absent:
                    near = difflib.get_close_matches(name, known, n=1)
                    hint = f"did you mean {near[0]}?" if near else "`ottla topic list` shows those that there are"
                    raise KafkaError(error.code, f"there is no topic {name!r}, and nothing was deleted; {hint}") from error
    there = [name for name in names if name in known]
    for name in there if not yes else ():
        if name in _WHAT_IS_LOST:
            complain(f"warning: {name} is the brokers' own: {_WHAT_IS_LOST[name]}")
    if there and not yes:
        end_of_plan(f"would delete {names_of_plan(there, 'topics')} with all data")
    absent = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
    results: dict[str, KafkaError | None] = dict.fromkeys(names, absent)
    with Admin(bootstrap, **client_settings()) as admin:
        results |= admin.delete_topics(there) if there else {}
    report(output, "topic delete", results, "deleted", {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "absent"} if may_be_absent else {})


@topic.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=TOPICS)
@click.option("--under-replicated", "states", flag_value=UNDER_REPLICATED, multiple=True, help="Only partitions with replicas out of sync.")
@click.option("--under-min-isr", "states", flag_value=UNDER_MIN_ISR, multiple=True, help="Only those with too few in sync for acks=all.")
@click.option("--at-min-isr", "states", flag_value=AT_MIN_ISR, multiple=True, help="Only those with no replica in sync to spare.")
@click.option("--unavailable", "states", flag_value=UNAVAILABLE, multiple=True, help="Only those without a leader.")
@bootstrap_option
@format_option
def describe(names: tuple[str, ...], states: tuple[str, ...], bootstrap: str, output: str) -> None:
    """Describe topics: configuration, and each partition.

    Of a partition: leader, replicas, in-sync replicas, offsets.

    With a filter, list the partitions that it describes: of these topics, or of all when NAME is absent. A NAME that starts with ^ is a
    regular expression: '^orders' is every topic whose name starts with it.
    """
    from ottla.sync import Admin

    if any(name.startswith("^") for name in names):
        with Admin(bootstrap, **client_settings()) as admin:
            names = tuple(chosen(names, admin.list_topics()))
    unanswered = Unanswered()
    if states:
        with Admin(bootstrap, **client_settings()) as admin:
            print_rows(output, "topic describe", COLUMNS, rows_in_states(admin, names, states, unanswered))
        unanswered.end()
        return
    if not names:
        raise click.UsageError("NAME is missing; only --under-replicated and the other filters describe all topics")
    documents = []
    for index, name in enumerate(names):
        if index and output == "text":
            click.echo()
        documents.append(_described(name, bootstrap, output, unanswered))
    if output == "json":
        print_json("topic describe", documents)
    unanswered.end()


def _described(name: str, bootstrap: str, output: str, unanswered: Unanswered) -> dict[str, object]:
    """Returns one topic, as an item; as text it is printed."""
    from ottla.sync import Admin, ConfigSource, Topic

    with Admin(bootstrap, **client_settings()) as admin:
        found = admin.describe_topic(name)
        keys = [TopicPartition(name, index) for index in sorted(found.partitions)]
        starts, ends = known_offsets(admin, _partitions(found), (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP), unanswered)
        try:
            entries = admin.describe_configs(Topic(name))
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            configs = None
        else:
            configs = {key: entry.value for key, entry in entries.items() if entry.source is ConfigSource.TOPIC}
    columns = ("partition", "leader", "epoch", "replicas", "in_sync", "start_offset", "end_offset")
    rows = []
    for key in keys:
        partition = found.partitions[key.partition]
        start, end = starts.get(key), ends.get(key)
        leader = partition.leader if partition.leader >= 0 else None
        rows.append((key.partition, leader, partition.leader_epoch, partition.replicas, partition.in_sync, start, end))
    if output == "text":
        overrides = "  configuration not shown, which takes DESCRIBE_CONFIGS"
        if configs is not None:
            overrides = "".join(f"  {key}={value}" for key, value in sorted(configs.items()))
        click.echo(f"topic {name}  id {uuid_text(found.topic_id)}  {len(rows)} partition{'s'[: len(rows) != 1]}{overrides}")
        print_rows(output, "topic describe", columns, rows)
    items = [dict(zip(columns, row, strict=True)) for row in rows]
    return {"name": name, "topic_id": uuid_text(found.topic_id), "configs": configs, "partitions": items}


@topic.command()
@click.argument("name", shell_complete=TOPICS)
@click.option(
    "--at", "times", multiple=True, metavar="TIME", help="Also the first offset that is not older: an ISO time, -1h, now; may be repeated."
)
@bootstrap_option
@format_option
def offsets(name: str, times: tuple[str, ...], bootstrap: str, output: str) -> None:
    """Show where partitions begin and end.

    With --at also what their offsets were at a time.
    """
    from ottla.sync import Admin

    now_ms, unanswered = int(time.time() * 1000), Unanswered()
    with wrong_call():
        places = {text: parse_offsets(f"@{text.removeprefix('@')}", now_ms).start.value for text in times}
    with Admin(bootstrap, **client_settings()) as admin:
        partitions = _partitions(admin.describe_topic(name))
        asked = (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, *places.values())
        starts, ends, *found = known_offsets(admin, partitions, asked, unanswered)
        unanswered.note_leaderless(admin, leaderless(partitions), "the offsets")
    at = dict(zip(places, found, strict=True))
    rows = []
    for key in sorted(partitions):
        end = ends.get(key)
        offsets = [at[text].get(key, -1) for text in times]
        rows.append((key.partition, starts.get(key), *(end if offset < 0 else offset for offset in offsets), end))
    print_rows(output, "topic offsets", ("partition", "start_offset", *(f"at {text}" for text in times), "end_offset"), rows)
    unanswered.end()


def _partitions(found: TopicMetadata) -> dict[TopicPartition, PartitionMetadata]:
    return {TopicPartition(found.name, index): partition for index, partition in found.partitions.items()}


def report(
    output: str, command: str, results: Mapping[str, KafkaError | None], done: str, expected: Mapping[ErrorCode, str] = NONE_EXPECTED
) -> None:
    """Prints one line an item; exit code 1 when any of them failed. Errors that are expected are none: they have a result."""
    rows: list[tuple[str, str, str | None]] = []
    for name, error in results.items():
        if error is None or error.code in expected:
            rows.append((name, done if error is None else expected[error.code], None))
        else:
            rows.append((name, "failed", with_way_out(error)))
    print_rows(output, command, ("name", "result", "error"), rows)
    if any(error for _, _, error in rows):
        sys.exit(1)
