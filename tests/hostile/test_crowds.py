"""Crowds: thousands that do nothing and hundreds that do it slowly, while honest clients go on."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.foreign_clients.wire import RawClient, batch_of, produce_request
from tests.hostile.judge import Judge, judged_broker
from tests.hostile.wire_bytes import TOPIC, produce

from ottla import sync
from ottla.messages.fetch import FetchPartition, FetchRequest, FetchTopic

IDLE_COUNT, SLOW_COUNT, SLOW_READER_COUNT = 3000, 200, 100
DESCRIPTORS = 8192


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    """This process holds as many sockets as the broker: both need the descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= DESCRIPTORS, f"ulimit -Hn is {hard}; {DESCRIPTORS} are needed"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, DESCRIPTORS), hard))
    try:
        with judged_broker(tmp_path) as judge:
            yield judge
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(judge: Judge, stack: contextlib.ExitStack) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", judge.broker.port), 20))


@pytest.mark.slow
def test_3000_idle_connections_and_200_slow_writers_delay_no_other_client(judge: Judge) -> None:
    request = produce(batch_of(b"slow but honest" * 20))
    with contextlib.ExitStack() as stack:
        idle = [connect(judge, stack) for _ in range(IDLE_COUNT)]
        slow = [connect(judge, stack) for _ in range(SLOW_COUNT)]
        for at in range(len(request)):
            for writer in slow:
                writer.sendall(request[at : at + 1])
            if at % 20 == 0:
                judge.assert_canary_is_served()
        for writer in slow:  # each byte has arrived: they are answered like anybody
            assert writer.recv(4)
        with sync.Producer(judge.broker.bootstrap) as producer:
            sent = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(1000)]
            assert all(future.result(20) for future in sent)
        judge.assert_canary_is_served()
        judge.assert_memory_is_bounded()
        with RawClient(judge.broker.port) as late:
            late.ask(produce_request(TOPIC, batch_of(b"x")), 9)
        for sock in idle[:: IDLE_COUNT // 10]:
            sock.sendall(request)
            assert sock.recv(4), "an idle connection is served when it wakes up"


def test_clients_that_do_not_read_their_answers_cost_bounded_memory(judge: Judge) -> None:
    """Each asks for the same megabyte again and again; the broker stops reading them instead of keeping their answers."""
    with RawClient(judge.broker.port) as writer:
        for _ in range(8):
            writer.ask(produce_request(TOPIC, batch_of(bytes(120_000))), 9)
    with contextlib.ExitStack() as stack:
        for _ in range(SLOW_READER_COUNT):
            client = stack.enter_context(RawClient(judge.broker.port))
            client.socket.setblocking(False)
            wanted = FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)
            with contextlib.suppress(BlockingIOError):
                for _ in range(200):
                    client.send(FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(TOPIC, partitions=[wanted])]), 11)
        for _ in range(20):
            judge.assert_canary_is_served()
        judge.assert_memory_is_bounded()
