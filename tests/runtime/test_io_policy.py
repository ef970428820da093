"""OTTLA_PATHS forces the ways that it names, on every byte: counted at the calls of the operating system."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runtime.path_counter import LARGE, ROUNDS, SMALL

from ottla.runtime.io_policy import VARIABLE

SECONDS_MAX = 60
ALL = ROUNDS * (SMALL + LARGE)


def counted(tmp_path: Path, words: str) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.runtime.path_counter", str(tmp_path / "file")]
    done = subprocess.run(command, env=os.environ | {VARIABLE: words}, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_by_default_each_size_takes_the_way_that_is_cheapest_for_it(tmp_path: Path) -> None:
    found = counted(tmp_path, "")
    assert found.pop("asked_the_kernel") > 0
    assert found == {
        "sent_by_sendfile": ROUNDS * LARGE,
        "appended_on_the_loop": ROUNDS * SMALL,
        "appended_by_threads": ROUNDS * LARGE,
        "warmed": 0,
    }


def test_a_policy_that_is_forced_on_is_used_for_every_byte(tmp_path: Path) -> None:
    assert counted(tmp_path, "sendfile,offload,cold") == {
        "sent_by_sendfile": ALL,
        "appended_on_the_loop": 0,
        "appended_by_threads": ALL,
        "asked_the_kernel": 0,
        "warmed": 2 * ROUNDS,
    }


def test_a_policy_that_is_forced_off_is_never_used(tmp_path: Path) -> None:
    assert counted(tmp_path, "copy,inline,warm") == {
        "sent_by_sendfile": 0,
        "appended_on_the_loop": ALL,
        "appended_by_threads": 0,
        "asked_the_kernel": 0,
        "warmed": 0,
    }


@pytest.mark.parametrize(
    ("words", "complaint"), [("copy,fast", "fast is none of"), ("copy,sendfile", "copy and sendfile exclude each other")]
)
def test_words_that_mean_nothing_are_refused(words: str, complaint: str) -> None:
    command = [sys.executable, "-c", "import ottla.runtime.io_policy"]
    done = subprocess.run(command, env=os.environ | {VARIABLE: words}, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 1
    assert f"ValueError: {VARIABLE}={words}: {complaint}" in done.stderr
