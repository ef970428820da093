"""Both wheels, each in a virtual environment of its own: a record goes round with the form that the wheel promises."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from tests.kernel.conftest import ROOT

ROUND = """
import sys
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import Record, iterate_records
from ottla.records.kernel import FORM
import ottla

builder = BatchBuilder()
builder.append(b"key", b"value", [("name", None)], timestamp_ms=7)
builder.extend([b"k"] * 3, [b"v" * 10_000] * 3, start=0, end=3, timestamp_ms=8, size_max=1 << 20)
[first, *others] = iterate_records(builder.build(4))
assert first == Record(0, 7, b"key", b"value", (("name", None),)), first
assert [(record.offset, record.timestamp_ms, len(record.value)) for record in others] == [(at, 8, 10_000) for at in (1, 2, 3)]
assert ottla.__file__.startswith(sys.prefix), ottla.__file__
print(FORM)
"""


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    arguments = [str(part) for part in command]
    kept = {name: value for name, value in os.environ.items() if name not in ("OTTLA_KERNEL", "PYTHONPATH")}
    return subprocess.run(arguments, capture_output=True, text=True, timeout=150, check=False, cwd=ROOT, env=kept | environment)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels that ``make wheels`` builds, by the form that each promises."""
    directory = tmp_path_factory.mktemp("dist")
    done = run("scripts/wheels", OUT=str(directory))
    assert done.returncode == 0, done.stdout + done.stderr
    [pure] = directory.glob("*-py3-none-any.whl")
    [compiled] = set(directory.iterdir()) - {pure}
    return {"plain": pure, "compiled": compiled}


@pytest.fixture(scope="module")
def pythons(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A fresh environment with each wheel. What ottla needs comes from this one, in which ottla is not a package of its own."""
    found = {}
    for form, wheel in wheels.items():
        directory = tmp_path_factory.mktemp(form)
        venv.create(directory, with_pip=False)
        packages = directory / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        (packages / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
        done = run(sys.executable, "-m", "pip", "--python", directory, "install", "--quiet", "--no-deps", "--no-index", wheel)
        assert done.returncode == 0, done.stdout + done.stderr
        found[form] = directory / "bin" / "python"
    return found


@pytest.mark.parametrize("form", ["plain", "compiled"])
def test_a_wheel_has_the_form_that_it_promises(pythons: dict[str, Path], form: str) -> None:
    done = run(pythons[form], "-c", ROUND)
    assert (done.stdout.strip(), done.stderr) == (form, "")


def test_the_compiled_wheel_can_be_set_to_be_plain(pythons: dict[str, Path]) -> None:
    assert run(pythons["compiled"], "-c", ROUND, OTTLA_KERNEL="plain").stdout.strip() == "plain"
    assert "installation has the plain kernel only" in run(pythons["plain"], "-c", ROUND, OTTLA_KERNEL="compiled").stderr


def test_the_wheels_differ_in_the_compiled_kernel_alone(wheels: dict[str, Path]) -> None:
    names = {form: set(zipfile.ZipFile(wheel).namelist()) for form, wheel in wheels.items()}
    more = names["compiled"] - names["plain"]
    assert not names["plain"] - names["compiled"]
    assert more
    assert all(name.startswith("ottla/records/compiled_kernel") and ".py" not in name for name in more)


def test_without_a_compiler_there_is_the_pure_wheel_and_a_word(tmp_path: Path) -> None:
    done = run("scripts/wheels", OUT=str(tmp_path), CC="no-such-compiler")
    assert done.returncode == 0, done.stderr
    assert "the pure wheel only" in done.stderr
    assert "no-such-compiler" in done.stderr
    assert [path.name.rpartition("-")[2] for path in tmp_path.iterdir()] == ["any.whl"]
