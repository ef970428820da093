"""``python -m bench.turns``: how long the largest request of every API holds the broker's event loop, and what another client waits.

The loop's longest turn is measured by the broker, in processor time of its thread. The other client sends a record and reads one, again
and again, over a connection of its own: its longest round trip is wall time, on whatever machine this is. Words on the command line
choose the requests whose names have one of them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.foreign_clients.broker_process import lasting_port
from tests.hostile.judge import longest_turn_seconds
from tests.hostile.largest import GROUP, PARTITIONS, TOPIC, Largest, all_largest

from bench.generator import connect, create_topic, exchange, fetch_frame, frame, produce_frame
from bench.peers import Ottla
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.compiler import decode

CANARY: Final = "canary"
WAIT_SECONDS: Final = 120.0
METADATA_VERSION: Final = 10
FLEXIBLE_HEADER_BYTES: Final = 5
Make = Callable[[bytes], bytes]
"""A request, given the id of a topic that exists."""


class Figures(NamedTuple):
    turn: float  # in seconds, as the others
    wait: float
    took: float
    name: str

    def __str__(self) -> str:
        return f"{self.turn * 1000:7.1f} ms of loop  {self.wait * 1000:7.1f} ms wait  {self.took:6.2f} s  {self.name}\n"


class Canary:
    """A client that writes a record and reads one, for as long as the ``with`` lasts."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._sock = connect(address)
        self._requests = (
            produce_frame(CANARY, 0, batch_bytes=0, record_bytes=100),
            fetch_frame(CANARY, 0, offset=0, max_bytes=1000),
        )
        self._thread = threading.Thread(target=self._run)
        self._has_ended = threading.Event()
        self.waits: list[float] = []

    def _run(self) -> None:
        while not self._has_ended.wait(0.0005):
            for request in self._requests:
                begin = time.perf_counter()
                exchange(self._sock, request)
                self.waits.append(time.perf_counter() - begin)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._has_ended.set()
        self._thread.join()
        self._sock.close()


def main() -> None:
    words = sys.argv[1:]
    found = []
    for name, make in _requests():
        if not words or any(word in name for word in words):
            found.append(_measured(name, make))
            sys.stdout.write(str(found[-1]))
            sys.stdout.flush()
    sys.stdout.write("\nlongest first\n" + "".join(map(str, sorted(found, reverse=True))))


def _requests() -> Iterator[tuple[str, Make]]:
    for largest in all_largest():
        for count in sorted({largest.count_decoded, largest.count_worked_on}):
            yield f"{largest.name}: {count:,}", partial(_frame_of, largest, count)
    for count, partitions in ((1, 10_000), (5_000, 1)):
        request = CreateTopicsRequest([CreatableTopic(f"new-{number}", partitions, 1) for number in range(count)], 60_000)
        yield f"CreateTopics v7 {count:,} of {partitions:,} partitions", partial(_fixed, frame(request, 7))


def _frame_of(largest: Largest, count: int, topic_id: bytes) -> bytes:
    return frame(largest.request(count, topic_id), largest.version)


def _fixed(request: bytes, _: bytes) -> bytes:
    return request


def _measured(name: str, make: Make) -> Figures:
    admin = lasting_port()
    with Ottla(**{"ottla.admin.listener": str(admin), "auto.create.topics.enable": "false", "offsets.topic.num.partitions": "4"}) as peer:
        request = make(_prepare(peer))
        with connect(peer.address) as sock, Canary(peer.address) as canary:
            sock.settimeout(WAIT_SECONDS)
            time.sleep(0.2)
            canary.waits.clear()
            longest_turn_seconds(admin)
            begin = time.perf_counter()
            with contextlib.suppress(ConnectionError):  # what is refused may end the connection
                exchange(sock, request)
            took = time.perf_counter() - begin
            time.sleep(0.1)
        return Figures(longest_turn_seconds(admin), max(canary.waits), took, name)


def _prepare(peer: Ottla) -> bytes:
    """There is a topic, and a group that has read some of it; the topic's id."""
    create_topic(peer.address, CANARY, 1)
    create_topic(peer.address, TOPIC, PARTITIONS)
    with connect(peer.address) as sock:
        answer = exchange(sock, frame(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), METADATA_VERSION))
        [topic] = decode(MetadataResponse, METADATA_VERSION, answer[FLEXIBLE_HEADER_BYTES:]).topics
        exchange(sock, frame(FindCoordinatorRequest(GROUP), 0))
        read = OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, 5)])
        exchange(sock, frame(OffsetCommitRequest(GROUP, topics=[read]), 7))
    topic_id: bytes = topic.topic_id
    return topic_id


if __name__ == "__main__":
    main()
