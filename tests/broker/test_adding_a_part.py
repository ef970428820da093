"""The page about adding a part, as it stands: its file and its line in a copy of the source, and a broker that runs with them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "adding-a-part.md"
RUN = """
import asyncio, sys
from ottla.broker.node import Broker
from ottla.config import BrokerConfig
from ottla.controller.topics import NewTopic
from ottla.runtime.world import real_world

async def main():
    broker = Broker(real_world(), BrokerConfig({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": sys.argv[1]}))
    await broker.start()
    await broker.controller.create_topics([NewTopic("t", 1, 1)])
    await broker.stop()

asyncio.run(main())
"""


@pytest.mark.slow
def test_the_part_of_the_page_is_one_new_file_and_one_line_of_the_list(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    [file] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    [path] = re.findall(r"The new file is `(.+?)`", text)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / path).write_text(file, encoding="utf-8")
    changes = re.findall(r"```diff\n(.*?)```", text, re.DOTALL)
    assert [change.count("\n+") for change in changes] == [1, 1], "an import, and a line of the list"
    assembly = tmp_path / "src" / "ottla" / "broker" / "assembly.py"
    for change in changes:
        source, lines = assembly.read_text(encoding="utf-8"), change.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if not line.startswith("+"))
        assert source.count(old) == 1
        assembly.write_text(source.replace(old, "".join(line[1:] for line in lines)), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    command = [sys.executable, "-c", RUN, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    [said] = [printed for printed in (done.stdout + done.stderr).splitlines() if "metadata_changes" in printed]
    counted = re.search(r"count=\D*(\d+)", said)
    assert counted is not None
    assert int(counted[1]) >= 2, "the broker's registration, and the topic"


def test_the_page_names_every_method_of_a_part() -> None:
    source = (ROOT / "src" / "ottla" / "broker" / "part.py").read_text(encoding="utf-8")
    of_part = source[source.index("class Part:") : source.index("class PartList")]
    methods = re.findall(r"def (\w+)\(self", of_part)
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in methods if f"`{name}`" not in text] == []
