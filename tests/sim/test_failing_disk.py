"""A simulated disk that fails within one directory, or is replaced by another one."""

from __future__ import annotations

import errno

import pytest

from ottla.sim.disk_faults import ANY, Fault
from ottla.sim.instant_disk import InstantDisk, run


def two_directories() -> InstantDisk:
    disk = InstantDisk(["/data", "/data/t-0", "/data-2"])
    for path in ("/data/a", "/data/t-0/b", "/data-2/c"):
        disk.put(path, b"x")
    return disk


def test_a_disk_that_fails_does_nothing_any_more_and_the_other_one_works() -> None:
    disk = two_directories()
    file = run(disk.open("/data/t-0/b"))
    disk.faults.append(Fault(ANY, "", errno.EIO, lasts=True, within="/data"))
    for act in (
        lambda: disk.open("/data/a"),
        lambda: disk.read_file("/data/t-0/b"),
        lambda: disk.list_dir("/data"),
        lambda: file.pread(0, 1),
        lambda: file.append([b"y"]),
        lambda: file.sync(),
        lambda: disk.remove("/data/a"),
    ):
        with pytest.raises(OSError, match="injected"):
            run(act())
    with pytest.raises(OSError, match="exists"):
        run(disk.exists("/data/a"))
    assert run(disk.read_file("/data-2/c")) == b"x"


def test_a_disk_in_the_place_of_another_one_is_empty_and_stays_so_after_a_power_cut() -> None:
    disk = two_directories()
    disk.replace("/data")
    disk.cut_power()
    disk.restart()
    assert run(disk.list_dir("/data")) == []
    assert run(disk.read_file("/data-2/c")) == b"x"
