"""Requests of real clients, bent out of shape, sent to a running broker while an honest client goes on.

OTTLA_MUTATIONS is how many. Each is a recorded or a hand-made request with a few changes: bits, numbers at their limits,
pieces cut out, doubled or swapped with another request's; the frame's length is right again most of the time, or the rest
would never be read.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
from pathlib import Path

from tests.hostile.cases import all_cases
from tests.hostile.judge import judged_broker
from tests.torture.test_fuzz import GOLDEN

MUTATIONS = int(os.environ.get("OTTLA_MUTATIONS", "200000"))
CANARY_EVERY = 100
END_SECONDS_MAX = 20.0
SEED_BYTES_MAX = 20_000
PARTITION_BYTES = 16 << 10
"""A bent request for a topic may ask for thousands of them."""
LIMITS = [0, 1, -1, 127, -128, 255, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63)]
ALTERING = ("configs-alter", "topics-delete", "every_api-")  # what would change the broker under test by mere luck


def seeds() -> list[bytes]:
    """Frames without their lengths."""
    recorded = [
        bytes.fromhex(line.split()[2])
        for path in sorted(GOLDEN.glob("*.txt"))
        for line in path.read_text().splitlines()
        if not line.startswith("#")
    ]
    made = [case.bytes_to_send()[4:] for case in all_cases() if not case.name.startswith(ALTERING) and isinstance(case.data, bytes)]
    return [frame for frame in recorded + made if 8 < len(frame) < SEED_BYTES_MAX]


def mutate(rng: random.Random, frame: bytes, other: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(4 if rng.random() < 0.9 else 0, max(5, len(data)))
        match rng.randrange(7):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                size = rng.choice((1, 2, 4, 8))
                data[at : at + size] = (rng.choice(LIMITS) % 2 ** (8 * size)).to_bytes(size, "big")
            case 2:
                del data[at : at + rng.randrange(1, 20)]
            case 3:
                data[at:at] = data[at : at + rng.randrange(1, 60)]
            case 4:
                data[at:at] = rng.randbytes(rng.randrange(1, 20))
            case 5:
                data[at:] = other[at:]
            case _:
                data[at : at + 5] = b"\xff" * rng.randrange(1, 11)
    length = len(data) if rng.random() < 0.98 else rng.choice(LIMITS) % 2**31
    return struct.pack(">I", length) + bytes(data)


def test_a_running_broker_survives_mutated_requests(tmp_path: Path) -> None:
    rng = random.Random(1)
    pool = seeds()
    assert len(pool) > 200
    answered_count = directory_count_max = 0
    with judged_broker(tmp_path) as judge:
        for number in range(1, MUTATIONS + 1):
            answered_count += is_answered(judge.broker.port, mutate(rng, rng.choice(pool), rng.choice(pool)))
            if number % CANARY_EVERY == 0:
                judge.assert_canary_is_served()
                directory_count_max = max(directory_count_max, len(os.listdir(judge.broker.data)))
                judge.assert_memory_is_bounded(allowed=PARTITION_BYTES * directory_count_max)
    print(f"{MUTATIONS} mutated requests, {answered_count} answered")


def is_answered(port: int, request: bytes) -> bool:
    """Whether anything came back before the end. This side says that it sends no more, so the broker ends it, too."""
    received = 0
    with contextlib.closing(socket.create_connection(("127.0.0.1", port), END_SECONDS_MAX)) as raw, contextlib.suppress(ConnectionError):
        raw.sendall(request)
        raw.shutdown(socket.SHUT_WR)
        while piece := raw.recv(1 << 16):
            received += len(piece)
    return received > 0
