"""The programs of docs/client.md, each run in a process of its own before a broker, as it is there."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.cli.pages import ROOT, blocks
from tests.waiting import eventually

from ottla.runtime.serve import BrokerThread
from ottla.sync import Admin, NewTopic, Producer, TopicPartition

PAGE: Final = "client.md"
PROGRAMS: Final = blocks(PAGE, "python")
SECONDS_MAX: Final = 60
ORDERS: Final = [b"0", b"1", b"2", b"3"]
"""What is in the topic before the program runs."""
PRINTED: Final[dict[str, list[str]]] = {
    'compression_type="lz4"': ["None b'0'", "None b'3'", "b'key' b'value'"],
    'send("orders", b"value", key=b"key")\n        print': ["stored at offset 4", "None b'0'", "b'key' b'value'"],
    "settings: ConsumerOptions": ["0", "3"],
    "def delivered": ["stored at offset 4", "stored at offset 5", "stored at offset 6"],
    "record.headers": ["()", "(('source', b'web'), ('attempt', b'1'))", "b'web'"],
    "DeserializationError": ["0", "3"],
    "consumer.pause": ["[0, 1]", "[]", "[2, 3]"],
    "def assigned": ["2 b'2'", "3 b'3'"],
    "def revoked": ["{0: 1}", "{0: 4}"],
    "SubscriptionPattern": [],
    "producer.transaction": ["both are stored"],
    "delivery_timeout_ms=30_000": ["4"],
    "threading.Thread(target=consumer.close)": ["0 b'0'", "3 b'3'"],
    "add_signal_handler": ["0 b'0'", "3 b'3'"],
    "Append": ["3600000 TOPIC"],
    "offsets_for_times": ["{TopicPartition(topic='orders', partition=0): CommittedOffset(offset=0, leader_epoch=-1, metadata='')}"],
}
"""What is in each program, and some of the lines that it prints, in order."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    with BrokerThread(properties | {"log.dirs": str(tmp_path_factory.mktemp("data"))}) as broker:
        yield broker.bootstrap


def test_every_program_of_the_page_is_run() -> None:
    assert [len([part for part in PRINTED if part in program]) for program in PROGRAMS] == [1] * len(PRINTED)


@pytest.mark.parametrize("part", PRINTED)
def test_a_program_prints_what_is_expected(part: str, address: str, tmp_path: Path) -> None:
    """Ctrl-C ends one that reads without an end."""
    [program] = [text for text in PROGRAMS if part in text]
    number = list(PRINTED).index(part)
    topic, group = f"orders{number}", f"group{number}"
    with Admin(address) as admin, Producer(address) as producer:
        admin.create_topics([NewTopic(topic, 1)])
        for value in ORDERS:
            producer.send(topic, value)
    own = re.sub(r'group_id(=|": )"\w+"', rf'group_id\1"{group}"', program).replace('"billing"', f'"{group}"')
    own = own.replace('"orders"', f'"{topic}"')
    (tmp_path / "program.py").write_text(own.replace("localhost:9092", address))
    expected = [re.compile(rf"^{re.escape(line)}", re.MULTILINE) for line in PRINTED[part]]
    with open(tmp_path / "out.txt", "wb") as out:
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, str(tmp_path / "program.py")]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=out, stderr=subprocess.STDOUT)

    def printed() -> str:
        text = (tmp_path / "out.txt").read_text().replace(topic, "orders")
        assert process.poll() in (None, 0), text
        return text

    try:
        if "for record in consumer:" in program or "SIGTERM" in program:
            eventually(printed, lambda text: all(line.search(text) for line in expected))
            process.send_signal(signal.SIGTERM if "SIGTERM" in program else signal.SIGINT)
        process.wait(SECONDS_MAX)
    finally:
        process.kill()
        process.wait()
    if "SIGTERM" in program:
        assert process.returncode == 0, "it ends by itself, not by the signal"
        with Admin(address) as admin:
            assert admin.committed_offsets(group)[TopicPartition(topic, 0)].offset == len(ORDERS)
            assert admin.describe_group(group).state == "Empty", "it has left"
    text = (tmp_path / "out.txt").read_text().replace(topic, "orders")
    places = [found.start() if (found := line.search(text)) else -1 for line in expected]
    assert places == sorted(places), text
    assert -1 not in places, text
    assert "Traceback" not in text or text.endswith("\nKeyboardInterrupt\n"), text
