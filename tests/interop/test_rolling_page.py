"""The commands of docs/security.md that move a cluster from plain text to SASL_SSL, and a client that writes meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import pytest
from tests.beside import beside
from tests.cli.pages import in_a_shell
from tests.foreign_clients.broker_process import MISTAKES, lasting_ports

from ottla.errors import KafkaError
from ottla.sync import Admin, Consumer, Producer, RecordMetadata, TopicPartition

PAGE: Final = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
TITLE: Final = "## From plain text to SASL_SSL, without a stop\n"
BLOCKS: Final = re.findall(r"^```sh\n(.*?)^```$", PAGE.partition(TITLE)[2].partition("\n## ")[0], re.MULTILINE | re.DOTALL)
SECONDS_MAX: Final = 300
PAUSE_S: Final = 0.02
PORTS: Final = [f"1{node}09{last}" for last in (2, 3, 4, 5) for node in (1, 2, 3)]


class Place:
    """An empty directory, in which the blocks of the page run; their ports are others than those of the page."""

    def __init__(self, directory: Path) -> None:
        self.ports = dict(zip(PORTS, map(str, lasting_ports(len(PORTS))), strict=True))
        self.work = directory / "work"
        self.work.mkdir()
        program = directory / "bin" / "ottla"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla "$@"\n')
        program.chmod(0o755)
        self._environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}

    def run(self, block: str) -> None:
        block = re.sub(r"1\$\{node\}(09\d)", r"$(eval echo \\$port_1${node}\1)", block)
        block = re.sub(r"\b1[123]09[2-5]\b", lambda port: self.ports[port[0]], block)
        block = re.sub(r"1NODE(09\d)", r"PORT_NODE_\1", block).replace("s/NODE/$node/g", "s/NODE/$node/g;" + self._filled())
        block = block.replace("s/093/095/g", ";".join(f"s/{self.ports[f'1{n}093']}/{self.ports[f'1{n}095']}/" for n in (1, 2, 3)))
        # A voter's line is changed as a whole: its ports are not those of the page.
        block = re.sub(r"'/voters/(s/.*?)'", lambda found: "'/voters/{" + found[1] + "}'", block)
        named = "".join(f"port_{port}={other}\n" for port, other in self.ports.items())
        done = in_a_shell(named + block, self.work, self._environment, options="eu", seconds=SECONDS_MAX)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{self.logs()[-5000:]}"

    def _filled(self) -> str:
        return ";".join(f"s/PORT_{port[1]}_{port[2:]}/{other}/g" for port, other in self.ports.items())

    def bootstrap(self, last: int) -> str:
        return ",".join(f"localhost:{self.ports[f'1{node}09{last}']}" for node in (1, 2, 3))

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.work.glob("*.log")))

    def end(self) -> None:
        for file in self.work.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(file.read_text()), signal.SIGKILL)


@contextlib.contextmanager
def writing(bootstrap: str, first: int, **settings: Any) -> Iterator[list[Future[RecordMetadata]]]:
    """A client that writes all the while: numbers from ``first`` on, each of which waits for its acknowledgement in the end."""
    sent: list[Future[RecordMetadata]] = []
    with Producer(bootstrap, acks="all", linger_ms=0, delivery_timeout_ms=SECONDS_MAX * 1000, **settings) as producer:

        def write(is_over: threading.Event) -> None:
            while not is_over.wait(PAUSE_S):
                number = first + len(sent)
                sent.append(producer.send("orders", b"%d" % number, partition=number % 3))

        with beside(write):
            yield sent


@pytest.mark.slow
def test_a_cluster_moves_to_sasl_ssl_without_a_stop_and_loses_nothing(tmp_path: Path) -> None:
    assert shutil.which("openssl"), "apt install openssl"
    place = Place(tmp_path)
    plain, keys, script, first, second, users, third = BLOCKS
    try:
        place.run(plain)
        with writing(place.bootstrap(2), 0) as before:
            for block in (keys, script, first, second, users):
                place.run(block)
            count = len(before)
        alice: dict[str, Any] = {
            "security_protocol": "SASL_SSL",
            "ssl_truststore_location": str(place.work / "authority.pem"),
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "alice-secret",
        }
        count = len(before)
        with writing(place.bootstrap(4), count, **alice) as after:
            place.run(third)
        offsets = [future.result(0).offset for future in before + after]  # every one was acknowledged
        assert count > 0 < len(after)
        for partition in range(3):
            mine = offsets[partition::3]
            assert mine == sorted(set(mine))
        read: list[list[int]] = [[], [], []]
        with Consumer(place.bootstrap(4), auto_offset_reset="earliest", group_id=None, **alice) as consumer:
            consumer.assign([TopicPartition("orders", partition) for partition in range(3)])
            records = iter(consumer)
            for _ in range(len(offsets) + 1):  # and what the page has written
                record = next(records)
                if record.value != b"hello":
                    read[record.partition].append(int(record.value or b""))
        assert read == [list(range(partition, len(offsets), 3)) for partition in range(3)]
        with pytest.raises(KafkaError), Admin(place.bootstrap(4), request_timeout_ms=2000) as stranger:
            stranger.list_topics()
    finally:
        place.end()
    assert not [sign for sign in MISTAKES if sign in place.logs()], place.logs()
    assert not [secret for secret in ("node-secret", "admin-secret", "alice-secret") if secret in place.logs()]
