"""What a start makes of a swap that a crash cut short."""

from __future__ import annotations

from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.compaction.swap import settle
from ottla.storage.segment.files import LOG_SUFFIX, file_stem

DIRECTORY = "/data/t-0"


def test_a_swapped_segment_replaces_what_it_came_from_and_nothing_after_it() -> None:
    disk = InstantDisk()
    run(disk.make_dirs(DIRECTORY))
    for name in (file_stem(0) + LOG_SUFFIX, file_stem(10) + LOG_SUFFIX, file_stem(20) + LOG_SUFFIX, file_stem(0) + ".log.20.swap"):
        file = run(disk.open(f"{DIRECTORY}/{name}", create=True))
        run(file.append([name.encode()]))
    run(settle(disk, DIRECTORY))
    assert sorted(run(disk.list_dir(DIRECTORY))) == [file_stem(0) + LOG_SUFFIX, file_stem(20) + LOG_SUFFIX]
    assert run(disk.read_file(f"{DIRECTORY}/{file_stem(0)}{LOG_SUFFIX}")) == f"{file_stem(0)}.log.20.swap".encode()
