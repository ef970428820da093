"""Planted bugs: each patch of ``tests/mutants`` is applied to a copy of the source, and a test must find it.

The text of a patch says which, as in "Found by: tests/storage/test_log.py -k places". They pass in a copy without a planted bug: one that
fails there for want of a file would find every bug.
``python -m tests.simulation.mutants [NAME...]`` reports each; a patch that no longer applies, or that nothing finds, fails. ``--table``
writes them as the table of docs/planted-bugs.md.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MUTANTS = ROOT / "tests" / "mutants"
FILE_SEEDS = 60
"""Of the explorations among the tests that a patch names."""
SECONDS_MAX = 600
SAID_MAX = 120


def names() -> list[str]:
    return sorted(path.stem for path in MUTANTS.glob("*.patch"))


def hunt(name: str) -> str:
    """What finds the bug, and how; AssertionError when nothing does, or the patch does not apply."""
    patch, tests = (MUTANTS / f"{name}.patch").read_bytes(), tests_of(name)
    check_sound(tests)
    with tempfile.TemporaryDirectory(prefix="ottla-mutant-") as directory:
        copy_into(directory)
        applied = subprocess.run(["patch", "-p1", "--forward"], input=patch, cwd=directory, capture_output=True, check=False)
        assert applied.returncode == 0, f"{name} no longer applies: {applied.stdout.decode()}"
        found = run_tests(directory, tests)
    assert found.returncode == 1, f"nothing finds {name}: {found.stdout}{found.stderr}"
    lines = found.stdout.splitlines()
    errors = [line[1:].strip() for line in lines if line.startswith("E  ")]
    said = next((error for error in errors if "seed" in error), errors[0] if errors else "")
    return next((f"{line.removesuffix(' - ' + said)} - {said}" for line in lines if line.startswith("FAILED")), found.stdout.strip())


def tests_of(name: str) -> str:
    """Those that look for the bug."""
    named = re.search(r"^Found by: (.+)$", (MUTANTS / f"{name}.patch").read_text(), re.MULTILINE)
    assert named is not None, f"{name} does not say which tests find it"
    return named[1]


@functools.cache
def check_sound(tests: str) -> None:
    """They find nothing where nothing is planted."""
    with tempfile.TemporaryDirectory(prefix="ottla-sound-") as directory:
        copy_into(directory)
        done = run_tests(directory, tests)
    assert done.returncode == 0, f"{tests} fail without a planted bug: {done.stdout}{done.stderr}"


def copy_into(directory: str) -> None:
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, Path(directory, name), ignore=shutil.ignore_patterns("__pycache__", "interop"))
    for file in (*ROOT.glob("*.md"), ROOT / "pyproject.toml"):
        shutil.copy(file, directory)


def run_tests(directory: str, tests: str) -> subprocess.CompletedProcess[str]:
    return run(directory, "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests.split())


def run(directory: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The module as a program, over the copy in the directory."""
    environment = os.environ | {
        "PYTHONPATH": f"{directory}/src:{directory}",
        "PYTHONHASHSEED": "0",
        "OTTLA_SEEDS": str(FILE_SEEDS),
        "OTTLA_SHRINK_RUNS": "0",
    }
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def row(name: str, found: str, seconds: float) -> str:
    """Of the table: what is planted, the file of the test that has found it, what that said, and how long it took."""
    test, _, said = found.removeprefix("FAILED ").partition(" - ")
    planted = " ".join((MUTANTS / f"{name}.patch").read_text().partition("Found by:")[0].split())
    cells = (name, planted, f"`{test.partition('::')[0]}`", said.removeprefix("AssertionError: ")[:SAID_MAX])
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} | {seconds:.0f} |\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Plants bugs in copies of the source, and says which test finds each.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="a file of tests/mutants, without .patch; all of them by default")
    parser.add_argument("--table", action="store_true", help="print rows for docs/planted-bugs.md")
    given, known = parser.parse_args(), names()
    for name in given.names:
        if name not in known:
            parser.error(f"there is no {name}; near it are: {', '.join(difflib.get_close_matches(name, known)) or 'none'}")
    failed, is_table = 0, given.table
    for name in given.names or known:
        try:
            check_sound(tests_of(name))
            began = time.monotonic()
            found = hunt(name)
            sys.stdout.write(row(name, found, time.monotonic() - began) if is_table else f"{name}: found by {found[:160]}\n")
            sys.stdout.flush()
        except (AssertionError, subprocess.TimeoutExpired) as error:
            sys.stdout.write(f"{name}: MISSED: {error}\n")
            failed += 1
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
