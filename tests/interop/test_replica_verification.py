"""kafka-replica-verification of Apache Kafka 3.9, the last that has it: replicas of three nodes are equal, and one that is not is found."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import fastcrc
from tests.cluster.processes import ClusterProcesses
from tests.cluster.replicas import wait_for_in_sync

from ottla.sync import Admin, NewTopic, Producer

TOOL = "org.apache.kafka.tools.ReplicaVerificationTool"
ALL = {1, 2, 3}
RECORD_COUNT = 50
LINES_MAX = 200
"""It prints one each half second, and never ends by itself."""


def test_replicas_are_equal_and_one_that_is_not_is_found(tmp_path: Path, java_of_3_9: list[str]) -> None:
    with ClusterProcesses(tmp_path) as cluster, Admin(cluster.bootstrap) as admin:
        assert admin.create_topics([NewTopic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1]})]) == {"t": None}
        with Producer(cluster.bootstrap) as producer:
            for number in range(RECORD_COUNT):
                for index in range(2):
                    producer.send("t", f"value-{number}".encode(), partition=index).result(30)
        for index in range(2):
            wait_for_in_sync(admin, "t", ALL, index)
        with verifying(java_of_3_9, cluster) as until:
            until(lambda line: f"max lag is 0 for partition t-1 at offset {RECORD_COUNT} among 2 partitions" in line)

        cluster.nodes[3].stop()
        falsify(cluster.nodes[3].data / "t-0" / f"{0:020d}.log", b"value-49", b"value-50")
        cluster.nodes[3].start()
        wait_for_in_sync(admin, "t", ALL)
        with verifying(java_of_3_9, cluster) as until:
            found = until(lambda line: "unmatched checksum" in line)
        assert re.search(r"partition t-0 has unmatched checksum at offset 49; replica 1's checksum \d+; replica 3's checksum \d+", found)


@contextmanager
def verifying(java: list[str], cluster: ClusterProcesses) -> Iterator[Callable[[Callable[[str], bool]], str]]:
    """The tool runs; what is given waits for a line of it."""
    options = ("--broker-list", cluster.bootstrap, "--topics-include", "t", "--report-interval-ms", "500", "--time", "-2")
    with subprocess.Popen([*java, TOOL, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)

        def until(is_wanted: Callable[[str], bool]) -> str:
            printed = []
            for _ in range(LINES_MAX):
                printed.append(next(lines, ""))
                if is_wanted(printed[-1]):
                    return printed[-1]
            raise AssertionError("".join(printed))

        try:
            yield until
        finally:
            process.terminate()


def falsify(path: Path, old: bytes, new: bytes) -> None:
    """The last batch, which has this value, has another one, and a checksum that fits it."""
    data = bytearray(path.read_bytes())
    value_at = data.index(old)
    start = size = 0
    while start + size <= value_at:
        start += size
        size = 12 + int(struct.unpack_from(">i", data, start + 8)[0])
    data[value_at : value_at + len(old)] = new
    struct.pack_into(">I", data, start + 17, fastcrc.crc32.iscsi(bytes(data[start + 21 : start + size])))
    path.write_bytes(data)
