"""A process of a streaming read whose JVM has ended. Without Spark: another program has the part of the JVM."""

import os
import select
import subprocess
import sys
from pathlib import Path

SECONDS_MAX = 20
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", "reader"], stdin=subprocess.PIPE)
print("started", flush=True)
sys.stdin.read()
"""
READER = """
import time
from ottla.spark.orphans import end_with_jvm

end_with_jvm("reader")
print("reads", flush=True)
time.sleep(90)  # what it waits for; it outlasts the test, and ends by itself where that fails
"""


def test_a_reader_ends_with_its_jvm_whatever_it_waits_for(tmp_path: Path):
    """One that was started as its query was stopped, beside brokers that were away, waited for them for minutes."""
    (tmp_path / "reader.py").write_text(READER)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as jvm:
        assert jvm.stdout is not None
        assert {jvm.stdout.readline(), jvm.stdout.readline()} == {b"started\n", b"reads\n"}
        jvm.kill()
        assert select.select([jvm.stdout], [], [], SECONDS_MAX)[0], "the reader has its standard output, and goes on"
        assert jvm.stdout.read() == b""
