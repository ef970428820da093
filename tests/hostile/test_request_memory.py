"""What strangers can make a node hold by requests alone, whatever the largest allowed frame is: measured on a real process."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.foreign_clients.broker_process import BrokerProcess
from tests.foreign_clients.wire import RawClient, batch_of, produce_request
from tests.hostile.judge import forget_memory_peak, memory_peak

from ottla import sync
from ottla.messages.api_versions import ApiVersionsRequest

FRAME_BYTES_MAX = 104_857_600
COUNT = 100
MEMORY_BYTES_MAX = 256 << 20
TOPIC = "t"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process:
        with sync.Admin(process.bootstrap) as admin:
            assert admin.create_topics([sync.NewTopic(TOPIC, 1)]) == {TOPIC: None}
        yield process


def flood(broker: BrokerProcess, frames: list[memoryview], stack: contextlib.ExitStack) -> int:
    """All are sent at once, as far as they are read; a canary is served meanwhile. How many bytes were taken."""
    selector = stack.enter_context(selectors.DefaultSelector())
    for frame in frames:
        peer = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
        peer.setblocking(False)
        selector.register(peer, selectors.EVENT_WRITE, [frame])
    canary = stack.enter_context(RawClient(broker.port))
    sent, at_rest_since = 0, time.monotonic()
    while selector.get_map() and time.monotonic() - at_rest_since < 3:
        for key, _ in selector.select(0.2):
            [left] = key.data
            try:
                taken = key.fileobj.send(left[: 1 << 20])  # type: ignore[union-attr]
                key.data[0] = left[taken:]
                sent += taken
                at_rest_since = time.monotonic()
            except BlockingIOError:
                continue
            except ConnectionError:
                selector.unregister(key.fileobj)
                continue
            if not key.data[0]:
                selector.unregister(key.fileobj)
        assert canary.ask(ApiVersionsRequest(), 0).error_code == 0
    assert canary.ask(produce_request(TOPIC, batch_of(b"x" * 300_000)), 9).responses[0].partition_responses[0].error_code == 0
    return sent


def grown(broker: BrokerProcess, before: int) -> int:
    return memory_peak(broker.pid) - before


@pytest.mark.parametrize("is_complete", [True, False], ids=["complete", "all but the end"])
@pytest.mark.slow
def test_100_frames_of_the_largest_size_cost_256_mib_at_most(broker: BrokerProcess, is_complete: bool) -> None:
    """What is not complete is held, and what is complete is no request: both are paid for by who sends them."""
    frame = FRAME_BYTES_MAX.to_bytes(4, "big") + bytes(FRAME_BYTES_MAX)
    data = memoryview(frame)[: None if is_complete else -100]
    forget_memory_peak(broker.pid)
    before = memory_peak(broker.pid)
    with contextlib.ExitStack() as stack:
        taken = flood(broker, [data] * COUNT, stack)
    print(f"{taken >> 20} MiB were taken")
    assert taken >= len(data), "as much as one frame, or nothing was tried"
    assert grown(broker, before) <= MEMORY_BYTES_MAX
