"""All wheels, on one Linux machine: the pure one, and one with the compiled kernel for each platform. ``make wheels`` runs it.

``python scripts/cross_wheels.py DIRECTORY`` compiles with zig (the ziglang package), which has the C libraries of the other platforms,
builds the wheels into DIRECTORY, and checks them: the platform that auditwheel finds in each, the limited API by abi3audit, and a record
that goes round in each CPython from 3.11 on that this machine has. A check that fails ends it with 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from compile_kernel import MODULE, RECORDS, compile_into

ROOT = RECORDS.parent.parent.parent
NEWEST = 20
ZIG = [sys.executable, "-m", "ziglang", "cc"]
FLAGS = ["-fno-sanitize=undefined", "-s"]  # zig would have the first trap where nothing is wrong with the memory
ROUND = """
import platform
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import Record, iterate_records
from ottla.records.kernel import FORM

builder = BatchBuilder()
builder.append(b"key", b"value", [("name", None)], timestamp_ms=7)
assert list(iterate_records(builder.build(4))) == [Record(0, 7, b"key", b"value", (("name", None),))]
assert FORM == "compiled", FORM
print(platform.python_version())
"""


@dataclass(frozen=True)
class Target:
    """A platform: as zig names it, as ``sys.platform`` does, and as the wheel's tag does."""

    zig: str
    platform: str
    tag: str


TARGETS = (
    Target("x86_64-linux-gnu.2.17", "linux", "manylinux_2_17_x86_64"),
    Target("aarch64-linux-gnu.2.17", "linux", "manylinux_2_17_aarch64"),
    Target("x86_64-linux-musl", "linux", "musllinux_1_2_x86_64"),
    Target("aarch64-linux-musl", "linux", "musllinux_1_2_aarch64"),
    Target("aarch64-macos.11.0", "darwin", "macosx_11_0_arm64"),
)


def main() -> None:
    directory = Path(sys.argv[1]).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    pure = build(directory, {"OTTLA_PURE": "1"})
    say(f"{pure.name}: pure")
    for target in TARGETS:
        began = time.monotonic()
        wheel = compiled_wheel(directory, target)
        say(f"{wheel.name}: {time.monotonic() - began:.1f} s, {', '.join(checked(wheel, target))}")
    native = next(directory.glob(f"*manylinux*_{os.uname().machine}.whl"), None)
    if native is None:
        sys.exit(f"There is no wheel for this machine, {os.uname().machine}, to be tried.")
    tried = [version for python in pythons() if (version := round_trip(native, python))]
    if not tried:
        sys.exit("There is no CPython from 3.11 on to try the wheel with.")
    say(f"a record went round with the compiled kernel in CPython {', '.join(tried)}")


def compiled_wheel(directory: Path, target: Target) -> Path:
    with tempfile.TemporaryDirectory(prefix="ottla-wheel-") as made:
        module = Path(made, MODULE)
        compile_into(module, [*ZIG, "-target", target.zig], target.platform, FLAGS)
        return build(directory, {"OTTLA_KERNEL_FILE": str(module), "OTTLA_WHEEL_PLATFORM": target.tag})


def build(directory: Path, environment: Mapping[str, str]) -> Path:
    """The wheel that this environment makes, in the directory."""
    with tempfile.TemporaryDirectory(prefix="ottla-wheel-", dir=directory) as made:
        options = ["--disable-pip-version-check", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", made]
        run([sys.executable, "-m", "pip", "wheel", *options, str(ROOT)], environment)
        [wheel] = Path(made).iterdir()
        return Path(shutil.move(wheel, directory / wheel.name))


def checked(wheel: Path, target: Target) -> Iterator[str]:
    """What the checks have found; SystemExit where one finds something wrong."""
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
    if modules != [f"ottla/records/{MODULE}"] or not wheel.stem.endswith(f"cp311-abi3-{target.tag}"):
        sys.exit(f"{wheel.name} has {modules}")
    yield f"{wheel.stat().st_size >> 10} KiB"
    said = run([sys.executable, "-m", "abi3audit", "--strict", "--summary", str(wheel)])
    if not re.search(r"\b0 ABI version mismatches and 0 ABI violations", said):
        sys.exit(f"abi3audit: {said}")
    yield "no violation of the limited API"
    if target.tag.startswith("manylinux"):
        said = run([sys.executable, "-m", "auditwheel", "show", str(wheel)])
        if f'"{target.tag}"' not in said:
            sys.exit(f"auditwheel: {said}")
        yield "auditwheel agrees"
    elif (
        target.platform == "linux"
    ):  # auditwheel takes the libc.so of this machine for the one that is named, which musl's loader itself is
        needed = needed_by(wheel)
        if needed - {"libc.so"}:
            sys.exit(f"{wheel.name} needs {needed}")
        yield f"needs {', '.join(needed) or 'no library'}"


def needed_by(wheel: Path) -> set[str]:
    """The shared libraries that the module of a wheel names."""
    from elftools.elf.elffile import ELFFile

    with zipfile.ZipFile(wheel) as archive, archive.open(f"ottla/records/{MODULE}") as file:
        section = ELFFile(file).get_section_by_name(".dynamic")
        return {tag.needed for tag in section.iter_tags("DT_NEEDED")}


def pythons() -> Iterator[str]:
    """Each CPython from 3.11 on, once a version."""
    for minor in range(11, NEWEST):
        candidates = [shutil.which(f"python3.{minor}"), *map(str, sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python3")))]
        for candidate in filter(None, candidates):
            question = "import sys, venv; print(sys.implementation.name, sys.version_info[1])"
            asked = subprocess.run([candidate, "-c", question], capture_output=True, text=True, check=False)
            if asked.stdout.split() == ["cpython", str(minor)]:
                yield candidate
                break


def round_trip(wheel: Path, python: str) -> str:
    """The version of the Python; SystemExit where the wheel does not work in an environment that has nothing else."""
    with tempfile.TemporaryDirectory(prefix="ottla-round-") as directory:
        run([python, "-m", "venv", "--without-pip", directory])
        run([sys.executable, "-m", "pip", "--python", directory, "install", "--disable-pip-version-check", "--quiet", str(wheel)])
        return run([f"{directory}/bin/python", "-P", "-c", ROUND]).strip()


def run(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """What the command says; SystemExit where it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTTLA_", "PYTHONPATH"))}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=kept | dict(environment or {}))
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
