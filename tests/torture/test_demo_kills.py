"""The main job over kills of a Python worker, a broker and Spark's JVM, and without the directories of its checkpoints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.spark.demo_process import RECORDS, Demo, expected_table

from ottla.spark.demo.sending import FLIGHTS, TYPED_WRONG


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_the_results_are_the_same_whatever_is_killed(tmp_path: Path) -> None:
    demo = Demo(tmp_path, RECORDS, "--kill")
    assert demo.end() == 0, demo.output
    assert "every flight is accounted for" in demo.output
    assert f"unreadable {len(TYPED_WRONG)} records" in demo.output
    assert expected_table(RECORDS) in demo.output
    said = re.search(r"kill +broker (\d) got SIGKILL after ([\d,]+) flights; it led (.*)\n +now led: (.*)\n +(.*)\n", demo.output)
    assert said is not None, demo.output
    victim, sent, led, now_led, pause = said.groups()
    assert 0 < int(sent.replace(",", "")) < RECORDS
    assert f"{FLIGHTS}-" in led
    assert f"broker {victim}" not in now_led
    assert sorted(re.findall(r"\w+-\d", now_led)) == sorted(re.findall(r"\w+-\d", led))
    assert re.fullmatch(r"[\d,]+ ms from the kill to the next acknowledged flight of these partitions", pause)
    assert re.search(rf"return +broker {victim} was started .* in the ISR of all 13 partitions [\d,]+ ms later", demo.output), demo.output
    assert "kill       a Python worker of Spark got SIGKILL" in demo.output
    gone = demo.output.index("kill       Spark's JVM got SIGKILL, and the directories of the checkpoints were removed")
    back = re.search(r"Spark and its queries run again [\d,]+ ms later, with (\d+) files of their checkpoints from the topics", demo.output)
    assert back is not None
    assert back.start() > gone
    assert int(back[1]) > 10, "state, offsets and commits of two queries"
    assert f"node {victim} was killed (SIGKILL)" in (tmp_path / "cluster.log").read_text()
