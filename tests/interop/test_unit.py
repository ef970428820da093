"""The unit that ``ottla generate systemd`` prints is one that systemd reads without a complaint."""

from __future__ import annotations

import subprocess
from pathlib import Path

from click.testing import CliRunner
from tests.interop.tools import program

from ottla.cli.main import cli

SECONDS_MAX = 60


def complaints(unit: Path) -> list[str]:
    command = [program("systemd-analyze", way_to_get_it="apt install systemd"), "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    return [line for line in done.stderr.splitlines() if unit.name in line]


def test_systemd_reads_the_unit_without_a_complaint(tmp_path: Path) -> None:
    unit = tmp_path / "ottla.service"
    text = CliRunner().invoke(cli, ["generate", "systemd", "--user", "root"]).stdout
    unit.write_text(text)
    assert complaints(unit) == []
    unit.write_text(text.replace("UMask=0077", "UMask=often"))
    assert complaints(unit), "it would say so"
