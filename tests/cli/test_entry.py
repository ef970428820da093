"""A Ctrl-C at the very start of a command."""

from __future__ import annotations

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PRESSED = """
import os, signal, sys
pressed, manner = sys.argv[1:3]

class AtImport:
    def find_spec(self, name, path, target=None):
        if name == pressed:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, AtImport())
if manner == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.argv[1:] = sys.argv[3:]
from ottla.cli.entry import main
main()
"""


def ctrl_c_at_import(name: str, *arguments: str, manner: str = "heard") -> subprocess.CompletedProcess[str]:
    """The command, which gets a Ctrl-C when it begins to import the module."""
    command = [sys.executable, "-c", PRESSED, name, manner, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["click", "ottla.cli.main", "ottla.cli.produce"])
def test_a_ctrl_c_before_a_command_has_begun_ends_it_without_a_traceback(name: str) -> None:
    """It was one of some thirty lines, or was lost, and the command went on."""
    done = ctrl_c_at_import(name, "produce", "--help")
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_a_ctrl_c_within_a_command_lets_it_end_in_order() -> None:
    done = ctrl_c_at_import("ottla.sync", "topic", "list", "-B", "127.0.0.1:9")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\n")  # the line of ^C ends


def test_a_ctrl_c_that_a_shell_ignores_for_what_runs_in_the_background_is_ignored() -> None:
    done = ctrl_c_at_import("click", "--version", manner="ignored")
    assert (done.returncode, done.stdout[:6], done.stderr) == (0, "ottla,", "")


def test_the_console_script_begins_there() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == {"ottla": "ottla.cli.entry:main"}
