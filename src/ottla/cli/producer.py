"""``ottla producer``: the producers that partitions remember."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ottla.cli.client_settings import client_settings
from ottla.cli.named_topics import check_partitions
from ottla.cli.names import TOPICS
from ottla.cli.output import bootstrap_option, complain, format_option, print_rows, time_text
from ottla.cli.unanswered import Unanswered, by_leader, leaderless, raise_silence
from ottla.errors import KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.client.admin import ActiveProducer
    from ottla.client.cluster_metadata import PartitionMetadata

COLUMNS = ("topic", "partition", "producer_id", "epoch", "last_sequence", "last_ms", "transaction_start_offset")
TEXT_NAMES = {"last_ms": "last_time"}
"""JSON has milliseconds, for programs."""


@click.group()
def producer() -> None:
    """List the producers that partitions remember."""


@producer.command("list")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=TOPICS)
@click.option("-p", "--partition", "partitions", type=int, multiple=True, help="Only these partitions.")
@bootstrap_option
@format_option
def list_producers(topics: tuple[str, ...], partitions: tuple[int, ...], bootstrap: str, output: str) -> None:
    """List the producers of each partition.

    Also shown is the first offset of their open transaction. LAST-TIME is that of the last write, or of the leader's last start
    where it had to read that write in its log.
    """
    from ottla.sync import Admin

    unanswered = Unanswered()
    with Admin(bootstrap, **client_settings()) as admin:
        wanted: dict[TopicPartition, PartitionMetadata] = {}
        for topic in topics:
            there = admin.describe_topic(topic).partitions
            check_partitions(topic, partitions, there)
            wanted |= {TopicPartition(topic, index): there[index] for index in partitions or sorted(there)}
        found: dict[TopicPartition, list[ActiveProducer] | KafkaError] = {}
        for leader, keys in by_leader(wanted).items():
            with unanswered.of(leader, f"the producers of {len(keys)} partition{'s'[: len(keys) != 1]} that it leads"):
                answers = admin.describe_producers(keys)
                raise_silence(answers.values())
                found |= answers
        unanswered.note_leaderless(admin, leaderless(wanted), "the producers")
    columns = [name if output == "json" else TEXT_NAMES.get(name, name) for name in COLUMNS]
    rows = []
    failed = {key: states for key, states in found.items() if isinstance(states, KafkaError)}
    for key, states in sorted(found.items()):
        for state in states if not isinstance(states, KafkaError) else ():
            start = None if state.transaction_start_offset < 0 else state.transaction_start_offset
            last = state.last_timestamp_ms if output == "json" else time_text(state.last_timestamp_ms)
            rows.append((key.topic, key.partition, state.producer_id, state.producer_epoch, state.last_sequence, last, start))
    print_rows(output, "producer list", columns, rows)
    for key, error in failed.items():
        complain(f"{key}: {error}")
    if failed:
        sys.exit(1)
    unanswered.end()
