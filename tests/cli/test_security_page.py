"""The commands of docs/security.md, one after the other, in an empty directory. Ports are others than those of the page."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.foreign_clients.broker_process import lasting_ports
from tests.waiting import eventually

from ottla.client.options import ClusterSettings
from ottla.client.settings import divided

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
ROLLING = PAGE.partition("## From plain text to SASL_SSL")[2].partition("\n## ")[0]  # tests/interop/test_rolling_page.py
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE.replace(ROLLING, ""), re.MULTILINE | re.DOTALL)
SECONDS_MAX = 120
PORTS = [f"1{node}09{last}" for node in (1, 2, 3) for last in (2, 3, 4)]


@pytest.mark.slow
def test_a_secured_cluster_is_made_from_an_empty_directory(tmp_path: Path) -> None:
    assert shutil.which("openssl"), "apt install openssl"
    places = dict(zip(PORTS, map(str, lasting_ports(len(PORTS))), strict=True))
    program = tmp_path / "bin" / "ottla"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla "$@"\n')
    program.chmod(0o755)
    work = tmp_path / "work"
    work.mkdir()
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}

    def moved(text: str) -> str:
        text = re.sub(r"1\$\{node\}(09\d)", r"$(eval echo \\$port_1${node}\1)", text)
        return re.sub(r"\b1[123]09[234]\b", lambda port: places[port[0]], text)

    named = "".join(f"port_{port}={other}\n" for port, other in places.items())

    def run(block: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", named + moved(block)],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    started: list[subprocess.Popen[bytes]] = []
    printed: list[str] = []
    try:
        for block in BLOCKS:
            if "broker start" not in block:
                printed.append(run(block))
                continue
            for file in re.findall(r"^ottla broker start (\S+) &$", block, re.MULTILINE):
                ready = work / f"{file}.ready"
                with (work / f"{file}.log").open("wb") as log:
                    command = [str(program), "broker", "start", file, "--ready-file", str(ready)]
                    started.append(subprocess.Popen(command, cwd=work, env=environment, stdout=log, stderr=log))
            eventually(lambda: [path.exists() for path in work.glob("*.log")], lambda logs: len(logs) == 3)
            eventually(lambda: len(list(work.glob("*.ready"))), lambda count: count == 3)
        assert len(started) == 3
        assert re.findall(r"^(\w+) +SCRAM-SHA-(\d+)", printed[-3], re.MULTILINE) == [("admin", "512"), ("alice", "256"), ("alice", "512")]
        assert printed[-2].endswith("hello\n")
        assert "tls_stores_loaded" in (work / "node-1.properties.log").read_text()
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(SECONDS_MAX)
    written = "".join(path.read_text() for path in work.glob("*.log"))
    assert not [secret for secret in ("node-secret", "admin-secret", "alice-secret") if secret in written]


def test_the_commands_for_certificates_make_the_files_that_the_nodes_name(tmp_path: Path) -> None:
    [made] = re.findall(r"^```\n(ottla certs .*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [replaced] = re.findall(r"`(ottla certs issue [^`]*--replace)`", PAGE)
    for command in [*made.splitlines(), replaced]:
        program, *arguments = shlex.split(command)
        done = subprocess.run([sys.executable, "-m", program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    named = {
        place.replace("$node", node) for node in "123" for place in re.findall(r"^ssl\.\w+\.location=(.*)$", "".join(BLOCKS), re.MULTILINE)
    }
    assert named == {"authority.pem", "node-1.pem", "node-2.pem", "node-3.pem"}
    assert named <= {path.name for path in tmp_path.iterdir()}


def test_the_client_of_the_page_has_settings_that_there_are() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    named = [re.findall(r"^    (\w+)=", block, re.MULTILINE) for block in blocks]
    assert [len(names) for names in named] == [5, 3]
    for names in named:
        divided((ClusterSettings,), {name: str if name == "sasl_oauth_token" else "x" for name in names if name != "security_protocol"})
