"""``ottla consume TOPIC...``: records to standard output."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.ctrl_c import stopped_by_signals
from ottla.cli.named_topics import among_shown, check_partitions
from ottla.cli.names import GROUPS, OFFSETS, TOPICS
from ottla.cli.output import bootstrap_option, complain, said_warnings, say_connectivity, wrong_call
from ottla.cli.record_printer import RECORDS_MAX, print_polled
from ottla.cli.silence import Silence
from ottla.cli.stall import Stall
from ottla.cli.unanswered import LOOK_UP_MS, Unanswered, by_leader, leaderless
from ottla.cli.values import Number
from ottla.cli.waiting import Waiting, where_it_waits
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.cli.offsets import OffsetPoint, OffsetRange
    from ottla.cli.record_format import Marks, RecordFormat
    from ottla.cli.record_printer import Reader
    from ottla.client.buffer import AnyRecord
    from ottla.client.cluster_metadata import PartitionMetadata
    from ottla.client.options import ConsumerOptions
    from ottla.sync import Admin

    Offsets = dict[TopicPartition, int]

Matcher = Callable[["AnyRecord"], bool]


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", shell_complete=TOPICS)
@click.option("--include", metavar="REGEX", help="All topics whose whole name matches, in place of TOPIC.")
@click.option(
    "-f",
    "--record-format",
    "layout",
    default="%v\\n",
    show_default=True,
    help="The output format of records: %k %v %p %o ..., or json; see `ottla help format`.",
)
@click.option(
    "-o",
    "--offset",
    "offset",
    default="start",
    show_default=True,
    shell_complete=OFFSETS,
    help="start, end, :end, N, N:M, +N, -N, @TIME, @T1:T2 (-1h, ISO, now). With -g: start or end, where the group has committed nothing.",
)
@click.option("-n", "--num", "count", type=click.IntRange(min=0), help="Stop after this many records.")
@click.option("-e", "--regex", "regex", help="Only records that have it in the key, the value or a header; a regular expression of Python.")
@click.option("-p", "--partition", "partitions", multiple=True, type=int, help="Only this partition; may be repeated.")
@click.option(
    "-g",
    "--group",
    "group_id",
    shell_complete=GROUPS,
    help="Consume as a member of this group from its committed offsets on, and commit; without -p and --exit.",
)
@click.option(
    "--group-protocol",
    type=click.Choice(["classic", "consumer"]),
    help="Of -g: classic (the default), or consumer, where the coordinator divides the partitions (KIP-848).",
)
@click.option("--exit", "exit_at_end", is_flag=True, help="Stop at the current end of each partition (same as :end).")
@click.option(
    "--timeout",
    "idle_seconds",
    type=Number(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when no record has come for so long; also with -g.",
)
@click.option("--read-committed", is_flag=True, help="Only records of committed transactions.")
@bootstrap_option
def consume(
    topics: tuple[str, ...],
    include: str | None,
    layout: str,
    offset: str,
    count: int | None,
    regex: str | None,
    partitions: tuple[int, ...],
    group_id: str | None,
    group_protocol: Literal["classic", "consumer"] | None,
    exit_at_end: bool,
    idle_seconds: float | None,
    read_committed: bool,
    bootstrap: str,
) -> None:
    """Read records from topics until -n, the end of a range, --timeout, Ctrl-C, SIGTERM or the end of the terminal.

    A TOPIC that starts with ^ is a regular expression: '^orders' is every topic whose name starts with it. With -g, topics that are created
    later are read, too.

    A group that has committed offsets resumes from them, whatever -o says; a new one starts at the start, or with -o end at the end: it
    reads what is written once it has its partitions. `ottla group seek` moves a group.
    """
    from ottla.cli.offsets import Base, OffsetPoint, OffsetRange, parse_offsets
    from ottla.cli.record_format import RecordFormat, check_word
    from ottla.client.consumer_settings import ConsumerSettings
    from ottla.client.fetch_settings import FetchSettings
    from ottla.client.membership_settings import MembershipSettings
    from ottla.sync import Consumer

    with wrong_call():
        check_word(layout)
        record_format = RecordFormat(layout)
        asked = parse_offsets(offset, time.time_ns() // 1_000_000)
    for topic in topics:
        if "," in topic and not topic.startswith("^"):
            raise click.UsageError(f"{topic!r}: topics are separated by spaces: {' '.join(filter(None, topic.split(',')))}")
    if group_id == "":
        raise click.UsageError("-g: the group's name must not be empty")
    pattern = pattern_of(topics, include)
    matches = matcher_of(regex)
    settings: ConsumerOptions = client_settings(ConsumerSettings, FetchSettings, MembershipSettings, on_connectivity=say_connectivity)
    settings["isolation_level"] = "read_committed" if read_committed else "read_uncommitted"
    if group_protocol is not None:
        if group_id is None:
            raise click.UsageError("--group-protocol is of a member of a group: give -g, too")
        settings["group_protocol"] = group_protocol
    if group_id is not None:
        resets = {OffsetRange(OffsetPoint(Base.START)): "earliest", OffsetRange(OffsetPoint(Base.END)): "latest"}
        reset: Any = resets.get(asked)
        if reset is None or partitions or exit_at_end:
            raise click.UsageError(
                "-g resumes from the group's committed offsets, in the partitions that the group assigns: leave out -p, --exit (--timeout "
                f"SECONDS ends when no record comes), and -o but for start and end; `ottla group seek {group_id} --to PLACE` moves it"
            )
        settings |= {"group_id": group_id, "auto_offset_reset": reset}
        are_there = _check_topics(bootstrap, topics, pattern)
        with stopped_by_signals(), said_warnings(), Consumer(bootstrap, **settings) as consumer:
            silence, waiting = Silence(idle_seconds), Waiting(partial(_where_a_member_waits, consumer, group_id, read_committed))
            if are_there:
                silence.wait()

            def on_assigned(_: object) -> None:
                silence.begin()
                waiting.begin()

            consumer.subscribe(() if pattern else topics, pattern=pattern, on_assigned=on_assigned)
            stall = Stall(partial(_why_nothing_is_assigned, group_id))
            _print_group(consumer, record_format, count, matches, silence, waiting, stall)
        return
    is_bounded = exit_at_end or asked.stop is not None
    is_known = asked.start.base is Base.OFFSET or asked.start in (OffsetPoint(Base.START), OffsetPoint(Base.END))
    is_read_later = is_known and not is_bounded  # of a partition whose offsets are not known yet
    unanswered = Unanswered("read later" if is_read_later else "not read")
    with stopped_by_signals(), said_warnings(), Consumer(bootstrap, **settings) as consumer:
        wanted = _partitions(bootstrap, topics, pattern, partitions, unanswered)
        ends, marks = _seek(consumer, wanted, asked, unanswered, exit_at_end=exit_at_end, is_read_later=is_read_later)
        waiting = Waiting(partial(_where_it_waits, consumer, marks, read_committed), is_repeated=is_bounded)
        waiting.begin()
        _print_assigned(consumer, record_format, count, ends, marks, matches, Silence(idle_seconds), waiting)
    if not is_read_later:
        unanswered.end()


def pattern_of(topics: Sequence[str], include: str | None) -> str | None:
    """Returns the expression that whole names of topics match; None where topics are named. UsageError for neither, or for both."""
    expressions = [topic for topic in topics if topic.startswith("^")]
    if bool(topics) == (include is not None) or (expressions and len(topics) > 1):
        raise click.UsageError("name topics, or give one regular expression: '^orders', or --include 'orders-.*'")
    if include == "":
        raise click.UsageError("--include: the regular expression must not be empty; '.*' matches every name")
    expression = f"(?:{expressions[0]}).*" if expressions else include
    if expression is not None:
        try:
            re.compile(expression)
        except re.error as error:
            raise click.UsageError(f"{expressions[0] if expressions else include}: no regular expression: {error}") from None
    return expression


def _where_it_waits(consumer: Reader, marks: Mapping[TopicPartition, Marks], read_committed: bool) -> str | None:
    if not marks:  # why nothing is known of the partitions was said
        return None
    positions = {partition: consumer.position(partition) for partition in marks}
    first = {partition: found.start_offset for partition, found in marks.items()}
    return where_it_waits(positions, first, {key: found.high_watermark for key, found in marks.items()}, read_committed=read_committed)


def _where_a_member_waits(consumer: Reader, group_id: str, read_committed: bool) -> str | None:
    """Returns nothing where the brokers do not say it: the next poll reports that."""
    try:
        mine = sorted(consumer.assignment())
        positions = {partition: consumer.position(partition) for partition in mine}
        first, last = consumer.beginning_offsets(mine, timeout_ms=0), consumer.end_offsets(mine, timeout_ms=0)
        return where_it_waits(positions, first, last, group_id, read_committed=read_committed)
    except KafkaError:
        return None


def _why_nothing_is_assigned(group_id: str) -> str:
    shows = f"`ottla group describe {group_id}` shows its members, `ottla cluster health` what is wrong with the cluster"
    return f"the coordinator of group {group_id} has given this member no partitions yet; {shows}"


def matcher_of(regex: str | None) -> Matcher:
    """Returns a test whether a record has the expression anywhere; every record passes without one."""
    if regex is None:
        return lambda record: True
    try:
        pattern = re.compile(os.fsencode(regex))
    except re.error as error:
        raise click.UsageError(f"-e {regex}: {error}") from None

    def matches(record: AnyRecord) -> bool:
        texts = (record.key, record.value, *(text for name, value in record.headers for text in (name.encode(), value)))
        return any(text is not None and pattern.search(text) is not None for text in texts)

    return matches


def _check_topics(bootstrap: str, topics: Sequence[str], pattern: str | None) -> bool:
    """Raises KafkaError for a topic that does not exist, for which a group would wait. Says that none matches, and returns False."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        for topic in () if pattern else topics:
            admin.describe_topic(topic)
        are_there = not pattern or bool(_matching(admin, pattern))
    if not are_there:
        complain(f"no topic{among_shown()} matches {topics[0] if topics else pattern}; the group reads one as soon as it does")
    return are_there


def _matching(admin: Admin, pattern: str) -> list[str]:
    found = re.compile(pattern)
    return sorted(name for name, topic in admin.list_topics().items() if not topic.is_internal and found.fullmatch(name))


def _partitions(
    bootstrap: str, topics: Sequence[str], pattern: str | None, only: tuple[int, ...], unanswered: Unanswered
) -> dict[TopicPartition, PartitionMetadata]:
    from ottla.sync import Admin

    wanted: dict[TopicPartition, PartitionMetadata] = {}
    with Admin(bootstrap, **client_settings()) as admin:
        if pattern:
            asked = topics[0] if topics else pattern
            topics = _matching(admin, pattern)
            if not topics:
                text = f"no topic{among_shown()} matches {asked}; `ottla topic list` shows the topics"
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        for topic in topics:
            known = admin.describe_topic(topic).partitions
            check_partitions(topic, only, known)
            wanted |= {TopicPartition(topic, index): found for index, found in sorted(known.items()) if not only or index in only}
        unanswered.note_leaderless(admin, leaderless(wanted), "the records")
    return wanted


def _seek(
    consumer: Reader,
    wanted: dict[TopicPartition, PartitionMetadata],
    asked: OffsetRange,
    unanswered: Unanswered,
    *,
    exit_at_end: bool,
    is_read_later: bool,
) -> tuple[dict[TopicPartition, int] | None, dict[TopicPartition, Marks]]:
    """Returns where to stop in each partition (None: nowhere), and the marks of each whose leader answers.

    The others are read once their leaders do, where they are read later at all.
    """
    from ottla.cli.record_format import Marks

    first, last = dict[TopicPartition, int](), dict[TopicPartition, int]()
    for leader, keys in by_leader(wanted).items():
        with unanswered.of(leader, f"the records of {len(keys)} partition{'s'[: len(keys) != 1]} that it leads"):
            found = [ask(keys, timeout_ms=0 if is_read_later else LOOK_UP_MS) for ask in (consumer.beginning_offsets, consumer.end_offsets)]
            first |= found[0]
            last |= found[1]
    later = [key for key in wanted if key not in first] if is_read_later else []
    consumer.assign([*first, *later])
    for partition in later:
        _seek_unknown(consumer, partition, asked.start)
    starts = _resolve(consumer, asked.start, first, last)
    if starts and all(start > last[partition] for partition, start in starts.items()):
        complain(f"warning: offset {max(starts.values())} is after the end, at {max(last.values())}")
    for partition in first:
        consumer.seek(partition, max(first[partition], min(starts[partition], last[partition])))
    ends: dict[TopicPartition, int] | None = None
    if asked.stop is not None:
        ends = _resolve(consumer, asked.stop, first, last)
    if exit_at_end:
        ends = last if ends is None else {partition: min(end, last[partition]) for partition, end in ends.items()}
    return ends, {partition: Marks(first[partition], last[partition]) for partition in first}


def _seek_unknown(consumer: Reader, partition: TopicPartition, start: OffsetPoint) -> None:
    """Has the partition read from there once its leader answers."""
    from ottla.cli.offsets import Base

    if start.base is Base.OFFSET:
        consumer.seek(partition, start.value)
    elif start.base is Base.START:
        consumer.seek_to_beginning([partition])
    else:
        consumer.seek_to_end([partition])


def _resolve(consumer: Reader, place: OffsetPoint, first: Offsets, last: Offsets) -> Offsets:
    from ottla.cli.offsets import Base

    if place.base is Base.OFFSET:
        return dict.fromkeys(first, place.value)
    if place.base is Base.START:
        return {partition: offset + place.value for partition, offset in first.items()}
    if place.base is Base.END:
        return {partition: offset - place.value if place.value > 0 else offset + place.value for partition, offset in last.items()}
    found = consumer.offsets_for_times(dict.fromkeys(first, place.value), timeout_ms=LOOK_UP_MS)
    return {partition: last[partition] if offset < 0 else offset for partition, (offset, _, _) in found.items()}


def _print_group(
    consumer: Reader,
    record_format: RecordFormat,
    count: int | None,
    matches: Matcher,
    silence: Silence,
    waiting: Waiting,
    stall: Stall,
) -> None:
    from ottla.cli.record_format import Marks

    printed, unknown = 0, Marks()

    def render(record: AnyRecord) -> bytes | None:
        return record_format.render(record, unknown) if matches(record) else None

    while count is None or printed < count:
        came, more = print_polled(consumer, RECORDS_MAX if count is None else count - printed, render)
        printed += more
        waiting.look(came=came)
        stall.look(None if waiting.has_begun else "joining")
        if silence.is_over(came=came):
            return


def _print_assigned(
    consumer: Reader,
    record_format: RecordFormat,
    count: int | None,
    ends: dict[TopicPartition, int] | None,
    marks: dict[TopicPartition, Marks],
    matches: Matcher,
    silence: Silence,
    waiting: Waiting,
) -> None:
    from ottla.cli.record_format import Marks

    printed, unknown = 0, Marks()

    def render(record: AnyRecord) -> bytes | None:
        partition = TopicPartition(record.topic, record.partition)
        is_wanted = (ends is None or record.offset < ends[partition]) and matches(record)
        return record_format.render(record, marks.get(partition, unknown)) if is_wanted else None

    while count is None or printed < count:
        if ends is not None and all(consumer.position(partition) >= end for partition, end in ends.items()):
            return
        came, more = print_polled(consumer, RECORDS_MAX if count is None else count - printed, render)
        printed += more
        waiting.look(came=came)
        if silence.is_over(came=came):
            return
