"""Compiles the record kernel: ``python scripts/compile_kernel.py FOLDER`` writes its extension modules into FOLDER.

Needs mypy (which brings mypyc), setuptools, a C compiler and Python's headers. Where one of the last two is missing it says so and
ends with 1; ``--check`` in place of the directory does only that.
The module that comes out is ``ottla.records.compiled_kernel``: ``plain_kernel.py`` under another name, so that both can be there.
It carries the SHA-256 of its source, by which a stale one is found.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "ottla"
PLAIN, COMPILED = Path("records/plain_kernel.py"), Path("records/compiled_kernel.py")
# What the kernel imports is type-checked with it, and not compiled.
IMPORTED = ["__init__.py", "errors.py", "types.py", "records/__init__.py"]


def main() -> None:
    missing = missing_tools()
    if missing:
        sys.exit(f"The record kernel was not compiled for want of {' and '.join(missing)} (Debian: apt install gcc python3-dev).")
    if sys.argv[1] == "--check":
        return
    target = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="ottla-kernel-") as folder:
        os.chdir(folder)
        for name in IMPORTED:
            Path("ottla", name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / name, Path("ottla", name))
        source = (SOURCE / PLAIN).read_text(encoding="utf-8")
        digest = hashlib.sha256(source.encode()).hexdigest()
        Path("ottla", COMPILED).write_text(f'{source}\n\nSOURCE_SHA256: Final = "{digest}"\n', encoding="utf-8")
        target.mkdir(parents=True, exist_ok=True)
        for built in map(Path, _build(Path("ottla", COMPILED))):
            # A process that has the old file mapped would crash if it were written over.
            shutil.copy(built, target / f"{built.name}.new")
            os.replace(target / f"{built.name}.new", target / built.name)


def missing_tools() -> list[str]:
    """The tools outside of Python's packages that are not there."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    missing = [] if shutil.which(compiler) else [f"the C compiler {compiler}"]
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        missing.append("Python's headers")
    return missing


def _build(module: Path) -> list[str]:
    from mypyc.build import mypycify
    from setuptools import Distribution

    extensions = mypycify(["--strict", str(module)], opt_level="3", debug_level="0")
    command = Distribution({"name": "ottla", "ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = "lib", "temp"
    command.ensure_finalized()
    command.run()
    return [str(path) for path in command.get_outputs()]


if __name__ == "__main__":
    main()
