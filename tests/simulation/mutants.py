"""Planted bugs: each patch of ``tests/mutants`` is applied to a copy of the source, and the exploration must find it.

A patch whose text has a line "Found by: FILE..." is looked for by these tests in place of the exploration. They pass in a copy without
a planted bug: one that fails there for want of a file would find every bug.
``python -m tests.simulation.mutants [NAME...]`` reports each; a patch that no longer applies, or that nothing finds, fails.
"""

from __future__ import annotations

import functools
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
FILE_SEEDS = 60
"""Of the explorations among the tests that a patch names."""
SECONDS_MAX = 600


def names() -> list[str]:
    return sorted(path.stem for path in MUTANTS.glob("*.patch"))


def hunt(name: str) -> str:
    """What finds the bug, and how; AssertionError when nothing does, or the patch does not apply."""
    patch = (MUTANTS / f"{name}.patch").read_bytes()
    named = re.search(r"^Found by: (.+)$", patch.decode(), re.MULTILINE)
    if named is not None:
        check_sound(named[1])
    with tempfile.TemporaryDirectory(prefix="ottla-mutant-") as folder:
        copy_into(folder)
        applied = subprocess.run(["patch", "-p1", "--forward"], input=patch, cwd=folder, capture_output=True, check=False)
        assert applied.returncode == 0, f"{name} no longer applies: {applied.stdout.decode()}"
        found = run(folder, "tests.simulation.hunt", str(SEEDS)) if named is None else run_tests(folder, named[1])
    assert found.returncode == 1, f"nothing finds {name}: {found.stdout}{found.stderr}"
    return next((line for line in found.stdout.splitlines() if line.startswith("FAILED")), found.stdout.strip())


@functools.cache
def check_sound(tests: str) -> None:
    """They find nothing where nothing is planted."""
    with tempfile.TemporaryDirectory(prefix="ottla-sound-") as folder:
        copy_into(folder)
        done = run_tests(folder, tests)
    assert done.returncode == 0, f"{tests} fail without a planted bug: {done.stdout}{done.stderr}"


def copy_into(folder: str) -> None:
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, Path(folder, name), ignore=shutil.ignore_patterns("__pycache__", "interop"))
    for file in (*ROOT.glob("*.md"), ROOT / "pyproject.toml"):
        shutil.copy(file, folder)


def run_tests(folder: str, tests: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests.split())


def run(folder: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The module as a program, over the copy in the directory."""
    environment = os.environ | {"PYTHONPATH": f"{folder}/src:{folder}", "PYTHONHASHSEED": "0", "OTTLA_SEEDS": str(FILE_SEEDS)}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


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
