"""The largest request of every API: how long it holds the broker's event loop, and what another client waits meanwhile.

The loop's longest turn is measured by the broker, in processor time of its thread; the other client sends a record and reads it
back, again and again, over a connection of its own, and its longest round trip is wall time, on whatever machine this is.
``python -m bench.turns [word ...]`` measures the requests whose names have one of the words.
"""

from __future__ import annotations

import http.client
import re
import sys
import threading
import time
from typing import Final

from tests.clients.broker_process import lasting_port
from tests.hostile.largest import GROUP, PARTITIONS, TOPIC, Largest, all_largest

from bench.generator import connect, create_topic, exchange, fetch_frame, frame, produce_frame
from bench.peers import Ottla
from ottla.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.compiler import decode

CANARY: Final = "canary"
WAIT_SECONDS: Final = 20.0


class Canary:
    """A client that writes a record and reads one, for as long as the ``with`` lasts."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._sock = connect(address)
        self._requests = [
            produce_frame(CANARY, 0, batch_bytes=0, record_bytes=100),
            fetch_frame(CANARY, 0, offset=0, max_bytes=1000),
        ]
        self._is_ended = False
        self.waits: list[float] = []

    def _run(self) -> None:
        while not self._is_ended:
            for request in self._requests:
                begin = time.perf_counter()
                exchange(self._sock, request)
                self.waits.append(time.perf_counter() - begin)
            time.sleep(0.0005)

    def __enter__(self) -> Canary:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ended = True
        self._thread.join()
        self._sock.close()


def main() -> None:
    words = sys.argv[1:]
    found: list[tuple[float, float, float, int, str]] = []
    for largest in all_largest():
        if words and not any(word in largest.name for word in words):
            continue
        figures = _measured(largest)
        found.append((*figures, largest.name))
        sys.stdout.write(_line(*found[-1]))
        sys.stdout.flush()
    sys.stdout.write("\nlongest first\n")
    for figures in sorted(found, reverse=True):
        sys.stdout.write(_line(*figures))


def _line(turn: float, wait: float, took: float, count: int, name: str) -> str:
    return f"{turn * 1000:7.1f} ms turn {wait * 1000:7.1f} ms wait {took:7.2f} s {count:>8,} {name}\n"


def _measured(largest: Largest) -> tuple[float, float, float, int]:
    admin = lasting_port()
    with Ottla(**{"ottla.admin.listener": str(admin), "auto.create.topics.enable": "false", "offsets.topic.num.partitions": "4"}) as peer:
        topic_id = _prepare(peer)
        request = frame(largest.request(largest.count_max, topic_id), largest.version)
        with connect(peer.address) as sock, Canary(peer.address) as canary:
            sock.settimeout(WAIT_SECONDS)
            time.sleep(0.2)
            canary.waits.clear()
            _longest_turn(admin)
            begin = time.perf_counter()
            try:
                exchange(sock, request)
            except ConnectionError:
                pass
            took = time.perf_counter() - begin
            time.sleep(0.1)
        return _longest_turn(admin), max(canary.waits), took, largest.count_max


def _prepare(peer: Ottla) -> bytes:
    """A topic of many partitions, and a group that has read one of them; the topic's id."""
    create_topic(peer.address, CANARY, 1)
    create_topic(peer.address, TOPIC, PARTITIONS)
    with connect(peer.address) as sock:
        answer = exchange(sock, frame(MetadataRequest([MetadataRequestTopic(name=TOPIC)]), 10))
        [topic] = decode(MetadataResponse, 10, answer[5:]).topics
        from ottla.messages.find_coordinator import FindCoordinatorRequest

        exchange(sock, frame(FindCoordinatorRequest(key=GROUP), 0))
        offset = OffsetCommitRequestPartition(0, 5)
        exchange(sock, frame(OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(TOPIC, partitions=[offset])]), 7))
    return topic.topic_id


def _longest_turn(admin: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=WAIT_SECONDS)
    connection.request("GET", "/metrics")
    page = connection.getresponse().read().decode()
    connection.close()
    found = re.search(r"^ottla_event_loop_turn_seconds_max\S* (\S+)$", page, re.MULTILINE)
    assert found is not None, page
    return float(found[1])


if __name__ == "__main__":
    main()
