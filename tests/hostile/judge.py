"""A broker process that bad input is sent to, and what must hold after each: alive, others served, memory bounded."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.foreign_clients.broker_process import BrokerProcess, lasting_port
from tests.foreign_clients.wire import RawClient, batch_of, produce_request
from tests.hostile.case import FRAME_BYTES_MAX, Case
from tests.hostile.wire_bytes import COMPACTED, RECOMPRESSED, TOPIC

from ottla import sync
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic

CANARY = "canary"
ANSWER_SECONDS_MAX = 5.0
MEMORY_BYTES_MAX = 64 << 20
TURN_SECONDS_MAX = 0.25
"""The longest turn of the loop that a case may cause: no other client is served meanwhile."""
NOTED_SECONDS = 0.05


class Judge:
    """One broker, a canary client that is served throughout, and the memory that the broker had before."""

    def __init__(self, broker: BrokerProcess, *, node_id: int = -1) -> None:
        """``node_id`` is the broker's among several: its topics are led there."""
        self.broker = broker
        with sync.Admin(broker.bootstrap) as admin:
            large = {"max.message.bytes": str(FRAME_BYTES_MAX)}
            configs = {
                TOPIC: {},
                CANARY: {},
                COMPACTED: large | {"cleanup.policy": "compact"},
                RECOMPRESSED: large | {"compression.type": "gzip"},
            }
            place = None if node_id < 0 else {0: [node_id]}
            count = 1 if place is None else -1
            topics = [sync.NewTopic(name, count, configs=values, assignments=place) for name, values in configs.items()]
            assert set(admin.create_topics(topics).values()) == {None}
        self.canary = RawClient(broker.port)
        self.canary.socket.settimeout(ANSWER_SECONDS_MAX)
        self._offset = 0
        for _ in range(20):
            self.assert_canary_is_served()
        self._memory_before = self._memory_now = memory_peak(broker.pid)
        self.turns: dict[str, float] = {}  # the longest turn of each case that took so long
        self._longest_turn()

    def try_case(self, case: Case, *, port: int = 0) -> None:
        """The case is sent over a connection of its own, to the brokers' listener or that ``port``, and all that must hold does."""
        data = case.bytes_to_send()
        forget_memory_peak(self.broker.pid)
        self._memory_now = memory_peak(self.broker.pid)
        began = time.monotonic()
        with contextlib.closing(socket.create_connection(("127.0.0.1", port or self.broker.port), ANSWER_SECONDS_MAX)) as raw:
            with contextlib.suppress(ConnectionError):  # the broker may end it before all is sent
                raw.sendall(data)
                if port:  # whatever waits there ends with its connection
                    raw.shutdown(socket.SHUT_WR)
                    while raw.recv(1 << 16):
                        pass
                elif case.is_answered:
                    assert_answer_or_end(raw)
            self.assert_canary_is_served()
        self.assert_memory_is_bounded()
        if time.monotonic() - began < NOTED_SECONDS:  # no turn of the loop took longer
            return
        longest = self.turns[case.name] = self._longest_turn()
        assert longest <= TURN_SECONDS_MAX, f"one turn of the loop took {longest:.3f} s"

    def long_turns(self) -> str:
        """The cases that held the loop for longest, one a line."""
        found = sorted(((seconds, name) for name, seconds in self.turns.items() if seconds > NOTED_SECONDS), reverse=True)
        return "".join(f"{seconds * 1000:7.1f} ms {name}\n" for seconds, name in found)

    def _longest_turn(self) -> float:
        if "ottla.admin.listener" not in self.broker.properties:
            return 0.0
        return longest_turn_seconds(int(self.broker.properties["ottla.admin.listener"]))

    def assert_canary_is_served(self) -> None:
        """An honest client, on a connection that it had before, writes a record and reads it back."""
        answer = self.canary.ask(produce_request(CANARY, batch_of(b"%d" % self._offset)), 9)
        [written] = answer.responses[0].partition_responses
        assert (written.error_code, written.base_offset) == (0, self._offset)
        wanted = FetchPartition(0, fetch_offset=self._offset, partition_max_bytes=1 << 20)
        fetched = self.canary.ask(FetchRequest(max_bytes=1 << 20, min_bytes=1, topics=[FetchTopic(CANARY, partitions=[wanted])]), 11)
        [found] = fetched.responses[0].partitions
        assert found.error_code == 0
        assert b"%d" % self._offset in bytes(found.records)
        self._offset += 1

    def assert_memory_is_bounded(self, *, allowed: int = 0) -> None:
        """``allowed`` are bytes for what the broker was asked to keep."""
        grown = memory_peak(self.broker.pid) - self._memory_now - allowed
        assert grown <= MEMORY_BYTES_MAX, f"{grown >> 20} MiB more than before the case"
        left = self._memory_now - self._memory_before
        assert left <= MEMORY_BYTES_MAX, f"{left >> 20} MiB are left of the cases before"


def assert_answer_or_end(raw: socket.socket) -> None:
    """TimeoutError when neither came in time."""
    head = b""
    while len(head) < 4:
        piece = raw.recv(4 - len(head))
        if not piece:
            return
        head += piece
    (length,) = struct.unpack(">i", head)
    assert 4 <= length < 100 << 20, "an answer is a frame with a correlation id"


def longest_turn_seconds(admin_port: int) -> float:
    """Of the loop of the broker with that ``ottla.admin.listener``, in processor time, since this was asked last."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", admin_port, timeout=ANSWER_SECONDS_MAX)) as connection:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    found = re.search(r"^ottla_event_loop_turn_seconds_max\S* (\S+)$", page, re.MULTILINE)
    assert found is not None, page
    return float(found[1])


def forget_memory_peak(pid: int) -> None:
    """From now on the peak is measured again."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def memory_peak(pid: int) -> int:
    """The most bytes that the process had in memory since its peak was last forgotten."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the process has gone")


@contextlib.contextmanager
def judged_broker(directory: Path, **properties: Any) -> Iterator[Judge]:
    given: dict[str, Any] = {"socket_request_max_bytes": str(FRAME_BYTES_MAX), "auto_create_topics_enable": "false"} | properties
    with BrokerProcess(directory, **given, ottla_admin_listener=str(lasting_port())) as broker:
        judge = Judge(broker)
        try:
            yield judge
        finally:
            sys.stdout.write(judge.long_turns())
            judge.canary.socket.close()
