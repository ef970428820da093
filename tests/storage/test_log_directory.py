"""The log directory, its marks and checkpoints, and the dump of a log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.batches import DIRECTORY, append, batch, idempotent, log_bytes, open_log, stage

from ottla.errors import DecodeError, StorageError
from ottla.records.compression import Codec
from ottla.records.control import build_end_marker
from ottla.sim.instant_disk import InstantDisk, run
from ottla.storage.directory.checkpoint import LOG_START_OFFSET, RECOVERY_POINT, from_text, read_checkpoint, to_text, write_checkpoint
from ottla.storage.directory.directory import DirectoryIdentity, LogDirectory
from ottla.storage.directory.predecessors import Predecessors
from ottla.storage.dump import BatchDump, Damage, dump_log, dump_offset_index, dump_time_index
from ottla.types import TopicPartition

IDS = DirectoryIdentity("cluster-one", 1, "directory-one")
FIRST, SECOND, THIRD = (bytes([number]) * 16 for number in (1, 2, 3))  # incarnations


def open_directory(disk: InstantDisk, *, node_id: int = 1, cluster_id: str | None = None, path: str = "/data") -> LogDirectory:
    return run(LogDirectory.open(disk, path, node_id=node_id, cluster_id=cluster_id, new_ids=IDS))


def test_an_empty_directory_becomes_ours_and_is_recognised_again() -> None:
    disk = InstantDisk()
    assert open_directory(disk).identity == IDS
    other_ids = DirectoryIdentity("cluster-two", 1, "directory-two")
    again = run(LogDirectory.open(disk, "/data", node_id=1, cluster_id=None, new_ids=other_ids))
    assert again.identity == IDS
    assert not again.was_clean


FOREIGN = {
    "foreign files": {"/data/thesis.tex": b"mine"},
    "a partition without a mark": {"/data/orders-0/00000000000000000000.log": b""},
    "Kafka's directory": {"/data/meta.properties": b"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=y\n", "/data/orders-0/x.log": b"x"},
    "a newer format": {"/data/meta.properties": IDS.to_text().replace("format.version=1", "format.version=2").encode()},
    "a damaged mark": {"/data/meta.properties": IDS.to_text().replace("node.id=1", "node.id=one").encode()},
    "no text": {"/data/meta.properties": b"\xff\xfe\x00"},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_directory_that_is_not_ours_is_refused_and_not_touched(name: str) -> None:
    disk = InstantDisk()
    for path, data in FOREIGN[name].items():
        run(disk.make_dirs(path.rsplit("/", 1)[0]))
        run(disk.write_file_atomic(path, data))
    before = disk.contents()
    with pytest.raises(StorageError) as caught:
        open_directory(disk)
    assert "/data" in caught.value.message
    assert disk.contents() == before


def test_what_a_broker_left_in_an_emptied_directory_is_named() -> None:
    """`rm -rf DIR/*` leaves hidden files: "is not empty" puzzled, for `ls` shows none."""
    disk = InstantDisk()
    run(disk.make_dirs("/data"))
    for name in (".ottla-reserve", ".ottla-running", ".lock"):
        run(disk.write_file_atomic(f"/data/{name}", b"x"))
    with pytest.raises(StorageError, match=r"only \.ottla-reserve, \.ottla-running, which a broker left: its other files were removed"):
        open_directory(disk)


def test_a_directory_of_another_node_or_cluster_is_refused_with_its_mark_left() -> None:
    disk = InstantDisk()
    run(open_directory(disk).mark_clean())
    before = disk.contents()
    with pytest.raises(StorageError, match=r"node\.id=1.*node\.id=2"):
        open_directory(disk, node_id=2)
    with pytest.raises(StorageError, match=r"cluster-one.*cluster-two"):
        open_directory(disk, cluster_id="cluster-two")
    assert disk.contents() == before


def test_a_clean_stop_is_believed_once_also_after_a_power_cut() -> None:
    disk = InstantDisk()
    run(open_directory(disk).mark_clean())
    assert open_directory(disk.copy()).was_clean
    assert open_directory(disk).was_clean
    assert not open_directory(disk.power_cut(lambda path, durable, written: durable)).was_clean


def test_a_clean_stop_says_which_broker_epoch_it_was() -> None:
    """KIP-966: the controller takes a broker whose mark does not have its last epoch for one that may have lost records."""
    disk = InstantDisk()
    assert open_directory(disk).predecessors == Predecessors()
    run(open_directory(disk).mark_clean(17))
    assert open_directory(disk).predecessors == Predecessors(17)
    assert open_directory(disk).predecessors == Predecessors(), "believed once"
    for said in (b"", b"{}", b"[]", b"not json", b'{"brokerEpoch": "x"}', b'{"brokerEpoch": 1, "incarnations": [7]}'):
        run(disk.write_file_atomic("/data/.kafka_cleanshutdown", said))
        found = open_directory(disk)
        assert (found.was_clean, found.predecessors) == (True, Predecessors())


def test_a_process_that_was_killed_has_lost_nothing_unless_the_machine_was_switched_off() -> None:
    disk = InstantDisk()
    run(open_directory(disk).mark_running(FIRST, 17))
    found = open_directory(disk)
    assert (found.was_clean, found.predecessors) == (False, Predecessors(17, (FIRST,)))
    run(open_directory(disk).mark_clean(18))
    assert open_directory(disk).predecessors == Predecessors(18), "a clean stop counts more"
    disk.cut_power()
    disk.restart()
    assert open_directory(disk).predecessors == Predecessors()
    directory = open_directory(disk)
    run(directory.mark_running(FIRST, 19))
    run(directory.unmark_running())
    assert open_directory(disk).predecessors == Predecessors(), "its disk has failed"


def test_a_process_that_is_killed_before_it_knows_its_epoch_is_remembered() -> None:
    """Its registration may have been committed, so that the controller knows it, and not the one before."""
    disk = InstantDisk()
    run(open_directory(disk).mark_running(FIRST, 17))
    run(open_directory(disk).mark_running(SECOND))
    assert open_directory(disk).predecessors == Predecessors(17, (FIRST, SECOND))
    run(open_directory(disk).mark_running(THIRD))
    assert open_directory(disk).predecessors == Predecessors(17, (FIRST, SECOND, THIRD))
    run(open_directory(disk).mark_running(THIRD, 20))
    assert open_directory(disk).predecessors == Predecessors(20, (THIRD,))
    for number in range(40):
        run(open_directory(disk).mark_running(bytes([number] * 16)))
    assert len(open_directory(disk).predecessors.incarnations) == 16, "a process that always dies does not fill the disk"
    disk.cut_power()
    disk.restart()
    run(open_directory(disk).mark_running(SECOND))
    assert open_directory(disk).predecessors == Predecessors(-1, (SECOND,))


def test_a_broker_with_several_directories_has_the_predecessors_that_all_of_them_name() -> None:
    """A process is killed while it marks one after the other."""
    before, asked, knew = Predecessors(17, (FIRST,)), Predecessors(17, (FIRST, SECOND)), Predecessors(20, (SECOND,))
    assert Predecessors.of_all([before, asked]) == before
    assert Predecessors.of_all([knew, asked]) == Predecessors(-1, (SECOND,))
    assert Predecessors.of_all([Predecessors(), asked]) == Predecessors(), "one of them is new, or was restored"


def test_partition_directories_are_found_with_their_topic_ids() -> None:
    disk = InstantDisk()
    directory = open_directory(disk)
    keys = [TopicPartition("a-topic.with_all", 0), TopicPartition("orders", 11), TopicPartition("orders", 2)]
    for key in keys:
        assert run(directory.create_partition(key, "id of " + key.topic)) == f"/data/{key}"
    run(disk.make_dirs("/data/halfway-0"))
    assert run(directory.partitions()) == {
        **{key: "id of " + key.topic for key in keys}, TopicPartition("halfway", 0): None
    }  # fmt: skip
    assert run(directory.create_partition(keys[0], "id of a-topic.with_all")) == "/data/a-topic.with_all-0"
    with pytest.raises(StorageError):
        run(directory.create_partition(keys[0], "another id"))


@pytest.mark.parametrize("topic", ["orders", "t" * 249])
def test_a_deleted_partition_is_renamed_at_once_and_removed_later(topic: str) -> None:
    disk = InstantDisk()
    directory = open_directory(disk)
    run(directory.create_partition(TopicPartition(topic, 0), "one"))
    run(directory.create_partition(TopicPartition("kept", 0), "two"))
    renamed = run(directory.delete_partition(TopicPartition(topic, 0), "0123456789abcdef0123456789abcdef"))
    assert renamed is not None
    assert len(renamed.rsplit("/", 1)[1]) <= 255
    after_power_cut = disk.power_cut(lambda path, durable, written: durable)
    assert not [path for path in after_power_cut.files if path.startswith(f"/data/{topic}-0/")]
    assert [path for path in after_power_cut.files if path.startswith(renamed)]
    assert run(directory.partitions()) == {TopicPartition("kept", 0): "two"}
    assert run(directory.delete_partition(TopicPartition(topic, 0), "another")) is None, "nothing has that name any more"
    run(directory.create_partition(TopicPartition(topic, 0), "three"))
    assert run(directory.remove_deleted()) == 1
    assert not [path for path in disk.files if path.startswith(renamed)]
    assert set(run(directory.partitions()).values()) == {"three", "two"}


# -- checkpoints


def test_a_checkpoint_has_kafkas_form() -> None:
    offsets = {TopicPartition("b", 1): 2**60, TopicPartition("a", 0): 5}
    assert to_text(offsets) == "0\n2\na 0 5\nb 1 1152921504606846976\n"


@given(st.dictionaries(st.builds(TopicPartition, st.sampled_from(["a", "b-1", "c.d"]), st.integers(0, 99)), st.integers(0, 2**62)))
def test_a_checkpoint_is_read_back(offsets: dict[TopicPartition, int]) -> None:
    disk = InstantDisk(["/data"])
    for name in (RECOVERY_POINT, LOG_START_OFFSET):
        run(write_checkpoint(disk, f"/data/{name}", offsets))
        assert run(read_checkpoint(disk, f"/data/{name}")) == offsets


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\n1\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "0\n1\na 0 5", "0\n2\na 0 5\na 0 6\n", "x\n0\n"]
)
def test_a_damaged_checkpoint_is_none(text: str) -> None:
    with pytest.raises(DecodeError):
        from_text(text)
    disk = InstantDisk(["/data"])
    run(disk.write_file_atomic("/data/x", text.encode()))
    assert run(read_checkpoint(disk, "/data/x")) == {}
    assert run(read_checkpoint(disk, "/data/absent")) == {}


# -- dump


def test_mechanism_42_a_dump_shows_what_is_in_the_files() -> None:
    disk = InstantDisk()
    log = open_log(disk, index_interval_bytes=0)
    append(log, batch(b"a", b"b", codec=Codec.ZSTD), leader_epoch=5)
    append(log, idempotent(0))
    marker = build_end_marker(is_commit=True, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp_ms=3)
    stage(log, memoryview(marker), from_client=False)
    run(log.flush())
    run(log.close())
    data = run(disk.read_file(f"{DIRECTORY}/{0:020d}.log"))
    dumped = [found for found in dump_log(data, with_records=True) if isinstance(found, BatchDump)]
    assert [(found.base_offset, found.last_offset, found.compression, found.leader_epoch) for found in dumped] == [
        (0, 1, "zstd", 5), (2, 2, "none", 0), (3, 3, "none", 0)
    ]  # fmt: skip
    assert [record.value for record in dumped[0].records] == [b"a", b"b"]
    assert (dumped[1].producer_id, dumped[1].base_sequence) == (7, 0)
    assert [found.control_type for found in dumped] == [None, None, "commit"]
    assert all(found.is_valid for found in dumped)
    assert not [found.records for found in dump_log(data) if isinstance(found, BatchDump) and found.records]
    index = dump_offset_index(run(disk.read_file(f"{DIRECTORY}/{0:020d}.index")), 0, log_size=len(data))
    assert index == [(found.last_offset, found.position) for found in dumped[1:]]
    assert dump_time_index(run(disk.read_file(f"{DIRECTORY}/{0:020d}.timeindex")), 0) == [(1001, 1)]


def test_a_dump_describes_damage() -> None:
    log = open_log(InstantDisk())
    append(log, batch(b"one"), batch(b"two"))
    data = bytearray(log_bytes(log))
    size = len(data) // 2
    data[size - 1] ^= 1
    assert [found.is_valid for found in dump_log(data) if isinstance(found, BatchDump)] == [False, True]
    assert [type(found) for found in dump_log(data[: size + 30])] == [BatchDump, Damage]
    assert [type(found) for found in dump_log(data[: 2 * size - 3])] == [BatchDump, Damage]
    assert [(found.position, found.size_bytes) for found in dump_log(data + bytes(80)) if isinstance(found, Damage)] == [(2 * size, 80)]


@given(st.binary(max_size=200))
def test_a_dump_of_anything_ends(data: bytes) -> None:
    assert len(list(dump_log(data, with_records=True))) <= 4
