"""The wheel for aarch64, run: in Debian's CPython of that machine, unpacked into a directory, below qemu's emulation.

Nothing of this machine is changed: apt has a state of its own, for the other architecture.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.interop.tools import HERE, program, run

ROOT = HERE.parent.parent
PACKAGES = (
    "libc6",
    "libexpat1",
    "libgcc-s1",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libstdc++6",
    "python3.11-minimal",
    "zlib1g",
)
PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
APT = """APT::Architecture "arm64"; APT::Architectures {{ "arm64"; }}; APT::Sandbox::User "root";
Dir::State "{0}/state"; Dir::State::status "{0}/state/status"; Dir::Cache "{0}/cache";
"""
COMPARED = """
import platform, random
from ottla.errors import DecodeError
from ottla.records import compiled_kernel, plain_kernel
from ottla.records.builder import BatchBuilder
from ottla.records.iteration import Record, iterate_records
from ottla.records.kernel import FORM

builder = BatchBuilder()
builder.append(b"key", b"value", [("name", None)], timestamp_ms=7)
assert list(iterate_records(builder.build(4))) == [Record(0, 7, b"key", b"value", (("name", None),))]

def decoded(kernel, data):
    columns = {name: [] for name in ("offsets", "times", "keys", "values", "headers")}
    try:
        end = kernel.decode_columns(data, 0, 3, base_offset=5, base_timestamp=9, last_delta=3, delta_min=0, delta_max=3, **columns)
    except DecodeError as error:
        end = str(error)
    return end, columns, kernel.check_records(data, 0, 3, 0)

chance, errors = random.Random("aarch64"), 0
for _ in range(2000):
    rows = [(chance.choice([0, -1, 2**40, -(2**63)]), delta, b"k" * chance.choice([0, 70]), None, (("h", b"x"),)) for delta in range(3)]
    data = bytearray(b"".join(plain_kernel.encode_record(*row) for row in rows))
    assert data == b"".join(compiled_kernel.encode_record(*row) for row in rows)
    for _ in range(chance.randrange(3)):
        data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
    found = decoded(compiled_kernel, bytes(data))
    assert found == decoded(plain_kernel, bytes(data)), data.hex()
    errors += type(found[0]) is str
assert 100 < errors < 1900, errors
print(FORM, platform.machine())
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A CPython of aarch64, as a command."""
    emulator = program("qemu-aarch64", way_to_get_it="apt install qemu-user")
    directory = tmp_path_factory.mktemp("arm64")
    for name in ("state/lists/partial", "cache/archives/partial", "debs", "root"):
        (directory / name).mkdir(parents=True)
    (directory / "state" / "status").touch()
    (directory / "apt.conf").write_text(APT.format(directory))
    apt = ["env", f"APT_CONFIG={directory}/apt.conf", program("apt-get", way_to_get_it="this test needs Debian's packages"), "-q"]
    run(*apt, "update", cwd=directory / "debs", seconds_max=300)
    run(*apt, "download", *PACKAGES, cwd=directory / "debs", seconds_max=300)
    for package in sorted((directory / "debs").glob("*.deb")):
        run("dpkg-deb", "-x", package, directory / "root")
    return [emulator, "-L", str(directory / "root"), str(directory / "root/usr/bin/python3.11"), "-P"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for aarch64 as ``make wheels`` makes it, installed with what it depends on."""
    directory = tmp_path_factory.mktemp("wheel")
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'scripts'); from cross_wheels import TARGETS, compiled_wheel;"
        "print(compiled_wheel(Path(sys.argv[1]), next(target for target in TARGETS if 'manylinux_2_17_aarch64' == target.tag)))"
    )
    wheel = run(sys.executable, "-c", script, directory, cwd=ROOT, seconds_max=300).split()[-1]
    options = ["--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--python-version", "3.11", "--implementation", "cp"]
    options += [word for platform in PLATFORMS for word in ("--platform", platform)]
    options += [word for abi in ("cp311", "abi3", "none") for word in ("--abi", abi)]
    run(sys.executable, "-m", "pip", "install", "--target", directory / "site", *options, wheel, seconds_max=300)
    return directory / "site"


def test_a_record_goes_round_and_both_forms_are_alike(python: list[str], site: Path, tmp_path: Path) -> None:
    (tmp_path / "compared.py").write_text(COMPARED)
    kept = {name: value for name, value in os.environ.items() if name != "OTTLA_KERNEL"}
    said = run("env", "-i", *(f"{name}={kept[name]}" for name in ("PATH", "HOME") if name in kept), f"PYTHONPATH={site}", *python,
               tmp_path / "compared.py", seconds_max=300)  # fmt: skip
    assert said.split() == ["compiled", "aarch64"]
