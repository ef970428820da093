"""``ottla cluster start --console`` and ``ottla console``, as processes: they serve, kill on order, and end with what they are beside."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.waiting import eventually

SECONDS_MAX = 60


class Browser:
    """What a browser does with the console's address: it keeps the cookie."""

    def __init__(self, address: str) -> None:
        self._root = address.partition("?")[0]
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with self._opener.open(address, timeout=SECONDS_MAX) as page:
            assert page.status == 200
            assert "token" not in page.url

    def values(self, path: str = "", method: str = "GET") -> dict[str, object]:
        request = urllib.request.Request(self._root + path, method=method, headers={"accept": "application/json"})
        with self._opener.open(request, timeout=SECONDS_MAX) as answer:
            found: dict[str, object] = json.loads(answer.read())
            return found


def processes(browser: Browser) -> dict[int, str]:
    nodes = browser.values()["nodes"]
    assert isinstance(nodes, list)
    return {node["node_id"]: node["process"] for node in nodes}


@pytest.mark.slow
def test_a_node_is_killed_and_started_again_and_the_console_ends_with_its_cluster(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-u",
        "-m",
        "ottla",
        "cluster",
        "start",
        "--console",
        "--port",
        "0",
        "-n",
        "2",
        "--data",
        str(tmp_path / "c"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        said = ""
        while "ottla console: " not in said:
            line = process.stdout.readline()
            assert line, said
            said += line
        address = said.rpartition("ottla console: ")[2].strip()
        browser = Browser(address)
        eventually(lambda: processes(browser), lambda found: found == {1: "serving", 2: "serving"})
        assert browser.values("nodes/2/kill", "POST") == {"error": None}
        eventually(lambda: processes(browser), lambda found: found[2] == "killed")
        assert browser.values("nodes/2/restart", "POST") == {"error": None}
        eventually(lambda: processes(browser), lambda found: found[2] == "serving")
        with pytest.raises(urllib.error.HTTPError, match="409"):
            browser.values("nodes/9/kill", "POST")
        process.send_signal(signal.SIGINT)
        process.stdout.read()  # ends when the console has ended, too
        assert process.wait() == 0
    assert re.search(r"^http://127\.0\.0\.1:\d+/\?token=\S{32}$", address)


def test_a_console_in_the_background_of_a_detached_cluster_is_another_command() -> None:
    command = [sys.executable, "-m", "ottla", "cluster", "start", "--console", "--detach"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 2
    assert "ottla console --data DIR" in done.stderr


def test_without_its_libraries_the_console_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ModuleNotFoundError('starlette')")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-m", "ottla", "console", "-B", "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment)
    assert done.returncode == 1
    assert "pip install 'ottla[console]'" in done.stderr
