"""``ottla produce TOPIC``: records from standard input."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import click
from click.core import ParameterSource

from ottla.cli.client_settings import client_settings
from ottla.cli.ctrl_c import stopped_by_signals
from ottla.cli.missing_rights import missing_right
from ottla.cli.names import TOPICS
from ottla.cli.output import bootstrap_option, complain, format_option, print_rows, said_warnings, say_connectivity, wrong_call
from ottla.cli.stall import Stall, said_stall
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.cli.record_parser import ParsedRecord
    from ottla.client.options import ProducerOptions
    from ottla.sync import RecordMetadata

REASONS_MAX: Final = 10
_OF_A_RIGHT: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
"""The second one is of the producer's id, which a user gets who may write to any topic."""


@click.command()
@click.argument("topic", required=False, shell_complete=TOPICS)
@click.option(
    "-f",
    "--record-format",
    "layout",
    default="%v\\n",
    show_default=True,
    help="How the input is split into records: %k %v\\n, %K{big32}%k..., or json; see `ottla help format`.",
)
@click.option("-k", "--key", help="A key for every record.")
@click.option("-p", "--partition", type=int, help="A partition for every record.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header for every record.")
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Which replicas acknowledge a record: none, the leader, or all in sync.",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option("-Z", "--tombstone", is_flag=True, help="Empty values are sent as null.")
@bootstrap_option
@format_option
def produce(
    topic: str | None,
    layout: str,
    key: str | None,
    partition: int | None,
    headers: tuple[str, ...],
    acks: Literal["0", "1", "all"],
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"],
    tombstone: bool,
    bootstrap: str,
    output: str,
) -> None:
    """Write records from standard input to TOPIC, one per line unless -f is given."""
    from ottla.cli.record_parser import parser_of
    from ottla.client.producer_settings import ProducerSettings
    from ottla.sync import Producer

    with wrong_call():
        parser = parser_of(layout, keeps_place=topic is None)
    if topic is None and "%t" not in layout and layout != "json":
        raise click.UsageError("name a TOPIC, or have %t in the format")
    for given, name, option in ((key, "k", "-k"), (partition, "p", "-p")):
        if given is not None and layout != "json" and re.search(rf"(?<!%)(?:%%)*%{name}", layout):
            raise click.UsageError(f"{option} is for every record, and %{name} of the format has each record's own: leave one of them out")
    fixed_key = None if key is None else os.fsencode(key)
    fixed_headers = [_header(text) for text in headers]
    settings: ProducerOptions = client_settings(ProducerSettings, on_connectivity=say_connectivity)
    if "transactional_id" in settings:
        raise click.UsageError(
            "produce writes no transactions: leave transactional.id out; `producer.transaction()` of ottla.sync has them"
        )
    source = click.get_current_context().get_parameter_source
    is_default = {name: source(name) is ParameterSource.DEFAULT for name in ("acks", "compression")}
    if not is_default["compression"] or "compression_type" not in settings:  # a property of -X or of the file is before a default
        settings["compression_type"] = compression
    if not is_default["acks"] or "acks" not in settings:
        settings["acks"] = acks
    if not is_default["acks"] or "enable_idempotence" not in settings:
        settings["enable_idempotence"] = settings["acks"] in ("all", "-1")
    tally = Tally(missing_right(KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)) or "")
    if sys.stdin.isatty():
        complain(
            f"reading records for {topic or 'the topics that they name'} from the terminal, one per line unless -f is given; Ctrl-D ends"
        )
    stall = Stall(tally.waiting)
    try:
        with stopped_by_signals(), said_warnings(), said_stall(stall, tally.progress), Producer(bootstrap, **settings) as producer:
            for record in _read(parser.parse(sys.stdin.buffer), tally):
                if not tally.sent and output == "json" and layout == "%v\\n":
                    _warn_of_json(record.value)
                record_key = record.key if record.key is not None else fixed_key
                tally.sent += 1
                producer.send(
                    record.topic or topic or "",
                    None if tombstone and not record.value else record.value,
                    key=record_key,
                    partition=record.partition if record.partition is not None else partition,
                    headers=[*record.headers, *fixed_headers],
                    timestamp_ms=record.timestamp_ms,
                    on_delivery=partial(tally.note, tally.sent),
                )
            if not tally.sent:  # nothing was to be sent, and so no broker was looked for
                check_reachable(bootstrap)
    except KeyboardInterrupt:
        tally.report_interrupted(output)
        raise
    tally.report(output)


def check_reachable(bootstrap: str) -> None:
    """Raises KafkaError when no broker answers."""
    from ottla.sync import Admin

    with Admin(bootstrap, **client_settings()) as admin:
        admin.describe_cluster()


class Tally:
    """The count of records by where they landed, and of refused ones by the reason; filled by the client's thread."""

    def __init__(self, lacks_write: str = "") -> None:
        self._lacks_write = lacks_write  # the end of the reason of a record that the user had no right to write
        self._landed: dict[tuple[str, int], list[int]] = {}  # how many, the first offset and the last
        self._refused: dict[str, list[int]] = {}  # by reason: how many, and the number of the first in the input
        self._done = 0
        self._is_any_open = False
        self.sent = 0
        self.unread: KafkaError | None = None  # the input did not fit the format

    def note(self, number: int, landed: RecordMetadata | None, error: KafkaError | None) -> None:
        """Notes that a record is done. Each reason of a refusal is reported at once, with the record's number in the input, and once."""
        self._done += 1
        if landed is not None:
            place = self._landed.setdefault((landed.topic, landed.partition), [0, landed.offset, landed.offset])
            place[0] += 1
            place[1:] = min(place[1], landed.offset), max(place[2], landed.offset)
            return
        reason = str(error)
        if error is not None and error.code in _OF_A_RIGHT:
            reason = f"{reason.removesuffix('.')}{self._lacks_write}"
        if reason not in self._refused and len(self._refused) >= REASONS_MAX:
            reason = "for yet another reason"
        count = self._refused.setdefault(reason, [0, number])
        count[0] += 1
        if count[0] == 1:
            is_open = error is not None and error.code == ErrorCode.REQUEST_TIMED_OUT  # it may be stored all the same
            self._is_any_open |= is_open
            complain(f"record {number} was {'not acknowledged' if is_open else 'refused'}: {reason}")

    def progress(self) -> tuple[int, int] | None:
        """Returns how many records were sent, and are done; None where none is on its way, as while input is waited for."""
        return None if self.sent == self._done else (self.sent, self._done)

    def waiting(self) -> str:
        """Returns what is waited for."""
        left = self.sent - self._done
        records = f"{left} record{'s'[: left != 1]}, of {self.sent} so far, {'is' if left == 1 else 'are'} not written yet"
        return f"{records}; `ottla cluster health` says what is wrong with the cluster"

    def report(self, output: str) -> None:
        """Prints one line for each partition; exit code 1 when any record was refused, or the input did not fit."""
        self._print_landed(output)
        if self.unread is not None:
            complain(f"{self.unread}; records sent before it: {self.sent}, after it: none")
        if self._refused:
            refused = sum(count for count, _ in self._refused.values())
            total = refused + sum(place[0] for place in self._landed.values())
            as_which = ", ".join(f"{count} as record {first} was" for count, first in self._refused.values())
            word = "not acknowledged" if self._is_any_open else "refused"
            complain(f"{refused} of {total} records were {word}" + (f": {as_which}" if refused > len(self._refused) else ""))
        if self._refused or self.unread is not None:
            sys.exit(1)

    def report_interrupted(self, output: str) -> None:
        """Prints the same lines after a Ctrl-C or a SIGTERM, and of how many records it is not known whether they were written."""
        self._print_landed(output)
        left = self.sent - sum(place[0] for place in self._landed.values())
        if left:
            complain(f"interrupted: {left} of {self.sent} record{'s'[: self.sent != 1]} sent may not have been written")

    def _print_landed(self, output: str) -> None:
        rows = [(topic, partition, *place) for (topic, partition), place in sorted(self._landed.items())]
        if rows or output == "json":
            print_rows(output, "produce", ("topic", "partition", "records", "first_offset", "last_offset"), rows)


def _read(records: Iterator[ParsedRecord], tally: Tally) -> Iterator[ParsedRecord]:
    """Yields the records up to where the input does not fit; the tally notes the error."""
    try:
        yield from records
    except KafkaError as error:
        tally.unread = error


def _warn_of_json(value: bytes | None) -> None:
    """Warns where the input looks like records of ``-f json``: the option that was given is the form of the report."""
    if value is not None and re.match(rb'\s*\{.*"(key|value)"\s*:', value):
        complain("warning: each line is stored as a value, as it is; -f json reads key, value and headers; --format is of the report")


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.UsageError(f"-H {text}: expected NAME=VALUE")
    return name, os.fsencode(value)
