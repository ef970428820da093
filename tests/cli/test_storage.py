"""``ottla storage verify`` on the folder of a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ottla.runtime.serve import BrokerThread
from ottla.sync import Producer


def verify(folder: Path, *options: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "ottla", "storage", "verify", *options, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_whole_a_damaged_a_used_and_a_foreign_folder(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with BrokerThread({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}) as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("orders", b"x" * 100).result(10)
        code, _, problem = verify(folder)
        assert (code, "in use by a broker" in problem) == (1, True)
    code, text, _ = verify(folder)
    assert (code, text.split(": ")[-1].strip()) == (0, "whole")
    with open(folder / "orders-0" / "00000000000000000000.log", "r+b") as file:
        file.seek(90)
        file.write(b"!")
    code, text, _ = verify(folder, "--format", "json")
    [item] = json.loads(text)["items"]
    assert (code, item["is_damaged"]) == (1, True)
    assert [finding["path"] for finding in item["findings"]] == ["orders-0/00000000000000000000.log"]
    assert verify(folder)[1].startswith("DAMAGE  orders-0/")
    assert verify(tmp_path)[0] == 1
    assert verify(tmp_path / "nowhere")[0] == 2
