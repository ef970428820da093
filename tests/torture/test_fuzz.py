"""Ten million inputs, guided by coverage, into everything that reads bytes from outside.

OTTLA_FUZZ_INPUTS is how many in all. Each target runs in a process of its own with 256 MiB; its corpus begins with what real
clients sent.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.torture.fuzz.targets import TARGETS

INPUTS = int(os.environ.get("OTTLA_FUZZ_INPUTS", "10000000"))
ALL = sum(count for _, count in TARGETS.values())
GOLDEN = Path(__file__).parent.parent / "wire" / "golden"
SECONDS_MAX = 3600
# A process inherits the peak of who starts it as its own ru_maxrss, by which libFuzzer judges; pytest's may be large by now.
SMALL_PARENT = (sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))")


@pytest.mark.parametrize("name", list(TARGETS))
def test_nothing_but_its_own_errors_leaves_a_reader_of_bytes(name: str, tmp_path: Path) -> None:
    assert importlib.util.find_spec("atheris"), "atheris is missing: .venv/bin/pip install atheris (CPython 3.11 to 3.13 on Linux)"
    lines = [line for path in GOLDEN.glob("*.txt") for line in path.read_text().splitlines() if not line.startswith("#")]
    for number, line in enumerate(lines):
        for part, text in enumerate(line.split()[2:]):
            (tmp_path / f"{number}-{part}").write_bytes(bytes.fromhex(text)[:4096])
    runs = TARGETS[name][1] * INPUTS // ALL
    command = [*SMALL_PARENT, sys.executable, "-m", "tests.torture.fuzz", name, str(runs), str(tmp_path)]
    # Coverage guides the inputs, and there is none of compiled code.
    environment = os.environ | {"OTTLA_KERNEL": "plain"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    over = re.search(r"Done (\d+) in (\d+) second", done.stderr)
    assert over, done.stderr[-3000:]
    assert int(over[1]) >= runs
    print(f"{name}: {over[1]} inputs in {over[2]} s")
