"""Mechanism 48 as the kernel sees it: the broker under strace."""

import re
import time
from pathlib import Path

from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient, batch_of, produce_request
from tests.interop.tools import program

from ottla import sync

BATCH_COUNT, VALUE_BYTES = 8, 900_000
REST_BYTES_MAX = 64 * 1024
"""Less is read and sent with what follows (``runtime/io_policy.py``), as it is when a slow reader's socket took all but that of a batch."""
WAIT_SECONDS_MAX = 30.0


def test_mechanism_48_strace_sees_records_leave_by_sendfile(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    # -D: the broker is our child and strace its observer, or a signal would end strace alone.
    command = [program("strace", way_to_get_it="apt install strace"), "-D", "-f", "-e", "trace=sendfile", "-o", str(calls)]
    broker = BrokerProcess(tmp_path, command=command)
    with broker:
        with sync.Admin(broker.bootstrap) as admin:
            assert admin.create_topics([sync.NewTopic("large", 1)]) == {"large": None}
        with RawClient(broker.port) as client:
            for _ in range(BATCH_COUNT):
                client.ask(produce_request("large", batch_of(bytes(VALUE_BYTES))), 9)
        with sync.Consumer(broker.bootstrap, max_partition_fetch_bytes=1 << 24) as consumer:
            consumer.assign([sync.TopicPartition("large", 0)])
            consumer.seek_to_beginning()
            got = 0
            while got < BATCH_COUNT:
                records = consumer.poll(30_000)
                assert records
                got += len(records)
    # strace writes its last line when the broker is gone; the process id is in front of it only while others are traced.
    ended = re.compile(rf"^({broker.pid} +)?\+\+\+ exited", re.MULTILINE)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not ended.search(calls.read_text()):
        assert time.monotonic() < deadline, calls.read_text()[-500:]
    sent = [int(line.rsplit("= ", 1)[1].split()[0]) for line in calls.read_text().splitlines() if "sendfile(" in line and "= " in line]
    assert sum(size for size in sent if size > 0) >= BATCH_COUNT * (VALUE_BYTES - REST_BYTES_MAX)
