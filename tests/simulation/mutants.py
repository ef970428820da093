"""Planted bugs: each patch of ``tests/mutants`` is applied to a copy of the source, and the exploration must find it.

A patch whose text has a line "Found by: FILE..." is looked for by these tests in place of the exploration.
``python -m tests.simulation.mutants [NAME...]`` reports each; a patch that no longer applies, or that nothing finds, fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MUTANTS = ROOT / "tests" / "mutants"
SEEDS = 400
SECONDS_MAX = 300


def names() -> list[str]:
    return sorted(path.stem for path in MUTANTS.glob("*.patch"))


def hunt(name: str) -> str:
    """What finds the bug, and how; AssertionError when nothing does, or the patch does not apply."""
    with tempfile.TemporaryDirectory(prefix="ottla-mutant-") as folder:
        shutil.copytree(ROOT / "src", Path(folder, "src"), ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "tests", Path(folder, "tests"), ignore=shutil.ignore_patterns("__pycache__", "interop"))
        patch = (MUTANTS / f"{name}.patch").read_bytes()
        applied = subprocess.run(["patch", "-p1", "--forward"], input=patch, cwd=folder, capture_output=True, check=False)
        assert applied.returncode == 0, f"{name} no longer applies: {applied.stdout.decode()}"
        shutil.copy(ROOT / "pyproject.toml", folder)
        environment = os.environ | {"PYTHONPATH": f"{folder}/src:{folder}", "PYTHONHASHSEED": "0"}
        found_by = re.search(r"^Found by: (.+)$", patch.decode(), re.MULTILINE)
        command = [sys.executable, "-m", "tests.simulation.hunt", str(SEEDS)]
        if found_by is not None:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *found_by[1].split()]
        found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert found.returncode == 1, f"nothing finds {name}: {found.stdout}{found.stderr}"
    return next((line for line in found.stdout.splitlines() if line.startswith("FAILED")), found.stdout.strip())


def main() -> int:
    failed = 0
    for name in sys.argv[1:] or names():
        try:
            sys.stdout.write(f"{name}: found by {hunt(name)[:160]}\n")
        except (AssertionError, subprocess.TimeoutExpired) as error:
            sys.stdout.write(f"{name}: MISSED: {error}\n")
            failed += 1
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
