"""Compiles the record kernel: ``python scripts/compile_kernel.py DIRECTORY`` writes its extension module into DIRECTORY.

Needs a C compiler (CC, or the one that Python was built with) and Python's headers, and nothing else. Where one of them is missing it
says so and ends with 1; ``--check`` in place of the directory does only that. CFLAGS are passed on.
The module that comes out is ``ottla.records.compiled_kernel``, for every CPython from 3.11 on (its limited API). It carries the SHA-256
of ``plain_kernel.py``, its reference, and of its own source, by which a stale one is found.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

RECORDS = Path(__file__).parent.parent / "src" / "ottla" / "records"
SOURCE, HEADERS = RECORDS / "c" / "compiled_kernel.c", ["walk.h", "reading.h", "checking.h", "writing.h"]
STEM, MODULE = "compiled_kernel", "compiled_kernel.abi3.so"
FLAGS = ["-O3", "-std=c11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]


def main() -> None:
    missing = missing_tools()
    if missing:
        sys.exit(f"The record kernel was not compiled for want of {' and '.join(missing)} (Debian: apt install gcc python3-dev).")
    if sys.argv[1] == "--check":
        return
    target = Path(sys.argv[1]).absolute()
    target.mkdir(parents=True, exist_ok=True)
    try:
        compile_into(target / MODULE, compiler(), sys.platform)
    except subprocess.CalledProcessError as error:
        sys.exit(f"The record kernel was not compiled: {shlex.join(error.cmd[:1])} ended with {error.returncode}.")
    for stale in target.glob(f"{STEM}*.so"):  # of other Pythons, which would be found first
        if stale.name != MODULE:
            stale.unlink()


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")


def missing_tools() -> list[str]:
    """What is needed and is not there."""
    missing = [] if shutil.which(compiler()[0]) else [f"the C compiler {compiler()[0]}"]
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("Python's headers")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        missing.append("a Python with a limited API, which free-threaded ones lack")
    return missing


def compile_into(path: Path, command: Sequence[str], platform: str, flags: Sequence[str] = ()) -> None:
    """The module for that platform (as ``sys.platform`` names it) is at the path. CalledProcessError when the compiler fails."""
    names = {"SOURCE_SHA256": [RECORDS / "plain_kernel.py"], "C_SHA256": [SOURCE, *(SOURCE.with_name(name) for name in HEADERS)]}
    defined = [f'-D{name}="{hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()}"' for name, files in names.items()]
    linked = ["-shared", *(["-undefined", "dynamic_lookup"] if platform == "darwin" else [])]
    with tempfile.TemporaryDirectory(prefix="ottla-kernel-", dir=path.parent) as directory:
        made = Path(directory, path.name)
        given = shlex.split(os.environ.get("CFLAGS", ""))
        options = [*FLAGS, *flags, *given, *defined, f"-I{sysconfig.get_path('include')}", *linked]
        subprocess.run([*command, *options, str(SOURCE), "-o", str(made)], check=True)
        os.replace(made, path)  # a process that has the old file mapped would crash if it were written over


if __name__ == "__main__":
    main()
