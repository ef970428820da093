"""What of a checkpoint goes into its topic: after each batch the topic has a checkpoint from which that batch can be run again."""

import random

import pytest

from ottla.spark.mirror_plan import planned

STORE = "state/0/1"


class Disk:
    """One store as Spark keeps it: a change with each batch, snapshots at times, both deleted at times. Contents say what is in them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.version = 0
        self.sst_count = 0
        self.files: dict[str, str] = {"metadata": "q"}

    def run_batch(self, *, writes_a_snapshot: bool) -> None:
        """Batch N, which begins with version N, has ended; with a snapshot in place of its change, or with a change."""
        number = self.version
        self.files[f"offsets/{number}"] = f"offsets {number}"
        self.version = number + 1
        if writes_a_snapshot:
            self.snapshot()
        else:
            self.files[f"{STORE}/{self.version}.changelog"] = f"change {self.version}"

    def snapshot(self) -> None:
        known = [path for path in self.files if "/SSTs/" in path]
        kept = self.rng.sample(known, self.rng.randint(0, min(2, len(known))))
        for _ in range(self.rng.randint(1, 3)):
            self.sst_count += 1
            kept.append(f"{STORE}/SSTs/{self.sst_count}.sst")
            self.files[kept[-1]] = f"sst {self.sst_count}" + "." * self.rng.randint(0, 30)
        self.files[f"{STORE}/{self.version}.zip"] = " ".join([f"state {self.version} of", *sorted(kept)])

    def clean(self) -> None:
        """What the last snapshot but one replaces is deleted, and SST files of which no snapshot is left."""
        snapshots = sorted(version_of(path) for path in self.files if path.endswith(".zip"))
        if len(snapshots) < 2:
            return
        oldest = snapshots[-2]
        self.files = {
            path: text for path, text in self.files.items() if not path.endswith((".zip", ".changelog")) or version_of(path) >= oldest
        }
        used = {name for path, text in self.files.items() if path.endswith(".zip") for name in text.split(" ")[3:]}
        self.files = {path: text for path, text in self.files.items() if "/SSTs/" not in path or path in used}


def version_of(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0])


def made_of(files: dict[str, str], version: int) -> bool:
    """Whether Spark makes the version of these files: of its newest snapshot that is not newer, and of each change since."""
    snapshots = [version_of(path) for path in files if path.endswith(".zip") and version_of(path) <= version]
    base = max(snapshots, default=0)
    if base:
        content = files[f"{STORE}/{base}.zip"].split(" ")
        if content[:3] != ["state", str(base), "of"] or not all(name in files for name in content[3:]):
            return False
    return all(files.get(f"{STORE}/{step}.changelog") == f"change {step}" for step in range(base + 1, version + 1))


@pytest.mark.parametrize("seed", range(60))
def test_after_each_batch_the_topic_has_a_checkpoint_to_run_that_batch_again(seed: int):
    rng = random.Random(seed)
    disk, mirror = Disk(rng), dict[str, str]()
    begins_late = rng.random() < 0.3
    for number in range(60):
        disk.run_batch(writes_a_snapshot=rng.random() < 0.05)
        if rng.random() < 0.3:
            disk.snapshot()
        if rng.random() < 0.3:
            disk.clean()
        if begins_late and number < 30:
            continue
        changed = {path for path, text in disk.files.items() if path in mirror and mirror[path] != text}
        sizes = {path: len(text) for path, text in disk.files.items()}
        plan = planned(sizes, mirror.keys(), changed, version=number, snapshot_bytes_max=rng.choice([1, 20, 1000]))
        mirror |= {path: disk.files[path] for path in plan.put}
        for path in plan.drop:
            del mirror[path]
        assert mirror[f"offsets/{number}"]
        assert made_of(mirror, number), f"batch {number} of {sorted(mirror)}"
    disk.clean()
    plan = planned({path: len(text) for path, text in disk.files.items()}, mirror.keys(), (), version=59)
    assert {*mirror, *plan.put} - set(plan.drop) == disk.files.keys(), "what is left of it is what is on the disk"


def test_a_snapshot_that_can_wait_goes_a_few_bytes_a_batch_and_what_it_replaces_stays_until_then():
    changes = [f"{STORE}/{version}.changelog" for version in (1, 2, 3)]
    local = {f"{STORE}/3.zip": 10, f"{STORE}/SSTs/a.sst": 10, f"{STORE}/SSTs/b.sst": 10, changes[2]: 5}
    mirrored = dict.fromkeys(changes)
    puts = []
    for _ in range(4):
        plan = planned(local, mirrored, (), version=3, snapshot_bytes_max=10)
        puts.append((plan.put, plan.drop))
        mirrored |= dict.fromkeys(plan.put)
        for path in plan.drop:
            del mirrored[path]
    assert puts == [
        ([f"{STORE}/SSTs/a.sst"], []),
        ([f"{STORE}/SSTs/b.sst"], []),
        ([f"{STORE}/3.zip"], changes[:2]),
        ([], []),
    ]


def test_files_of_no_store_are_as_they_are_on_the_disk():
    local = {"metadata": 1, "offsets/8": 1, "state/0/_metadata/metadata": 1, "state/0/1/_metadata/schema": 1, "commits/7": 1}
    plan = planned(local, {"metadata", "offsets/7", "commits/7"}, {"commits/7"}, version=8)
    assert set(plan.put) == local.keys() - {"metadata"}
    assert plan.drop == ["offsets/7"]


def test_a_directory_that_something_else_deletes_deletes_nothing_in_the_topic():
    states = [f"{store}/{version}.delta" for store in ("state/0/0", "state/0/1") for version in (1, 2, 3)]
    files = ["metadata", "offsets/2", "commits/1", *states]
    for kept in (files[:3], files[:6], files[:7], [path for path in files if "1.delta" not in path]):
        assert planned(dict.fromkeys(kept, 1), files, (), version=2).drop == []
    assert planned(dict.fromkeys([*files, "state/0/1/2.snapshot"], 1), [*files, "commits/0"], (), version=2).drop == ["commits/0"]
