"""Runs of ``doomed_queries``, one after the other, over one broker and two checkpoints; and what their output must be."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tests.foreign_clients.broker_process import BrokerProcess
from tests.spark.doomed_queries import EVEN, EVENTS, ODD, PLAIN, ROWS_PER_BATCH, ROWS_PER_LAST_BATCH, SOURCE, TOTALS
from tests.spark.operators import OPERATORS, check, event

from ottla.sync import Admin, Consumer, NewTopic, Producer
from ottla.types import LATEST_TIMESTAMP, TopicPartition

PARTITION_COUNT = 2
ROWS_PER_RUN = 80
KEY_COUNT = 7
Doom = tuple[str, int, str] | float
"""The application, how many batches it writes before, and the point; or how many seconds after the queries began."""


def check_kills(
    directory: Path,
    dooms: Iterable[Doom],
    *,
    queries: Sequence[str] = ("copy", "totals"),
    rows_per_run: int = ROWS_PER_RUN,
    loses_checkpoints: bool = False,
    config: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """After the kills, and a last run that ends by itself, the output is what a batch computes.

    With ``loses_checkpoints`` they are in topics, too, and their directories are deleted after each kill.
    """
    checkpoint = "topic" if loses_checkpoints else "directory"
    operators = [name for name in queries if name in OPERATORS]
    with BrokerProcess(directory) as broker:
        with Admin(broker.bootstrap) as admin:
            kept = {"retention.ms": "-1"}  # the records have times of their own
            topics = [NewTopic(name, PARTITION_COUNT, 1, kept) for name in (SOURCE, EVEN, ODD, TOTALS, PLAIN, *operators)]
            topics.append(NewTopic(EVENTS, 1, 1, kept))  # whose order is that of time
            assert set(admin.create_topics(topics).values()) == {None}
        for index, doom in enumerate([*dooms, None]):
            fill(broker.bootstrap, index * rows_per_run, rows_per_run)
            fill_events(broker.bootstrap, index * rows_per_run, rows_per_run, is_last=doom is None)
            run(broker.bootstrap, directory, doom, queries, checkpoint=checkpoint, config=dict(config))
            for name in queries if loses_checkpoints and doom is not None else ():
                shutil.rmtree(directory / name, ignore_errors=True)
        if "copy" in queries or "totals" in queries:
            check_output(broker.bootstrap, directory, queries)
        events = [json.loads(record.value) for record in read(broker.bootstrap, EVENTS, 1)]
        for name in operators:
            check(name, events, [record.value for record in read(broker.bootstrap, name)])


def fill(bootstrap: str, first: int, count: int) -> None:
    with Producer(bootstrap, linger_ms=0) as producer:
        for number in range(first, first + count):
            key = None if number % 11 == 0 else b"key-%d" % (number % KEY_COUNT)
            headers = [("number", b"%d" % number)] if number % 3 else []
            producer.send(SOURCE, b"%d" % number, key=key, headers=headers, timestamp_ms=1_700_000_000_000 + number)


def fill_events(bootstrap: str, first: int, count: int, *, is_last: bool) -> None:
    """Events a quarter of a second apart, a little out of order; at the very end one that is late enough for all windows to end."""
    with Producer(bootstrap, linger_ms=0) as producer:
        for number in range(first, first + count):
            rng = random.Random(number)
            second = number / 4 + rng.uniform(-0.8, 0.8) + 100
            producer.send(EVENTS, event(number, second, rng.choice("abcde"), rng.randint(1, 9)))
        if is_last:
            producer.send(EVENTS, event(first + count, first + count + 10_000, "z", 1))


def run(bootstrap: str, directory: Path, doom: Doom | None, queries: Sequence[str], **more: Any) -> None:
    """The program has been killed at the point, or ends well without one."""
    log = directory / "spark.log"
    named = doom if isinstance(doom, tuple) else None
    with log.open("ab") as errors:
        rows_per_batch = ROWS_PER_LAST_BATCH if doom is None else ROWS_PER_BATCH
        given = {
            "bootstrap": bootstrap,
            "directory": str(directory),
            "doom": named,
            "queries": list(queries),
            "rows_per_batch": rows_per_batch,
        }
        given |= {"checkpoint": "directory", "config": {}} | more
        command = [sys.executable, "-m", "tests.spark.doomed_queries", json.dumps(given)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        assert process.stdout is not None
        said = process.stdout.readline()
        if isinstance(doom, float):
            time.sleep(doom)
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    assert b"queries run" in said or code, "it says when it has begun"
    ends = (-signal.SIGKILL, 0) if isinstance(doom, float) else (0,) if doom is None else (-signal.SIGKILL,)
    assert code in ends, f"{doom} ended with {code}:\n{said_in(log)}"


def said_in(log: Path) -> str:
    """What a program has said at its end, without the frames of the JVM's stack."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if not line.lstrip().startswith("at ")][-80:])


def check_output(bootstrap: str, directory: Path, queries: Sequence[str]) -> None:
    """Every row of the source is in the copies once, as it was; every total once for each batch that changed it."""
    rows = Counter(map(content, read(bootstrap, SOURCE)))
    assert rows == Counter(map(content, [*read(bootstrap, EVEN), *read(bootstrap, ODD)]))
    check_totals(bootstrap, directory / "totals")
    if "plain" in queries:
        assert rows == Counter(map(content, read(bootstrap, PLAIN)))


def check_totals(bootstrap: str, checkpoint: Path) -> None:
    """Every total of the query with this checkpoint is there once for each batch that changed it."""
    totals = Counter((record.key, *json.loads(record.value).values()) for record in read(bootstrap, TOTALS))
    assert totals == expected_totals(read(bootstrap, SOURCE), checkpoint)


def content(record: Any) -> tuple[Any, ...]:
    return record.key, record.value, record.headers, record.timestamp_ms


def expected_totals(source: list[Any], checkpoint: Path) -> Counter[tuple[Any, ...]]:
    """From the offsets of each batch, by another way than Spark's."""
    by_place = {(record.partition, record.offset): record.key for record in source}
    position = dict.fromkeys(range(PARTITION_COUNT), 0)
    counts: Counter[bytes | None] = Counter()
    found: Counter[tuple[Any, ...]] = Counter()
    batches = sorted((int(entry.name), entry) for entry in (checkpoint / "offsets").iterdir() if entry.name.isdigit())
    for _, entry in batches:
        end = {int(index): offset for index, offset in json.loads(entry.read_text().splitlines()[2])[SOURCE].items()}
        keys = [by_place[partition, offset] for partition in end for offset in range(position[partition], end[partition])]
        counts.update(keys)
        position |= end
        for key in set(keys):
            found[key, *([] if key is None else [key.decode()]), counts[key]] += 1
    assert sum(counts.values()) == len(source), "the last batch ends where the topic does"
    return found


def read(bootstrap: str, topic: str, partition_count: int = PARTITION_COUNT) -> list[Any]:
    """The committed records."""
    partitions = [TopicPartition(topic, index) for index in range(partition_count)]
    with Admin(bootstrap) as admin:
        ends = {key: end for key, (end, _, _) in admin.offsets_for_times(dict.fromkeys(partitions, LATEST_TIMESTAMP)).items()}
    with Consumer(bootstrap, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        records: list[Any] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            records += consumer.poll(100)
    return records
