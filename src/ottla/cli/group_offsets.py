"""The offsets of a group: moved, deleted, written to a file and read from one.

The file is that of kafka-consumer-groups: ``topic,partition,offset`` a line.
"""

from __future__ import annotations

import csv
import re
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TextIO

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.named_topics import check_partitions
from ottla.cli.names import GROUPS, PLACES, TOPICS
from ottla.cli.output import bootstrap_option, complain, end_of_plan, format_option, print_rows, yes_option
from ottla.errors import ErrorCode, KafkaError
from ottla.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

if TYPE_CHECKING:
    from ottla.cli.offsets import OffsetPoint
    from ottla.client.admin import CommittedOffset
    from ottla.sync import Admin

_PLACE: Final = re.compile(r"([^:]+)(?::(\d+(?:,\d+)*))?")
PLAN = ("topic", "partition", "from", "to")


@click.command()
@click.argument("group_id", shell_complete=GROUPS)
@click.option("--to", "target", shell_complete=PLACES, help="start, end, an offset, +N, -N, or @TIME (@-1h, @2024-05-01).")
@click.option("--by", "shift", type=int, help="So many records on from what is committed; back when it is negative.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:P,P...]",
    shell_complete=TOPICS,
    help="Only this topic, or these of its partitions; may be repeated. Else all with committed offsets.",
)
@yes_option
@bootstrap_option
@format_option
def seek(group_id: str, target: str | None, shift: int | None, topics: tuple[str, ...], yes: bool, bootstrap: str, output: str) -> None:
    """Set an empty group's offsets. Prints the plan; --yes applies it.

    An offset that a partition does not have is moved to its start or its end, with a warning.
    """
    from ottla.sync import Admin

    if (target is None) == (shift is None):
        raise click.UsageError("give --to or --by")
    places = _places(topics)
    place = None if target is None else _place(target)
    with Admin(bootstrap, **client_settings()) as admin:
        committed = admin.committed_offsets(group_id)
        keys = [key for key in committed if not places or _is_among(key, places)]
        for topic in places if target is not None else ():
            there = _check_partitions(admin, topic, places[topic])
            keys += [key for index in places[topic] or there if (key := TopicPartition(topic, index)) not in keys]
        if not keys:
            _refuse_members(admin, group_id, "; it has committed nothing, so name topics with --topic and --to")
            among = f" of {', '.join(topics)}; `ottla group describe {group_id}` shows what it has" if committed and topics else ""
            text = f"group {group_id!r} has committed nothing{among or '; name topics with --topic and --to'}"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        plan = _shifted(admin, committed, keys, shift) if place is None else _placed(admin, sorted(keys), place)
        _apply(admin, group_id, committed, plan, yes=yes, output=output, command="group seek")


def _refuse_members(admin: Admin, group_id: str, more: str = "") -> None:
    """Raises NON_EMPTY_GROUP where the group has members, which commit for themselves."""
    if admin.describe_group(group_id).members:
        problem = f"group {group_id!r} has members: stop them first (`ottla group describe {group_id}` lists them)"
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{problem}{more}")


def _check_partitions(admin: Admin, topic: str, wanted: set[int]) -> Collection[int]:
    """Returns the topic's partitions. UNKNOWN_TOPIC_OR_PARTITION where one that is wanted does not exist."""
    there = admin.describe_topic(topic).partitions
    check_partitions(topic, wanted, there)
    return there


def _places(topics: Sequence[str]) -> dict[str, set[int]]:
    """Returns the named partitions of each topic, from ``topic`` or ``topic:0,1``; an empty set means all of them."""
    named: dict[str, set[int]] = {}
    for text in topics:
        found = _PLACE.fullmatch(text)
        if found is None:
            raise click.UsageError(f"--topic {text}: expected TOPIC or TOPIC:PARTITION,..., as in orders:0,1")
        indexes = {int(index) for index in found[2].split(",")} if found[2] else set()
        before = named.get(found[1])
        named[found[1]] = indexes if before is None else before | indexes if before and indexes else set()
    return named


def _is_among(key: TopicPartition, places: Mapping[str, set[int]]) -> bool:
    return key.topic in places and (not places[key.topic] or key.partition in places[key.topic])


def _apply(
    admin: Admin,
    group_id: str,
    committed: Mapping[TopicPartition, CommittedOffset],
    plan: Mapping[TopicPartition, int],
    *,
    yes: bool,
    output: str,
    command: str,
) -> None:
    rows = [(key.topic, key.partition, committed[key].offset if key in committed else None, to) for key, to in sorted(plan.items())]
    print_rows(output, command, PLAN, rows)
    _refuse_members(admin, group_id)
    if not yes:
        end_of_plan("nothing was changed")
    admin.set_offsets(group_id, plan)


def _bounds(admin: Admin, keys: Sequence[TopicPartition]) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    first = {key: found.offset for key, found in admin.offsets_for_times(dict.fromkeys(keys, EARLIEST_TIMESTAMP)).items()}
    last = {key: found.offset for key, found in admin.offsets_for_times(dict.fromkeys(keys, LATEST_TIMESTAMP)).items()}
    return first, last


def _shifted(
    admin: Admin, committed: Mapping[TopicPartition, CommittedOffset], keys: Sequence[TopicPartition], shift: int | None
) -> dict[TopicPartition, int]:
    """Returns the shifted offsets, within the partitions."""
    assert shift is not None, "one of --to and --by was given"
    return _within(_bounds(admin, keys), {key: committed[key].offset + shift for key in keys})


def _placed(admin: Admin, keys: Sequence[TopicPartition], place: OffsetPoint) -> dict[TopicPartition, int]:
    from ottla.cli.offsets import Base

    first, last = _bounds(admin, keys)
    if place.base is Base.TIME:
        found = admin.offsets_for_times(dict.fromkeys(keys, place.value))
        return {key: last[key] if found[key].offset < 0 else found[key].offset for key in keys}
    if place.base is Base.OFFSET:
        return _within((first, last), dict.fromkeys(keys, place.value))
    base = first if place.base is Base.START else last
    return _within((first, last), {key: base[key] + place.value for key in keys})


def _within(
    bounds: tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]], wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Returns the offsets within the partitions, with a warning of each that was not, as kafka-consumer-groups has them."""
    first, last = bounds
    within = {}
    for key, offset in sorted(wanted.items()):
        within[key] = taken = max(first[key], min(offset, last[key]))
        if taken != offset:
            where = f"after the end of {key}" if offset > taken else f"before the first record of {key}"
            complain(f"warning: offset {offset} is {where}; {taken} is taken")
    return within


def _place(target: str) -> OffsetPoint:
    """Returns where ``--to`` points. UsageError for anything else, ranges among it."""
    from ottla.cli.offsets import parse_offsets

    try:
        asked = parse_offsets(target, time.time_ns() // 1_000_000)
    except KafkaError:
        asked = None
    if asked is None or asked.stop is not None:
        expected = "start, end, an offset, +N (after the start), -N (before the end), or @TIME: @-1h, @2024-05-01, @2024-05-01T12:00"
        raise click.UsageError(f"--to {target}: expected {expected}")
    return asked.start


@click.command("delete-offsets")
@click.argument("group_id", shell_complete=GROUPS)
@click.option("--topic", "topics", multiple=True, required=True, shell_complete=TOPICS, help="A topic that is no longer read.")
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Only these partitions.")
@yes_option
@bootstrap_option
@format_option
def delete_offsets(group_id: str, topics: tuple[str, ...], partitions: tuple[int, ...], yes: bool, bootstrap: str, output: str) -> None:
    """Delete what a group has committed for topics.

    None of its members may subscribe to them.
    """
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        committed = admin.committed_offsets(group_id)
        keys = sorted(key for key in committed if key.topic in topics and (not partitions or key.partition in partitions))
        if not keys:
            text = f"group {group_id!r} has committed nothing of {', '.join(topics)}; `ottla group describe {group_id}` shows what it has"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        if not yes:
            print_rows(output, "group delete-offsets", ("topic", "partition", "offset"), _rows({key: committed[key] for key in keys}))
            end_of_plan("would delete these offsets")
        results = admin.delete_offsets(group_id, keys)
    rows = [(key.topic, key.partition, "failed" if error else "deleted", error and str(error)) for key, error in sorted(results.items())]
    print_rows(output, "group delete-offsets", ("topic", "partition", "result", "error"), rows)
    if any(results.values()):
        sys.exit(1)


def _rows(offsets: Mapping[TopicPartition, CommittedOffset]) -> list[tuple[str, int, int]]:
    return [(key.topic, key.partition, found.offset) for key, found in sorted(offsets.items())]


@click.command()
@click.argument("group_id", shell_complete=GROUPS)
@bootstrap_option
def export(group_id: str, bootstrap: str) -> None:
    """Print a group's committed offsets.

    A line is topic,partition,offset, for `ottla group import` and kafka-consumer-groups.
    """
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        committed = admin.committed_offsets(group_id)
    if not committed:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id!r} has committed nothing")
    csv.writer(sys.stdout, lineterminator="\n").writerows(_rows(committed))


@click.command("import")
@click.argument("group_id", shell_complete=GROUPS)
@click.argument("file", type=click.File("r"))
@yes_option
@bootstrap_option
@format_option
def import_offsets(group_id: str, file: TextIO, yes: bool, bootstrap: str, output: str) -> None:
    """Set an empty group's offsets from FILE.

    `ottla group export` prints such a file. Prints the plan; --yes applies it. An offset that a partition does not have is moved to
    its start or its end, with a warning.
    """
    from ottla.sync import Admin

    plan: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(file), 1):
        match row:
            case [topic, partition, offset] if topic and partition.isdecimal() and offset.isdecimal():
                plan[TopicPartition(topic, int(partition))] = int(offset)
            case _:
                raise click.UsageError(f"{file.name}, line {number}: expected topic,partition,offset")
    if not plan:
        raise click.UsageError(f"{file.name} has no offsets")
    with Admin(bootstrap, **client_settings()) as admin:
        for topic in sorted({key.topic for key in plan}):
            _check_partitions(admin, topic, {key.partition for key in plan if key.topic == topic})
        plan = _within(_bounds(admin, sorted(plan)), plan)
        _apply(admin, group_id, admin.committed_offsets(group_id), plan, yes=yes, output=output, command="group import")


COMMANDS: Final = (seek, delete_offsets, export, import_offsets)
